# make train   sets everything up and trains; ARGS="--gin_file=gin/sac_pendulum.gin" trains another
# make test    sets everything up and runs the test suite
# make docs    sets everything up and builds the documentation into site/
# The rest: make learn | scales | slow | bench | bench-peers | soak | lint | clean

VENV := .venv
RUN := $(VENV)/bin/python
# Tried in this order; `make train PYTHON=/path/to/python3.10` names one. Not 3.11 first: TensorFlow
# 2.15 leaks 48 bytes per eager tensor there, and none on 3.10 (tensorflow#62551; `make soak` shows it).
PYTHON ?=
PYTHONS := $(or $(PYTHON),python3.10 python3.11 python3.9 python3)
# Other systems, for comparison: they do not fit into one environment with TensorFlow 2.15.
PEERS := .venv-peers

LEAF := --gin_file=gin/dqn_cartpole.gin
# Arguments that name a gin file or an earlier run replace the default, all others are added to it.
TRAIN := $(if $(or $(findstring --gin_file,$(ARGS)),$(findstring --resume,$(ARGS))),,$(LEAF)) $(ARGS)

.PHONY: help train test slow learn scales bench bench-peers soak lint docs clean
.DEFAULT_GOAL := help

help:
	@sed -n 's/^# \(make .*\)/\1/p; s/^# The rest: //p' Makefile

train: $(VENV)/.installed
	@$(RUN) train.py $(TRAIN)

# Three workers on two cores: tests of jobs wait for processes for much of their time.
test: $(VENV)/.installed-test
	@$(RUN) -m pytest -n 3 --dist loadfile --no-loadscope-reorder $(ARGS)

# Checks too long for every run: TF-Agents' learner tests under all distribution strategies, and
# every agent with every number that is not finite.
slow: $(VENV)/.installed-test
	@$(RUN) -m pytest -m slow --timeout=3600 $(ARGS)

# Whole trainings, judged by the return they reach: minutes each. ONLY=dqn_cartpole,recurrent names
# proofs or groups of them; ARGS=--keep accepts what an older state of the code has shown.
learn: $(VENV)/.installed-test
	@$(RUN) -m benchmarks.learning_proofs $(if $(ONLY),--only=$(ONLY)) $(ARGS)

# Whether agents learn alike whatever the range of their actions is: an hour for all of them.
scales: $(VENV)/.installed-test
	@$(RUN) -m benchmarks.scales $(ARGS)

bench: $(VENV)/.installed-test
	@$(RUN) -m benchmarks.run $(ARGS)

# What grows while a run goes on and on: every stream, in one process and as jobs, an hour in all.
# ARGS="--only=LaneReplay --seconds=600" soaks one for longer.
soak: $(VENV)/.installed-test
	@$(RUN) -m benchmarks.soak $(ARGS)

# Has `make bench` measure SB3 and Sample Factory too, instead of quoting figures of theirs.
bench-peers: $(PEERS)/.installed

lint: $(VENV)/.installed-test
	@$(RUN) -m ruff check . && $(RUN) -m ruff format --check . && $(RUN) -m mypy

# Without a network: a broken link, an unknown page or a name that is not in the code is an error.
docs: $(VENV)/.installed-test
	@NO_MKDOCS_2_WARNING=1 $(RUN) -m mkdocs build --strict --quiet --site-dir site $(ARGS)
	@echo "open site/index.html, or: $(RUN) -m mkdocs serve"

# Everything generated but the environment and the runs.
clean:
	@rm -rf build dist site *.egg-info .pytest_cache .ruff_cache .mypy_cache
	@find actor_learner tests examples benchmarks -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null; true

$(VENV)/.installed: setup.py constraints.txt
	$(call install,.)
	@touch $@

$(VENV)/.installed-test: setup.py constraints.txt
	$(call install,.[test$(comma)docs$(comma)atari$(comma)box2d$(comma)mujoco$(comma)multiagent$(comma)ray$(comma)redis])
	@touch $(VENV)/.installed $@

$(PEERS)/.installed: benchmarks/peers/requirements.txt
	$(call create,$(PEERS))
	@echo "Installing into $(PEERS): takes a few minutes and 2 GB of disk ..."
	@$(PEERS)/bin/python -m pip install -q --disable-pip-version-check -r $<
	@touch $@

comma := ,
SUITABLE := import ensurepip, sys, venv; sys.exit(not (3, 9) <= sys.version_info[:2] <= (3, 11))

# $(call create,directory): makes an environment there, unless there is one that works already.
define create
	@if ! $(1)/bin/python -m pip --version > /dev/null 2>&1; then \
	  if [ "$$(uname -sm)" != "Linux x86_64" ]; then \
	    echo "note: dm-reverb has wheels for Linux on x86-64 only; this is $$(uname -sm)" >&2; \
	  fi; \
	  for python in $(PYTHONS); do \
	    if $$python -c '$(SUITABLE)' > /dev/null 2>&1; then found=$$python; break; fi; \
	  done; \
	  if [ -z "$$found" ]; then \
	    echo "error: no Python 3.10, 3.11 or 3.9 with venv among: $(PYTHONS)." \
	      "Install one, or name it: make PYTHON=/path/to/python3.10" >&2; \
	    exit 1; \
	  fi; \
	  $$found -m venv $(1) || exit 1; \
	fi
endef

# $(call install,what): installs it into the environment, which is made if need be.
define install
	$(call create,$(VENV))
	@echo "Installing into $(VENV): the first time takes a few minutes and 2 GB of disk ..."
	@$(RUN) -m pip install -q --disable-pip-version-check -c constraints.txt -e '$(1)'
endef
