"""An evaluator's result reaches the learner, also if the server is silent for a while."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import threading

import pytest
import reverb
import tensorflow as tf

from actor_learner.jobs import job, mailbox, result_sender, worker
from actor_learner.naming import memory
from actor_learner.runs import best_policy
from actor_learner.support import errors

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEADLINE = 120.0
SERVER = """
import sys
from actor_learner.runs import best_policy
from actor_learner.jobs import mailbox
from actor_learner.replay.server import server
tables = [best_policy.best_table(), mailbox.mailbox_table(mailbox.EVALUATIONS)]
with server.ReplayServer(tables) as made:
    print(made.port, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(scope="module")
def server_process():
    """`(client, process)` of a server in a process of its own, which can be stopped."""
    process = subprocess.Popen(
        [sys.executable, "-c", SERVER],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield reverb.Client(f"localhost:{int(process.stdout.readline())}"), process
    finally:
        process.kill()
        process.wait(30)


@pytest.fixture
def replay(server_process):
    """The same, with nothing in its tables but what an earlier test may have left under way."""
    client, process = server_process
    os.kill(process.pid, signal.SIGCONT)
    for table in (mailbox.EVALUATIONS, best_policy.TABLE):
        client.reset(table)
    return client, process


class Partner:
    """All that is needed of one here."""

    def __init__(self, client):
        self.client = client
        self.asked = []

    def require_same_address(self):
        self.asked.append("address")

    def require_same_run(self):
        self.asked.append("run")


class Policy:
    def variables(self):
        return (tf.Variable([0.5], name="bias"),)


@pytest.fixture
def best_dir(tmp_path):
    score = {
        "mean": 3.0, "std": 1.0, "min": 2.0, "max": 4.0, "episodes": 2,
        "train_step": 7, "environment_step": 70,
    }  # fmt: skip
    (tmp_path / "best").mkdir()
    (tmp_path / "best" / "score.json").write_text(json.dumps(score))
    return tmp_path / "best"


def make(partner, best_dir, timeout_seconds=DEADLINE):
    evaluator = job.Job("evaluator", 0, "run", memory.MemoryRegistry("delivery"))
    made = result_sender.Delivery(
        evaluator, partner, best_dir, Policy(), timeout_seconds=timeout_seconds
    )
    return evaluator, made


def sizes(client):
    """Results and candidates that the server has."""
    tables = client.server_info(timeout=60)
    return tables[mailbox.EVALUATIONS].current_size, tables[best_policy.TABLE].current_size


# The tests that leave something under way come last.


def test_a_result_and_the_best_policy_arrive(replay, best_dir):
    client, _ = replay
    _, made = make(Partner(client), best_dir)
    assert not made.pending
    made.take({"train_step": 7}, is_best=True)
    assert made.pending and made.deliver() and not made.pending
    assert sizes(client) == (1, 1)
    made.take({"train_step": 8}, is_best=False)
    assert made.deliver()
    assert sizes(client) == (2, 1)


@pytest.mark.parametrize("is_best", [True, False])
def test_a_silent_server_is_tried_again_until_it_has_the_result_once(replay, best_dir, is_best):
    client, process = replay
    partner = Partner(client)
    _, made = make(partner, best_dir, timeout_seconds=0.5)
    made.take({"train_step": 6}, is_best=False)
    assert made.deliver()
    made.take({"train_step": 7}, is_best=is_best)
    os.kill(process.pid, signal.SIGSTOP)
    assert not made.deliver() and made.pending
    assert partner.asked == ["address"]
    assert not made.deliver()
    os.kill(process.pid, signal.SIGCONT)
    while not made.deliver():
        assert len(partner.asked) < 2 * DEADLINE, "it was not delivered"
    assert "run" in partner.asked  # Another run's server may have come in its place.
    results, candidates = sizes(client)
    assert results == 2
    # One that was under way when the server fell silent may arrive as well: the learner compares.
    assert (candidates >= 1) == is_best


def test_one_that_is_asked_to_end_does_not_wait_for_a_silent_server(replay, best_dir):
    client, process = replay
    evaluator, made = make(Partner(client), best_dir)
    made.take({"train_step": 6}, is_best=False)
    assert made.deliver()
    made.take({"train_step": 7}, is_best=True)
    os.kill(process.pid, signal.SIGSTOP)
    ended = []

    def deliver():
        try:
            made.deliver()
        except worker.Stopping as error:
            ended.append(error)

    thread = threading.Thread(target=deliver, daemon=True)
    thread.start()
    evaluator.stopping.set()
    thread.join(DEADLINE / 2)
    assert len(ended) == 1 and "evaluator-0" in str(ended[0])


def test_a_candidate_that_the_server_does_not_take_is_an_error_in_time(replay, best_dir):
    client, process = replay
    os.kill(process.pid, signal.SIGSTOP)
    with pytest.raises(errors.ReplayTimeoutError, match="has not taken the best policy within 1 s"):
        best_policy.send(client, best_dir, Policy(), timeout_seconds=1.0)
