# make train   sets everything up and trains; ARGS="--gin_file=gin/sac_pendulum.gin" trains another
# make test    sets everything up and runs the test suite
# The rest: make learn | slow | bench | lint | clean

VENV := .venv
RUN := $(VENV)/bin/python
# Tried in this order; `make train PYTHON=/path/to/python3.11` names one.
PYTHON ?=
PYTHONS := $(or $(PYTHON),python3.11 python3.10 python3.9 python3)

LEAF := --gin_file=gin/dqn_cartpole.gin
# Arguments that name a gin file or an earlier run replace the default, all others are added to it.
TRAIN := $(if $(or $(findstring --gin_file,$(ARGS)),$(findstring --resume,$(ARGS))),,$(LEAF)) $(ARGS)

.PHONY: help train test slow learn bench lint clean
.DEFAULT_GOAL := help

help:
	@sed -n 's/^# \(make .*\)/\1/p; s/^# The rest: //p' Makefile

train: $(VENV)/.installed
	@$(RUN) train.py $(TRAIN)

test: $(VENV)/.installed-test
	@$(RUN) -m pytest -n 2 --dist loadfile $(ARGS)

# Checks too long for every run: TF-Agents' learner tests under all distribution strategies.
slow: $(VENV)/.installed-test
	@$(RUN) -m pytest -m slow --timeout=3600 $(ARGS)

# Whole trainings, judged by the return they reach: minutes each.
learn: $(VENV)/.installed-test
	@$(RUN) benchmarks/learning_proofs.py $(if $(ONLY),--only=$(ONLY)) $(ARGS)

bench: $(VENV)/.installed-test
	@$(RUN) -m benchmarks.run $(ARGS)

lint: $(VENV)/.installed-test
	@$(RUN) -m ruff check . && $(RUN) -m ruff format --check .

# Everything generated but the environment and the runs.
clean:
	@rm -rf build dist *.egg-info .pytest_cache .ruff_cache
	@find actor_learner tests examples benchmarks -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null; true

$(VENV)/.installed: setup.py constraints.txt
	$(call install,.)
	@touch $@

$(VENV)/.installed-test: setup.py constraints.txt
	$(call install,.[test$(comma)atari$(comma)box2d$(comma)mujoco$(comma)ray$(comma)redis])
	@touch $(VENV)/.installed $@

comma := ,
SUITABLE := import ensurepip, sys, venv; sys.exit(not (3, 9) <= sys.version_info[:2] <= (3, 11))

# $(call install,what): creates the environment unless it works already, and installs into it.
define install
	@if ! $(RUN) -m pip --version > /dev/null 2>&1; then \
	  if [ "$$(uname -sm)" != "Linux x86_64" ]; then \
	    echo "note: dm-reverb has wheels for Linux on x86-64 only; this is $$(uname -sm)" >&2; \
	  fi; \
	  for python in $(PYTHONS); do \
	    if $$python -c '$(SUITABLE)' > /dev/null 2>&1; then found=$$python; break; fi; \
	  done; \
	  if [ -z "$$found" ]; then \
	    echo "error: no Python 3.11, 3.10 or 3.9 with venv among: $(PYTHONS)." \
	      "Install one, or name it: make PYTHON=/path/to/python3.11" >&2; \
	    exit 1; \
	  fi; \
	  $$found -m venv $(VENV) || exit 1; \
	fi
	@echo "Installing into $(VENV): the first time takes a few minutes and 2 GB of disk ..."
	@$(RUN) -m pip install -q --disable-pip-version-check -c constraints.txt -e '$(1)'
endef
