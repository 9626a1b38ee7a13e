"""Tests of `actor_learner.learning.learner`."""

from __future__ import annotations

import glob
import os
import time

import pytest
import reverb
import tensorflow as tf
from tf_agents.agents.dqn import dqn_agent
from tf_agents.networks import q_network
from tf_agents.train import learner as tf_agents_learner

from actor_learner.learning import interval_trigger, learner
from actor_learner.support import counters, errors, unsaved
from tests.learning import tiny_agent
from tests.learning.tiny_learner import Recorder, make, recorded

# Training.


def test_run_trains_the_agent_and_returns_losses_summed_over_their_dimensions(tmp_path):
    with make(tmp_path) as trained:
        loss = trained.run(iterations=30)
        assert trained.train_step_numpy == 30
        assert trained._agent.weight.numpy() == pytest.approx(1.0, abs=0.3)
        # The loss of the last iteration, which is nearly fitted, and the sum of a batch of ones.
        assert 0 <= loss.loss.numpy() < 0.1
        assert loss.extra["batch"].numpy() == tiny_agent.BATCH


def test_the_train_step_rises_only_when_its_batch_is_there(tmp_path):
    step = tiny_agent.train_step()
    met = []

    def look(_):
        time.sleep(0.02)  # A batch that is long in coming: nothing else would show the difference.
        met.append(step.numpy())
        return 0

    @tf.autograph.experimental.do_not_convert
    def batch(number):
        waited = tf.numpy_function(look, [number], tf.int64)
        with tf.control_dependencies([waited]):
            return tf.nest.map_structure(tf.identity, (tiny_agent.experience(), ()))

    dataset = tf.data.Dataset.range(100).map(batch)
    with make(tmp_path, step=step, dataset_fn=lambda: dataset) as trained:
        trained.run(iterations=3)
        trained.run(iterations=2)
    assert met[:5] == [0, 1, 2, 3, 4]


def test_training_equals_the_same_steps_of_the_agent_alone(tmp_path):
    with make(tmp_path, summary_interval=7) as trained:
        for iterations in (1, 20, 4, 40):
            loss = trained.run(iterations)
    alone = tiny_agent.TinyAgent(tiny_agent.train_step())
    for _ in range(65):
        expected = alone.train(tiny_agent.experience())
    assert trained._agent.weight.numpy() == pytest.approx(alone.weight.numpy(), rel=1e-5)
    assert loss.loss.numpy() == pytest.approx(expected.loss.numpy(), rel=1e-3)


def test_any_number_of_iterations_is_one_call_of_a_graph_traced_once(tmp_path):
    with make(tmp_path, summary_interval=1000) as trained:
        trained.run(1)
        trained.run(2)
        calls = []
        quiet_run = trained._calls.quiet_loop.run
        trained._calls.quiet_loop.run = lambda *a, **k: calls.append(a[0]) or quiet_run(*a, **k)
        traces = trained._agent.traces
        for iterations in (1, 3, 200, 50, 7):
            trained.run(iterations)
        assert calls == [1, 3, 200, 50, 7]
        assert trained._agent.traces == traces
        assert trained._calls.quiet_loop.trace_count == 1


def test_the_train_step_is_traced_once_for_each_graph_once_its_variables_exist(tmp_path):
    with make(tmp_path, summary_interval=100) as trained:
        # One trace creates the optimizer's variables, the second is the graph that records.
        assert trained._agent.traces == 2
        trained.run(300)
        assert trained._agent.traces == 3
    with make(tmp_path / "silent", summary_interval=0) as trained:
        trained.run(300)
        assert trained._agent.traces == 2


def test_the_quiet_graph_has_no_summary_operation(tmp_path):
    with make(tmp_path, summary_interval=1000) as trained:
        trained.run(5)

        def operations(loop):
            function = loop._traced_step.get_concrete_function(trained._experience_iterator)
            definition = function.graph.as_graph_def()
            nodes = list(definition.node)
            for inner in definition.library.function:
                nodes += list(inner.node_def)
            return {node.op for node in nodes}

        assert "WriteSummary" in operations(trained._calls.recording_loop)
        assert "WriteSummary" not in operations(trained._calls.quiet_loop)


@pytest.mark.parametrize(
    "first_step, increment, summary_interval, schedule",
    [
        (0, 1, 20, [1, 1, 17, 1, 1, 1, 50, 3]),
        (17, 1, 40, [200]),
        (0, 1, 3, [10, 1, 1, 1]),
        (12, 3, 20, [5, 60, 1]),  # The agent adds three per iteration.
    ],
)
def test_summaries_are_recorded_at_the_same_steps_as_by_tf_agents(
    tmp_path, first_step, increment, summary_interval, schedule
):
    for name, module in (("theirs", tf_agents_learner), ("ours", learner)):
        step = tiny_agent.train_step(first_step)
        trained = module.Learner(
            str(tmp_path / name),
            step,
            tiny_agent.TinyAgent(step, increment),
            tiny_agent.dataset,
            summary_interval=summary_interval,
        )
        for iterations in schedule:
            trained.run(iterations)
        trained.train_summary_writer.flush()
    # The name of TF-Agents' loop gets into its tags after the first iteration of each run.
    theirs = [(tag.replace("while/", ""), step) for tag, step in recorded(tmp_path / "theirs")]
    assert theirs
    assert recorded(tmp_path / "ours") == theirs


def test_no_summaries_are_written_without_an_interval(tmp_path):
    with make(tmp_path, summary_interval=0) as trained:
        trained.run(3)
    assert not glob.glob(str(tmp_path / "train" / "events*"))


def test_single_steps_record_summaries_at_the_same_steps_as_one_long_run(tmp_path):
    with make(tmp_path / "long", summary_interval=20) as trained:
        trained.run(65)
    with make(tmp_path / "single", summary_interval=20) as trained:
        for _ in range(65):
            trained.run(1)
    assert recorded(tmp_path / "single") == recorded(tmp_path / "long")
    assert ("before", 60) in recorded(tmp_path / "single")


def test_a_step_changed_by_somebody_else_is_seen_by_single_steps_too(tmp_path):
    seen = []
    with make(tmp_path, summary_interval=50, triggers=[seen.append]) as trained:
        for _ in range(3):
            trained.run(1)
        trained._agent.train_step_counter.assign(30)
        for _ in range(3):
            trained.run(1)
        # From now on the step is read before each: one that is due is met wherever it comes from.
        trained._agent.train_step_counter.assign(50)
        trained.run(1)
    assert seen == [1, 2, 3, 31, 32, 33, 51]
    assert trained.last_step == 51
    assert recorded(tmp_path) == [("before", 0), ("before", 50)]


def test_nothing_is_entered_or_read_for_a_single_step_that_nothing_is_due_for(
    tmp_path, monkeypatch
):
    fired = []
    trigger = interval_trigger.IntervalTrigger(4, lambda: fired.append(1))
    with (
        unsaved.scope(),  # What another test could not save would be tried again.
        make(tmp_path, summary_interval=1_000, triggers=[trigger]) as trained,
    ):
        trained.run(1)
        trained.run(1)
        entered, reads = [], []
        context, read = trained._context, counters.read
        monkeypatch.setattr(trained._runner, "_context", lambda: entered.append(1) or context())
        monkeypatch.setattr(trained._calls, "_context", lambda: entered.append(2) or context())

        def noted_read(counter):
            if counter is trained.train_step:  # Other tests' threads may still read theirs.
                reads.append(1)
            return read(counter)

        monkeypatch.setattr(counters, "read", noted_read)
        trained.run(1)
        assert (entered, reads, fired) == ([], [], [])
        trained.run(1)
        assert (entered, reads, len(fired)) == ([1], [], 1)  # Around the trigger that is due.


def test_a_trigger_of_unknown_kind_is_called_after_every_step_with_the_summary_writer(tmp_path):
    with make(
        tmp_path,
        summary_interval=1_000,
        triggers=[lambda step: tf.summary.scalar("mine", 1.0, step=step)],
    ) as trained:
        with tf.summary.record_if(True):
            for _ in range(3):
                trained.run(1)
    # As within the learner: only where a summary is due.
    assert recorded(tmp_path) == [("before", 0)]
    with make(
        tmp_path / "all",
        summary_interval=1,
        triggers=[lambda step: tf.summary.scalar("mine", 1.0, step=step)],
    ) as trained:
        for _ in range(3):
            trained.run(1)
    assert [step for tag, step in recorded(tmp_path / "all") if tag == "mine"] == [1, 2, 3]


def test_an_agent_that_changes_its_increment_still_gets_its_later_summaries(tmp_path):
    with make(tmp_path, summary_interval=50) as trained:
        trained.run(10)
        trained._agent.train_step_counter.assign(20)  # As another writer of the step might.
        trained.run(40)
    assert recorded(tmp_path) == [("before", 0), ("after", 50), ("before", 50)]


def test_summaries_inside_a_function_of_the_agent_are_not_lost(tmp_path):
    step = tiny_agent.train_step()
    agent = tiny_agent.TinyAgent(step)
    agent._train_fn = tf.function(agent._train)
    with learner.Learner(
        str(tmp_path), step, agent, tiny_agent.dataset, summary_interval=30
    ) as trained:
        trained.run(1)
        trained.run(50)
    assert recorded(tmp_path) == [("before", 0), ("after", 30), ("before", 30)]


def test_an_iterator_given_to_run_is_used_instead_of_the_dataset(tmp_path):
    with make(tmp_path, dataset_fn=None) as trained:
        assert trained._agent.optimizer.variables(), "made from the agent's specs"
        with pytest.raises(ValueError, match="pass an iterator"):
            trained.run()
        iterator = iter(tf.data.Dataset.from_tensors((tiny_agent.experience(5.0), ())).repeat())
        trained.run(3, iterator)
        assert trained.train_step_numpy == 3
        assert trained._agent.weight.numpy() > 0


def test_loss_neither_trains_nor_counts(tmp_path):
    with make(tmp_path, summary_interval=0) as trained:
        assert trained.loss().loss.numpy() == 1.0
        assert trained.loss((tiny_agent.experience(4.0), ())).loss.numpy() == 4.0
        assert trained.train_step_numpy == 0
        assert trained._agent.weight.numpy() == 0.0


def test_samples_may_be_named_tuples_or_experience_alone(tmp_path):
    import collections

    sample = collections.namedtuple("Sample", ["info", "data"])

    def named():
        return tf.data.Dataset.from_tensors(sample((), tiny_agent.experience())).repeat()

    def alone():
        return tf.data.Dataset.from_tensors(tiny_agent.experience()).repeat()

    for name, dataset_fn, kwargs in (
        ("named", named, dict(use_reverb_v2=True)),
        ("alone", alone, dict(direct_sampling=True)),
    ):
        with make(tmp_path / name, dataset_fn=dataset_fn, **kwargs) as trained:
            trained.run(2)
            assert trained.train_step_numpy == 2


def test_the_function_after_each_train_step_sees_sample_and_loss(tmp_path):
    seen = tf.Variable(0.0)

    def after(sample, loss_info):
        (experience, _) = sample
        if loss_info.loss >= 0:  # AutoGraph has to convert this.
            seen.assign_add(experience.reward[0, 0])

    with make(tmp_path, after_train_strategy_step_fn=after) as trained:
        trained.run(6)
    assert seen.numpy() == 6.0


def test_arguments_of_train_may_come_from_the_dataset(tmp_path):
    def dataset():
        sample = (dict(experience=tiny_agent.experience()), ())
        return tf.data.Dataset.from_tensors(sample).repeat()

    with make(tmp_path, dataset_fn=dataset, use_kwargs_in_agent_train=True) as trained:
        trained.run(2)
        assert trained.train_step_numpy == 2


def test_a_dataset_that_ends_is_a_timeout_in_the_callers_words_and_can_be_waited_for_again(
    tmp_path,
):
    with make(
        tmp_path,
        dataset_fn=lambda: tiny_agent.dataset(batches=5),
        sample_timeout_message=lambda: "table 'replay' is empty: start an actor",
    ) as trained:
        with pytest.raises(errors.ReplayTimeoutError, match="table 'replay' is empty") as raised:
            trained.run(10)
        assert isinstance(raised.value.__cause__, tf.errors.OutOfRangeError)
        # The iteration that got no batch may have counted itself before it failed.
        step = int(trained.train_step_numpy)
        assert step in (5, 6)
        trained.run(4)
        assert trained.train_step_numpy == step + 4


def test_without_a_message_the_timeout_says_what_to_look_at(tmp_path):
    with make(tmp_path, dataset_fn=lambda: tiny_agent.dataset(batches=1)) as trained:
        with pytest.raises(errors.ReplayTimeoutError, match=r"ended at train step \d .*writing"):
            trained.run(2)


def test_a_reverb_table_without_items_is_a_timeout(tmp_path):
    server = reverb.Server([reverb.Table.queue("replay", 10)], port=None)
    try:
        shapes = tf.nest.map_structure(lambda t: t.shape[1:], tiny_agent.experience())
        dtypes = tf.nest.map_structure(lambda t: t.dtype, tiny_agent.experience())

        def dataset():
            samples = reverb.TrajectoryDataset(
                f"localhost:{server.port}",
                "replay",
                dtypes=dtypes,
                shapes=shapes,
                max_in_flight_samples_per_worker=2,
                rate_limiter_timeout_ms=50,
            )
            return samples.batch(3).map(lambda sample: (sample.data, ()))

        with make(tmp_path, dataset_fn=dataset) as trained:
            with pytest.raises(errors.ReplayTimeoutError, match="no sample came"):
                trained.run(10)
    finally:
        server.stop()


def test_the_agent_and_the_callers_list_are_left_alone(tmp_path):
    step = tiny_agent.train_step()
    agent = tiny_agent.TinyAgent(step)
    mine = [lambda step: None]
    given = list(mine)
    with learner.Learner(str(tmp_path), step, agent, tiny_agent.dataset, triggers=given) as trained:
        trained.run()
        assert given == mine
        assert trained.triggers[0] is mine[0]
        assert len(trained.triggers) == 2
    assert "train" not in vars(agent)


# Checkpoints.


def test_a_learner_continues_where_another_stopped_with_the_callers_items(tmp_path):
    steps = tf.Variable(0, dtype=tf.int64)
    with make(tmp_path, checkpoint_items={"environment_step": steps}) as first:
        first.run(4)
        steps.assign(77)
        path = first.save_checkpoint()
        assert os.path.basename(path) == "ckpt-4"
        first.run(1)
    later = tf.Variable(0, dtype=tf.int64)
    log = []
    with make(
        tmp_path, checkpoint_items={"environment_step": later}, triggers=[Recorder(log)]
    ) as second:
        assert second.restored_from == path
        assert second.train_step_numpy == 4
        assert later.numpy() == 77
        assert log == [("recorder", "set_start", 4)]
        second.run(1)
        # Optimizer state came along too, so the next step is the same one.
        assert second._agent.weight.numpy() == first._agent.weight.numpy()


def test_a_checkpoint_without_the_callers_items_leaves_them_as_they_are(tmp_path):
    with make(tmp_path) as first:
        first.run(4)
        first.save_checkpoint()
    steps = tf.Variable(12, dtype=tf.int64)
    with make(tmp_path, checkpoint_items={"environment_step": steps}) as second:
        assert second.train_step_numpy == 4
        assert steps.numpy() == 12
        assert os.path.basename(second.save_checkpoint()) == "ckpt-4"


@pytest.mark.parametrize("name", ["agent", "train_step", "not a name"])
def test_items_need_free_names(tmp_path, name):
    with pytest.raises(ValueError, match=name):
        make(tmp_path, checkpoint_items={name: tf.Variable(0)})


def test_checkpoints_are_saved_at_the_interval_and_rotated(tmp_path):
    with make(tmp_path, checkpoint_interval=10, max_checkpoints_to_keep=2) as trained:
        for _ in range(5):
            trained.run(8)
    found = sorted(
        os.path.basename(p) for p in glob.glob(str(tmp_path / "train/checkpoints/*.index"))
    )
    assert found == ["ckpt-16.index", "ckpt-32.index"]


def small_dqn(step):
    reference = tiny_agent.TinyAgent(step)
    network = q_network.QNetwork(
        reference.time_step_spec.observation, reference.action_spec, fc_layer_params=(4,)
    )
    return dqn_agent.DqnAgent(
        reference.time_step_spec,
        reference.action_spec,
        q_network=network,
        optimizer=tf.keras.optimizers.Adam(0.01),
        train_step_counter=step,
    )


def test_a_checkpoint_of_tf_agents_learner_is_continued(tmp_path):
    step = tiny_agent.train_step()
    theirs = tf_agents_learner.Learner(
        str(tmp_path), step, small_dqn(step), tiny_agent.dataset, checkpoint_interval=1
    )
    theirs.run(3)
    step = tiny_agent.train_step()
    with learner.Learner(str(tmp_path), step, small_dqn(step), tiny_agent.dataset) as ours:
        assert ours.train_step_numpy == 3
        for mine, their in zip(ours._agent.policy.variables(), theirs._agent.policy.variables()):
            assert (mine.numpy() == their.numpy()).all()
        ours.run(5)
        theirs.run(5)
        for mine, their in zip(ours._agent.policy.variables(), theirs._agent.policy.variables()):
            assert mine.numpy() == pytest.approx(their.numpy(), rel=1e-4)


# Distribution strategies.


def test_runs_on_one_device(tmp_path):
    strategy = tf.distribute.OneDeviceStrategy("/cpu:0")
    with strategy.scope():
        step = tiny_agent.train_step()
        with make(tmp_path, step=step, strategy=strategy) as trained:
            loss = trained.run(3)
            trained.run(20)
            assert trained.train_step_numpy == 23
            assert loss.extra["batch"].numpy() == tiny_agent.BATCH
            assert trained._calls.quiet_loop.trace_count == 1
