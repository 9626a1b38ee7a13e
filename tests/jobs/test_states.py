import itertools

import pytest

from actor_learner.jobs import states
from actor_learner.support import errors

ALLOWED = {
    ("configuring", "ready"),
    ("ready", "running"),
    ("running", "paused"),
    ("paused", "running"),
    *itertools.product(("configuring", "ready", "running", "paused"), ("completed", "error")),
}


@pytest.mark.parametrize("pair", list(itertools.product(states.ALL, states.ALL)))
def test_exactly_the_possible_transitions_are_accepted(pair):
    if pair in ALLOWED:
        states.check_transition("actor-0", *pair)
    else:
        with pytest.raises(errors.JobError, match=f"actor-0 is {pair[0]}: it cannot .* {pair[1]}"):
            states.check_transition("actor-0", *pair)


def test_a_refused_transition_says_what_would_be_possible():
    with pytest.raises(errors.JobError, match="only running or completed or error"):
        states.check_transition("actor-0", "ready", "paused")
    with pytest.raises(errors.JobError, match="it has ended"):
        states.check_transition("actor-0", "completed", "running")


@pytest.mark.parametrize(
    "state, command, following",
    [
        ("ready", "start", "running"),
        ("running", "pause", "paused"),
        ("paused", "resume", "running"),
        ("configuring", "exit", "configuring"),
        ("paused", "ping", "paused"),
    ],
)
def test_commands_lead_from_state_to_state(state, command, following):
    assert states.state_after("actor-0", state, command) == following


@pytest.mark.parametrize(
    "state, command, words",
    [
        ("ready", "pause", "'pause' needs a worker that is running"),
        ("running", "start", "needs a worker that is ready, but .* is running already"),
        ("paused", "pause", "is paused already"),
        ("running", "jump", "'jump' is not a command: use start, pause"),
    ],
)
def test_commands_that_make_no_sense_are_refused_with_the_reason(state, command, words):
    with pytest.raises(errors.JobError, match=words):
        states.state_after("actor-0", state, command)
