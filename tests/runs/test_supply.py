"""How far the learner and the actors may go, with real tables."""

import pytest

from actor_learner import plan as plan_lib
from actor_learner.replay.server import server, tables
from actor_learner.replay.streams import sample_stream
from actor_learner.runs import supply

LANES, ACTORS = 4, 3


def make_plan(**changes):
    settings = dict(
        stream=None,
        experience=sample_stream.Experience(None, LANES, 1, 0.99),
        batch_size=32,
        initial_random_steps=0,
        learn_from=100,
        updates_per_step=0.5,
        group_steps=None,
        collect_steps=64,
    )
    return plan_lib.Plan(**{**settings, **changes})


def fill(replay, table, items):
    client = replay.client()
    replay.info()  # Connections to a server that had this port before are closed by then.
    for number in range(items):
        client.insert(float(number), {table: 1.0})


@pytest.fixture
def without_pauses(monkeypatch):
    monkeypatch.setattr(supply, "_LOOK_SECONDS", 0.0)


def paced(replay, plan, environment_step=0, train_step=0):
    pace = plan.pace(environment_step, train_step, replay_is_empty=environment_step == 0)
    return supply.PacedSupply(plan, pace, ACTORS, replay.client(), "experience")


def test_train_steps_follow_environment_steps_at_the_ratio():
    with server.ReplayServer([tables.uniform_table("experience", 1_000)]) as replay:
        fill(replay, "experience", 1)
        made = paced(replay, make_plan())
        assert made.updates_due(100, 0) == 0
        assert made.updates_due(140, 0) == 20
        assert made.updates_due(140, 15) == 5
        # Two turns of 64 steps for each of three actors, ahead of what has been learned.
        assert made.steps_allowed(140, 15) == 100 + 30 + 2 * 64 * 3


def test_actors_may_go_on_until_there_is_something_to_learn_from():
    with server.ReplayServer([tables.uniform_table("experience", 1_000)]) as replay:
        made = paced(replay, make_plan(learn_from=0))
        for step in (400, 900):
            assert made.updates_due(step, 0) == 0
            assert made.steps_allowed(step, 0) == step + 2 * 64 * 3
        fill(replay, "experience", 1)
        assert made.updates_due(900, 0) == 0  # What came before cannot be learned any more.
        assert made.updates_due(910, 0) == 5


def test_nothing_is_due_until_the_table_has_the_items_it_wants():
    table = tables.uniform_table("experience", 1_000, rate_limiter=tables.min_size(3))
    with server.ReplayServer([table]) as replay:
        made = paced(replay, make_plan(learn_from=0))
        fill(replay, "experience", 2)
        assert made.updates_due(400, 0) == 0
        assert made.steps_allowed(400, 0) == 400 + 2 * 64 * 3
        fill(replay, "experience", 1)
        assert made.updates_due(410, 0) == 5


def test_a_server_that_lost_its_contents_is_filled_again_first(without_pauses):
    plan = make_plan()
    table = tables.uniform_table("experience", 1_000)
    with server.ReplayServer([table]) as replay:
        fill(replay, "experience", 10)
        made = paced(replay, plan, environment_step=1_000, train_step=450)
        assert made.updates_due(1_200, 450) == 100
        port = replay.port
    with server.ReplayServer([tables.uniform_table("experience", 1_000)], port) as replay:
        fill(replay, "experience", 1)
        assert made.updates_due(1_200, 500) == 0
        assert made.updates_due(1_300, 500) == 0
        assert made.steps_allowed(1_200, 500) == 1_300 + 2 * 64 * 3
        assert made.updates_due(1_320, 500) == 10


def test_a_server_that_restored_its_contents_is_learned_from_at_once(without_pauses, tmp_path):
    made_table = lambda: [tables.uniform_table("experience", 1_000)]  # noqa: E731
    with server.ReplayServer(made_table(), checkpoint_dir=tmp_path) as replay:
        fill(replay, "experience", 10)
        made = paced(replay, make_plan(), environment_step=1_000, train_step=450)
        assert made.updates_due(1_200, 450) == 100
        replay.checkpoint()
        port = replay.port
    with server.ReplayServer(made_table(), port, checkpoint_dir=tmp_path) as replay:
        assert made.updates_due(1_200, 500) == 50


def queued(replay, items_per_batch=2, **options):
    plan = make_plan(group_steps=10, learn_from=0)
    return supply.QueuedSupply(plan, items_per_batch, ACTORS, replay.client(), "queue", **options)


def queue():
    return [tables.queue_table("queue", 100)]


def test_a_train_step_is_due_for_each_batch_that_has_arrived():
    with server.ReplayServer(queue()) as replay:
        made = queued(replay)
        assert made.updates_due(0, 7) == 0
        fill(replay, "queue", 5)
        assert made.updates_due(0, 7) == 2
        next(iter(replay.client().sample("queue")))  # Taken out ahead of its use.
        assert made.updates_due(0, 7) == 2
        assert made.updates_due(0, 8) == 1
        fill(replay, "queue", 1)
        assert made.updates_due(0, 8) == 2
        assert made.updates_due(0, 10) == 0


def test_items_that_were_dropped_make_no_train_step_due():
    dropped = [3]  # By now; what was dropped before a learner counts is not missed.
    with server.ReplayServer(queue()) as replay:
        made = queued(replay, dropped=lambda: dropped[0])
        assert made.updates_due(0, 0) == 0
        fill(replay, "queue", 2 * 2 * ACTORS)
        assert made.updates_due(0, 0) == 2 * ACTORS and made.steps_allowed(500, 0) == 500
        dropped[0] += 4
        assert made.updates_due(0, 0) == 2 * ACTORS - 2 and made.steps_allowed(500, 0) > 500


def test_what_waits_in_the_queue_when_a_learner_begins_is_due():
    with server.ReplayServer(queue()) as replay:
        fill(replay, "queue", 6)
        for _ in range(2):  # By a learner that has died.
            next(iter(replay.client().sample("queue")))
        assert queued(replay).updates_due(0, 30) == 2


def test_actors_wait_when_enough_batches_do():
    with server.ReplayServer(queue()) as replay:
        made = queued(replay)
        made.updates_due(0, 0)
        turn = 10 * LANES
        assert made.steps_allowed(500, 0) == 500 + 2 * turn * ACTORS
        fill(replay, "queue", 2 * 2 * ACTORS)
        assert made.updates_due(500, 0) == 2 * ACTORS
        assert made.steps_allowed(500, 0) == 500
        assert made.updates_due(500, 1) == 2 * ACTORS - 1
        assert made.steps_allowed(500, 1) > 500


def test_a_new_queue_on_the_same_port_counts_from_what_it_holds():
    with server.ReplayServer(queue()) as replay:
        made = queued(replay)
        made.updates_due(0, 0)
        fill(replay, "queue", 9)
        assert made.updates_due(0, 3) == 1
        port = replay.port
    with server.ReplayServer(queue(), port) as replay:
        fill(replay, "queue", 4)
        assert made.updates_due(0, 4) == 2
        assert made.updates_due(0, 5) == 1
