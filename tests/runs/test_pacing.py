"""How many train steps are due and how far actors may go, in one process and with real tables."""

import pytest

from actor_learner import plan as plan_lib
from actor_learner.replay.server import server, state, tables
from actor_learner.replay.streams import sample_stream
from actor_learner.runs import pacing
from actor_learner.support import errors
from tests.runs import test_step_watch

LANES, ACTORS = 4, 3
TURN = 52
"""Environment steps of a turn of 50, in whole steps of four lanes."""


def make_plan(**changes):
    settings = dict(
        stream=None,
        experience=sample_stream.Experience(None, LANES, 1, 0.99),
        batch_size=32,
        initial_random_steps=0,
        learn_from=100,
        updates_per_step=0.5,
        group_steps=None,
        collect_steps=50,
    )
    return plan_lib.Plan(**{**settings, **changes})


def table(size, *, wanted=1, inserts=None):
    """A table that wants so many items before it can be sampled."""
    waits = size < wanted
    return state.TableState(
        name="experience",
        size=size,
        max_size=1_000,
        inserts=size if inserts is None else inserts,
        samples=0,
        unique_samples=0,
        samples_per_insert=0.0,
        blocked="sampling" if waits else None,
        why=f"{size} of {wanted} items" if waits else "",
    )


def answers(*states):
    """Answers so many questions, and fails if it is asked once more."""
    left = iter(states)

    def ask():
        answer = next(left, None)
        assert answer is not None, "the table is asked too often"
        if isinstance(answer, Exception):
            raise answer
        return answer

    return ask


def replay_pacing(*states, environment_step=0, train_step=0, **options):
    return pacing.ReplayPacing(
        make_plan(),
        answers(*states),
        environment_step=environment_step,
        train_step=train_step,
        **options,
    )


# Replay, in one process.


def test_train_steps_follow_environment_steps_at_the_ratio():
    made = replay_pacing(table(0), table(20))
    assert made.updates_due(101, 0) == 0
    assert made.updates_due(140, 0) == 20
    assert made.updates_due(140, 15) == 5
    assert made.steps_allowed(140, 15) == 100 + 30 + 2 * TURN
    made.require_training(140, 20)


def test_train_steps_begin_when_the_table_can_be_sampled_and_nothing_is_made_up_for():
    made = replay_pacing(*(table(size, wanted=10) for size in (0, 3, 8, 10)))
    assert made.updates_due(140, 0) == 0
    assert made.steps_allowed(140, 0) == 140 + 2 * TURN
    assert made.updates_due(141, 0) == 0  # Nothing is due: the table is not asked.
    assert made.updates_due(300, 0) == 0
    with pytest.raises(errors.ReplayError, match="all 300 .* not taken one .*; 8 of 10 items"):
        made.require_training(300, 0)
    assert made.updates_due(320, 0) == 10
    assert made.updates_due(340, 10) == 10  # Asked no more.
    made.require_training(340, 20)


def test_a_resumed_run_that_ends_before_it_could_learn_is_complete(caplog):
    made = replay_pacing(table(0), table(0), environment_step=1_000, train_step=450)
    assert made.updates_due(1_200, 450) == 0
    made.require_training(1_200, 450)
    assert "Nothing was learned since the run was resumed" in caplog.text
    assert "0 of 1 items" in caplog.text


@pytest.mark.parametrize("size, learn_from", [(0, 1_100), (500, 1_000)])
def test_a_resumed_run_waits_for_experience_only_if_its_replay_is_empty(size, learn_from):
    made = replay_pacing(table(size), table(500), environment_step=1_000, train_step=450)
    assert made.updates_due(learn_from, 450) == 0
    assert made.updates_due(learn_from + 20, 450) == 10
    assert made.steps_allowed(learn_from, 450) == learn_from + 2 * TURN


def test_a_table_that_does_not_answer_is_asked_again_the_next_time():
    made = replay_pacing(table(0), errors.ReplayTimeoutError("no answer"), table(20))
    with pytest.raises(errors.ReplayTimeoutError):
        made.updates_due(140, 0)
    assert made.updates_due(140, 0) == 20


# Replay, of another process.


def fill(replay, name, items):
    client = replay.client()
    replay.info()  # Connections to a server that had this port before are closed by then.
    for number in range(items):
        client.insert(float(number), {name: 1.0})


def asking(replay, name):
    client = replay.client()
    return lambda: state.table_state(client, name)


def job_pacing(replay, plan, environment_step=0, train_step=0, **options):
    """As a learner job has it, but that it looks at the table each time."""
    options = {"num_actors": lambda: ACTORS, "look_seconds": 0.0, **options}
    return pacing.ReplayPacing(
        plan,
        asking(replay, "experience"),
        environment_step=environment_step,
        train_step=train_step,
        **options,
    )


def test_each_of_several_actors_may_be_two_turns_ahead():
    actors = [ACTORS]
    with server.ReplayServer([tables.uniform_table("experience", 1_000)]) as replay:
        fill(replay, "experience", 1)
        made = job_pacing(replay, make_plan(), num_actors=lambda: actors[0])
        assert made.updates_due(100, 0) == 0
        assert made.updates_due(140, 0) == 20
        assert made.updates_due(140, 15) == 5
        assert made.steps_allowed(140, 15) == 100 + 30 + 2 * TURN * ACTORS
        actors[0] += 1  # One more has joined.
        assert made.steps_allowed(140, 15) == 100 + 30 + 2 * TURN * (ACTORS + 1)


def test_actors_may_go_on_until_there_is_something_to_learn_from():
    with server.ReplayServer([tables.uniform_table("experience", 1_000)]) as replay:
        made = job_pacing(replay, make_plan(learn_from=0))
        for step in (400, 900):
            assert made.updates_due(step, 0) == 0
            assert made.steps_allowed(step, 0) == step + 2 * TURN * ACTORS
        with pytest.raises(errors.ReplayError, match="all 900 .* 0 of the 1 items"):
            made.require_training(900, 0)
        fill(replay, "experience", 1)
        assert made.updates_due(900, 0) == 0  # What came before cannot be learned any more.
        assert made.updates_due(910, 0) == 5
        made.require_training(910, 5)


def test_nothing_is_due_until_the_table_has_the_items_it_wants():
    hungry = tables.uniform_table("experience", 1_000, rate_limiter=tables.min_size(3))
    with server.ReplayServer([hungry]) as replay:
        made = job_pacing(replay, make_plan(learn_from=0))
        fill(replay, "experience", 2)
        assert made.updates_due(400, 0) == 0
        assert made.steps_allowed(400, 0) == 400 + 2 * TURN * ACTORS
        fill(replay, "experience", 1)
        assert made.updates_due(410, 0) == 5


def test_a_server_that_lost_its_contents_is_filled_again_first():
    with server.ReplayServer([tables.uniform_table("experience", 1_000)]) as replay:
        fill(replay, "experience", 10)
        made = job_pacing(replay, make_plan(), environment_step=1_000, train_step=450)
        assert made.updates_due(1_200, 450) == 100
        port = replay.port
    with server.ReplayServer([tables.uniform_table("experience", 1_000)], port) as replay:
        fill(replay, "experience", 1)
        assert made.updates_due(1_200, 500) == 0
        assert made.updates_due(1_300, 500) == 0
        assert made.steps_allowed(1_200, 500) == 1_300 + 2 * TURN * ACTORS
        assert made.updates_due(1_320, 500) == 10


def test_a_server_that_restored_its_contents_is_learned_from_at_once(tmp_path):
    made_table = lambda: [tables.uniform_table("experience", 1_000)]  # noqa: E731
    with server.ReplayServer(made_table(), checkpoint_dir=tmp_path) as replay:
        fill(replay, "experience", 10)
        made = job_pacing(replay, make_plan(), environment_step=1_000, train_step=450)
        assert made.updates_due(1_200, 450) == 100
        replay.checkpoint()
        port = replay.port
    with server.ReplayServer(made_table(), port, checkpoint_dir=tmp_path) as replay:
        assert made.updates_due(1_200, 500) == 50


def test_a_server_of_another_process_is_looked_at_now_and_then():
    clock = test_step_watch.Clock()
    made = replay_pacing(
        table(100), table(100), table(1), environment_step=1_000, look_seconds=1.0, clock=clock
    )
    assert made.updates_due(1_200, 0) == 100
    clock.seconds += 0.9
    assert made.updates_due(1_220, 0) == 110  # The table is not asked.
    clock.seconds += 0.1
    assert made.updates_due(1_220, 0) == 0  # It has lost its contents.


# Queues, in one process.


def test_a_train_step_is_due_per_turn_and_collecting_is_at_most_two_turns_ahead():
    turns = [0]
    plan = make_plan(group_steps=8, learn_from=0)
    made = pacing.QueuePacing(plan, lambda train_step: turns[0] - (train_step - 30))
    assert made.max_updates == 1
    due, allowed = [], []
    for turns[0], train_step in ((0, 30), (1, 30), (2, 30), (2, 31), (2, 32)):
        due.append(made.updates_due(500, train_step))
        allowed.append(made.steps_allowed(500, train_step) - 500)
    assert due == [0, 1, 2, 1, 0]
    assert allowed == [64, 32, 0, 32, 64]
    made.require_training(500, 32)


# Queues, of another process.


def queue():
    return [tables.queue_table("queue", 100)]


def queue_pacing(replay, dropped=lambda: 0, num_actors=lambda: ACTORS, items_per_batch=2):
    arrived = pacing.ArrivedBatches(asking(replay, "queue"), items_per_batch, dropped)
    plan = make_plan(group_steps=10, learn_from=0)
    return pacing.QueuePacing(plan, arrived.waiting, num_actors=num_actors)


def test_a_train_step_is_due_for_each_batch_that_has_arrived():
    with server.ReplayServer(queue()) as replay:
        made = queue_pacing(replay)
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
        made = queue_pacing(replay, dropped=lambda: dropped[0])
        assert made.updates_due(0, 0) == 0
        fill(replay, "queue", 2 * 2 * ACTORS)
        assert made.updates_due(0, 0) == 2 * ACTORS and made.steps_allowed(500, 0) == 500
        dropped[0] += 4
        assert made.updates_due(0, 0) == 2 * ACTORS - 2
        assert made.steps_allowed(500, 0) == 500 + 2 * 10 * LANES


def test_what_waits_in_the_queue_when_a_learner_begins_is_due():
    with server.ReplayServer(queue()) as replay:
        fill(replay, "queue", 6)
        for _ in range(2):  # By a learner that has died.
            next(iter(replay.client().sample("queue")))
        assert queue_pacing(replay).updates_due(0, 30) == 2


def test_actors_wait_when_enough_batches_do():
    actors, turn = [ACTORS], 10 * LANES
    with server.ReplayServer(queue()) as replay:
        made = queue_pacing(replay, num_actors=lambda: actors[0])
        assert made.steps_allowed(500, 0) == 500 + 2 * turn * ACTORS
        fill(replay, "queue", 2 * 2 * ACTORS)
        assert made.updates_due(500, 0) == 2 * ACTORS
        assert made.steps_allowed(500, 0) == 500
        assert made.updates_due(500, 1) == 2 * ACTORS - 1
        assert made.steps_allowed(500, 1) == 500 + turn
        actors[0] -= 1  # One has left: more batches wait than the others may be ahead.
        assert made.steps_allowed(500, 1) == 500


def test_a_new_queue_on_the_same_port_counts_from_what_it_holds():
    with server.ReplayServer(queue()) as replay:
        made = queue_pacing(replay)
        made.updates_due(0, 0)
        fill(replay, "queue", 9)
        assert made.updates_due(0, 3) == 1
        port = replay.port
    with server.ReplayServer(queue(), port) as replay:
        fill(replay, "queue", 4)
        assert made.updates_due(0, 4) == 2
        assert made.updates_due(0, 5) == 1


def test_an_answer_of_the_queue_holds_for_a_while():
    clock = test_step_watch.Clock()
    arrived = pacing.ArrivedBatches(answers(table(4), table(6)), 2, seconds=0.5, clock=clock)
    assert arrived.waiting(0) == 2
    clock.seconds += 0.4
    assert arrived.waiting(1) == 1  # What is used since then is known without asking.
    clock.seconds += 0.1
    assert arrived.waiting(1) == 2


def shared_pacing(replay, learners, training):
    """Of a queue that learners share who take one item each for a train step."""
    waiting = pacing.WaitingBatches(
        asking(replay, "queue"), lambda: learners[0], lambda: training[0]
    )
    plan = make_plan(group_steps=10, learn_from=0)
    return pacing.QueuePacing(plan, waiting.waiting, num_actors=lambda: 1)


def test_of_a_queue_that_learners_share_only_what_it_holds_is_due():
    learners, training, turn = [2], [0], 10 * LANES
    with server.ReplayServer(queue()) as replay:
        made = shared_pacing(replay, learners, training)
        assert made.updates_due(500, 0) == 0 and made.steps_allowed(500, 0) == 500 + 2 * turn
        fill(replay, "queue", 5)
        assert made.updates_due(500, 0) == 2 and made.steps_allowed(500, 0) == 500
        learners[0] = 1  # The other one has died, whatever it had taken out.
        assert made.updates_due(500, 0) == 5
        learners[0] = 2
        for _ in range(5):
            next(iter(replay.client().sample("queue")))
        # A train step that was begun may need more: of those that it had, some were too old.
        training[0] = 1
        assert made.steps_allowed(500, 0) == 500 + turn
        training[0] = 0
        assert made.updates_due(500, 1) == 0


def test_what_a_train_step_has_taken_out_of_a_shared_queue_is_not_due_again():
    clock = test_step_watch.Clock()
    waiting = pacing.WaitingBatches(
        answers(table(4), table(2), table(6)), lambda: 2, seconds=0.5, clock=clock
    )
    assert waiting.waiting(0) == 2 and waiting.waiting(0) == 2
    assert waiting.waiting(1) == 1 and waiting.waiting(1) == 1
    clock.seconds += 0.5
    assert waiting.waiting(1) == 3
