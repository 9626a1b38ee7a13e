# docker build -t actor-learner:latest .
# docker run --rm -v "$PWD/runs:/app/runs" actor-learner train --gin_file=dqn_cartpole
# docker run --rm -v "$PWD/runs:/app/runs" actor-learner up --gin_file=dqn_cartpole --actors=4
#
# One image for one process and for every job: the command after its name is that of `actor-learner`.
# EXTRAS chooses what is installed besides: docker build --build-arg EXTRAS=redis,ray,atari …
# Python 3.10, because TensorFlow 2.15 leaks on 3.11 (docs/long_runs.md).
FROM python:3.10-slim
ARG EXTRAS=redis
WORKDIR /app
COPY setup.py pyproject.toml constraints.txt README.md LICENSE MANIFEST.in ./
COPY actor_learner actor_learner
COPY gin gin
RUN pip install --no-cache-dir -c constraints.txt ".[${EXTRAS}]"
# Your own environments, gin files and jobs: COPY them here, or mount them; all jobs need the same.
RUN useradd --uid 1000 --create-home actor && mkdir runs && chown actor runs
USER actor
VOLUME /app/runs
ENTRYPOINT ["actor-learner"]
CMD ["--help"]
