# docker build -t actor-learner:latest .
# mkdir -p runs
# docker run --rm --user "$(id -u):$(id -g)" -v "$PWD/runs:/app/runs" actor-learner \
#   train --gin_file=dqn_cartpole
# In place of the last line, for separate jobs: up --gin_file=dqn_cartpole --actors=4
# The directory is made first, and --user given, so that the run's files are yours.
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
