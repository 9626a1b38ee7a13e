"""Unrolls, from actors through a real Reverb queue to batches: every step once, in order."""

import threading
import time

import numpy as np
import pytest
import tensorflow as tf
from tf_agents.policies import tf_policy
from tf_agents.specs import tensor_spec
from tf_agents.trajectories import policy_step
from tf_agents.trajectories import trajectory as trajectory_lib

from actor_learner import experience
from actor_learner.acting import actor
from actor_learner.environments import gymnasium as gymnasium_environment
from actor_learner.replay.layouts import unroll_layout
from actor_learner.replay.reading import version_limit
from actor_learner.replay.server import server
from actor_learner.replay.streams import apart, lane_replay, sample_stream, unroll_queue
from actor_learner.replay.writing import unroll_observer
from actor_learner.support import errors
from tests import counting_environment
from tests.naming.eventually import eventually

FIRST, MID, LAST = 0, 1, 2


class NoisyPolicy(tf_policy.TFPolicy):
    """Acts at random; every lane's state is a pair of its own last noise and its own step count."""

    def __init__(self, time_step_spec, action_spec, with_state=True):
        state_spec = {"noise": tf.TensorSpec([], tf.float32), "count": tf.TensorSpec([2], tf.int32)}
        info_spec = {experience.LOG_PROBABILITY: tf.TensorSpec([], tf.float32)}
        if with_state:
            info_spec[experience.STATE] = state_spec
        super().__init__(
            time_step_spec, action_spec, policy_state_spec=state_spec, info_spec=info_spec
        )
        self._with_state = with_state

    def _variables(self):
        return []

    def _action(self, time_step, policy_state, seed):
        noise = tf.random.uniform(tf.shape(time_step.step_type))
        info = {experience.LOG_PROBABILITY: -noise}
        if self._with_state:
            info[experience.STATE] = policy_state
        state = {"noise": noise, "count": policy_state["count"] + 1}
        return policy_step.PolicyStep(tf.cast(noise * 2, tf.int64), state, info)

    def _distribution(self, time_step, policy_state):
        raise NotImplementedError


class Stream:
    """An actor in counting environments, writing through a queue into a server."""

    def __init__(self, queue, lanes, with_state=True, replay_server=None, **env_kwargs):
        self.env = gymnasium_environment.GymnasiumEnvironment(
            counting_environment.ENV_ID, lanes, vectorization="sync", make_kwargs=env_kwargs
        )
        time_step_spec = tensor_spec.from_spec(self.env.time_step_spec())
        action_spec = tensor_spec.from_spec(self.env.action_spec())
        self.policy = NoisyPolicy(time_step_spec, action_spec, with_state)
        self.queue = queue
        self.experience = sample_stream.Experience(
            self.policy.trajectory_spec, lanes, n_step=1, gamma=0.9
        )
        self.server = replay_server or server.ReplayServer(queue.tables(self.experience))
        self._owns_server = replay_server is None
        self.version = 0
        self.observer = queue.observer(
            self.experience, self.server.client(), version=lambda: self.version
        )
        self.seen = []  # Every step, by the actor's other way to observers.
        self._actor = None

    def collect(self, group_steps):
        if self._actor is None:
            self._actor = actor.Actor(
                self.env,
                self.policy,
                tf.Variable(0, dtype=tf.int64),
                group_steps_per_run=1,
                observers=[self.seen.append],
                transition_observers=[self.observer],
            )
        for _ in range(group_steps):
            self._actor.run()

    def iterator(self, timeout_seconds=10.0, **options):
        dataset = self.queue.dataset(
            self.experience, self.server.address, 64, timeout_seconds, **options
        )
        return dataset.as_numpy_iterator()

    def steps(self):
        """What happened, leaves `[lanes, steps, ...]`."""
        return tf.nest.map_structure(lambda *leaves: np.stack(leaves, axis=1), *self.seen)

    def close(self):
        self.observer.close()
        if self._owns_server:
            self.server.stop()
        self.env.close()


@pytest.fixture
def make_stream():
    streams = []

    def make(*args, **kwargs):
        streams.append(Stream(*args, **kwargs))
        return streams[-1]

    yield make
    for stream in reversed(streams):
        stream.close()


def assert_unroll_is(unroll, steps, begin, length):
    """Compares an unroll with rows `begin` to `begin + length` of what happened."""
    expected = tf.nest.map_structure(lambda leaf: leaf[:, begin : begin + length], steps)
    info = dict(expected.policy_info)
    state = info.pop(experience.STATE, ())
    expected = expected._replace(policy_info=info)
    tf.nest.map_structure(
        lambda got, want: np.testing.assert_array_equal(got[:, :length], want),
        unroll.trajectory,
        expected,
    )
    tf.nest.map_structure(
        lambda got, want: np.testing.assert_array_equal(got, want[:, 0]), unroll.state, state
    )
    after = begin + length
    for got, want in (
        (unroll.trajectory.observation[:, length], steps.observation[:, after]),
        (unroll.trajectory.step_type[:, length], steps.step_type[:, after]),
    ):
        np.testing.assert_array_equal(got, want)
    for leaf in (unroll.trajectory.reward, unroll.trajectory.discount, unroll.trajectory.action):
        assert not leaf[:, length].any()


@pytest.mark.parametrize("lanes, with_state", [(1, True), (3, True), (3, False)])
def test_every_step_is_delivered_once_in_order(make_stream, lanes, with_state):
    stream = make_stream(
        unroll_queue.UnrollQueue(4, max_queued_batches=10),
        lanes,
        with_state,
        episode_lengths=(2, 5, 1),
        endings=("terminated", "truncated", "both"),
    )
    stream.collect(37)
    stream.observer.flush()
    assert stream.observer.items_written == 9
    steps = stream.steps()
    # The actor's other way is right about what is stored: rewards count up within episodes.
    playing = steps.step_type != LAST
    np.testing.assert_array_equal(steps.reward[playing], (steps.observation[..., 1] + 1)[playing])
    assert {FIRST, MID, LAST} == set(steps.step_type.ravel())
    iterator = stream.iterator()
    for number in range(9):
        unroll, _ = next(iterator)
        assert unroll.trajectory.observation.shape == (lanes, 5, 2)
        assert_unroll_is(unroll, steps, 4 * number, 4)
    assert stream.server.info().tables["unrolls"].size == 0


def test_a_batch_joins_several_unrolls_in_order(make_stream):
    queue = unroll_queue.UnrollQueue(3, unrolls_per_batch=6, max_queued_batches=2)
    stream = make_stream(queue, 2, episode_lengths=(4,))
    assert queue.group_steps_per_update(stream.experience, 64) == 9
    assert queue.num_transitions(stream.experience, 5) == 30
    stream.collect(18 + 1)
    stream.observer.flush()
    steps = stream.steps()
    iterator = stream.iterator()
    for number in range(2):
        unroll, info = next(iterator)
        assert unroll.trajectory.reward.shape == (6, 4)
        assert info.key.shape == (6,) and len(set(info.key)) == 3
        for part in range(3):
            lanes = slice(2 * part, 2 * part + 2)
            one = tf.nest.map_structure(lambda leaf, lanes=lanes: leaf[lanes], unroll)
            assert_unroll_is(one, steps, 9 * number + 3 * part, 3)


def test_shapes_are_static_for_the_learners_graph(make_stream):
    stream = make_stream(unroll_queue.UnrollQueue(3, unrolls_per_batch=4), 2)
    dataset = stream.queue.dataset(stream.experience, stream.server.address, 64, 1.0)
    unroll, info = dataset.element_spec
    assert unroll.trajectory.observation.shape == [4, 4, 2]
    assert unroll.trajectory.policy_info["log_probability"].shape == [4, 4]
    assert unroll.state["count"].shape == [4, 2]
    assert {leaf.shape[0] for leaf in tf.nest.flatten(info)} == {4}


@pytest.mark.parametrize("ending, discount", [("terminated", 0.0), ("truncated", 1.0)])
def test_an_unroll_that_ends_an_episode_bootstraps_from_the_final_observation(
    make_stream, ending, discount
):
    stream = make_stream(unroll_queue.UnrollQueue(3), 2, episode_lengths=(3,), endings=(ending,))
    stream.collect(6)
    iterator = stream.iterator()
    first, _ = next(iterator)
    second, _ = next(iterator)
    for lane in range(2):
        rows = first.trajectory
        assert rows.observation[lane].tolist() == [[0, 0], [0, 1], [0, 2], [0, 3]]
        assert rows.step_type[lane].tolist() == [FIRST, MID, MID, LAST]
        assert rows.next_step_type[lane, :3].tolist() == [MID, MID, LAST]
        assert rows.reward[lane, :3].tolist() == [1, 2, 3]
        assert rows.discount[lane, :3].tolist() == [1, 1, discount]
        rows = second.trajectory  # Begins with the boundary step to the next episode.
        assert rows.observation[lane].tolist() == [[0, 3], [1, 0], [1, 1], [1, 2]]
        assert rows.step_type[lane].tolist() == [LAST, FIRST, MID, MID]
        assert rows.reward[lane, 1:3].tolist() == [1, 2]


def test_the_unroll_is_in_the_queue_before_the_next_action_is_chosen(make_stream):
    stream = make_stream(unroll_queue.UnrollQueue(5), 2)
    stream.collect(4)
    assert stream.observer.items_written == 0
    stream.collect(1)
    assert stream.observer.items_written == 1
    stream.observer.flush()
    assert stream.server.info().tables["unrolls"].size == 1


def test_each_unroll_carries_the_version_of_its_first_row(make_stream):
    stream = make_stream(unroll_queue.UnrollQueue(3), 2)
    iterator = stream.iterator()
    for version in (7, 8):
        stream.version = version
        stream.collect(1)
        stream.version = 100
        stream.collect(2)
        _, info = next(iterator)
        assert info.version.tolist() == [version, version]


def test_several_actors_share_a_queue_and_the_learner_gets_all_they_did(make_stream):
    queue = unroll_queue.UnrollQueue(3, max_queued_batches=2)
    streams = [make_stream(queue, 2, episode_lengths=(100,))]
    streams.append(make_stream(queue, 2, episode_lengths=(100,), replay_server=streams[0].server))
    iterator = streams[0].iterator()
    failures = []

    def act(number):
        try:
            streams[number].version = number
            streams[number].collect(3 * 12 + 1)
        except BaseException as error:  # noqa: BLE001 - reported by the test's own thread.
            failures.append(error)

    threads = [threading.Thread(target=act, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    taken = [0, 0]
    unrolls = [[], []]
    for _ in range(24):
        unroll, info = next(iterator)
        unrolls[info.version[0]].append(unroll)
        taken[info.version[0]] += 1
    for thread in threads:
        thread.join(30)
    assert not failures and taken == [12, 12]
    for number in range(2):
        steps = streams[number].steps()
        for index, unroll in enumerate(unrolls[number]):
            assert_unroll_is(unroll, steps, 3 * index, 3)


def test_a_full_queue_makes_the_actor_wait_and_say_for_whom_but_loses_nothing(make_stream):
    queue = unroll_queue.UnrollQueue(2, max_queued_batches=1, timeout_seconds=2.0)
    stream = make_stream(queue, 2, episode_lengths=(100,))
    with pytest.raises(errors.ReplayTimeoutError) as error:
        stream.collect(6)  # One in the queue, one on its way, one too many.
    message = str(error.value)
    assert "an actor has waited 2 s" in message and "The learner takes them out" in message
    assert "table 'unrolls': 1 of 1 items" in message and "inserting waits" in message
    iterator = stream.iterator()
    observations = [next(iterator)[0].trajectory.observation[0, :, 1] for _ in range(3)]
    assert [rows.tolist() for rows in observations] == [[0, 1, 2], [2, 3, 4], [4, 5, 6]]


def test_closing_does_not_wait_for_room_in_the_queue(make_stream):
    queue = unroll_queue.UnrollQueue(1, max_in_flight_items=5, max_queued_batches=1)
    stream = make_stream(queue, 2)
    stream.collect(4)
    eventually(lambda: stream.server.info().tables["unrolls"].size == 1, "the first is there")
    stream.observer.close()
    stream.observer.close()
    assert stream.server.info().tables["unrolls"].size == 1


def test_an_unfinished_unroll_is_dropped_when_the_environment_is_reset_from_outside(make_stream):
    stream = make_stream(unroll_queue.UnrollQueue(3), 2, episode_lengths=(10,))
    stream.collect(2)
    stream._actor = None  # Another actor on the same environment and observer resets it.
    stream.collect(3)
    unroll, _ = next(stream.iterator())
    assert unroll.trajectory.observation[0].tolist() == [[1, 0], [1, 1], [1, 2], [1, 3]]


def test_reset_drops_an_unfinished_unroll(make_stream):
    stream = make_stream(unroll_queue.UnrollQueue(2), 1, episode_lengths=(10,))
    stream.collect(1)
    stream.observer.reset()
    stream.collect(2)
    unroll, _ = next(stream.iterator())
    assert unroll.trajectory.observation[0, :, 1].tolist() == [1, 2, 3]


def test_a_queue_that_is_empty_while_nobody_asks_does_not_end_the_dataset(make_stream):
    stream = make_stream(unroll_queue.UnrollQueue(1), 1)
    iterator = stream.iterator(timeout_seconds=0.2)
    stream.collect(1)
    stream.observer.flush()
    next(iterator)
    time.sleep(0.4)  # Reverb's own timeout runs out: nothing else would show the difference.
    stream.collect(1)
    stream.observer.flush()
    next(iterator)
    with pytest.raises(StopIteration):
        next(iterator)


def test_unrolls_taken_out_in_advance_survive_the_time_that_nobody_asks(make_stream):
    queue = unroll_queue.UnrollQueue(1, prefetch=4, max_queued_batches=8)
    stream = make_stream(queue, 1, episode_lengths=(100,))
    stream.collect(6)
    stream.observer.flush()
    iterator = stream.iterator(timeout_seconds=0.2)
    counts = [next(iterator)[0].trajectory.observation[0, 0, 1]]
    time.sleep(0.4)  # As above.
    counts += [next(iterator)[0].trajectory.observation[0, 0, 1] for _ in range(5)]
    assert counts == [0, 1, 2, 3, 4, 5]


def test_unrolls_of_too_old_a_policy_are_dropped_when_their_turn_comes(make_stream):
    queue = unroll_queue.UnrollQueue(1, max_queued_batches=20)
    stream = make_stream(queue, 2, episode_lengths=(100,))
    train_step = tf.Variable(5, dtype=tf.int64)
    limit = version_limit.VersionLimit(train_step, max_lag=2)
    for stream.version in (2, 3, 4, 5, 6, 3, 7):
        stream.collect(1)
    stream.observer.flush()
    iterator = stream.iterator(limit=limit)

    def next_version():
        unroll, info = next(iterator)
        assert info.version.tolist() == [info.version[0]] * 2
        return info.version[0]

    assert next_version() == 3 and limit.dropped == 1
    assert next_version() == 4
    train_step.assign(8)  # What lies ready by now is judged by this step.
    assert next_version() == 6 and limit.dropped == 2
    assert next_version() == 7 and limit.dropped == 3


def image_spec():
    observation = {
        "image": tensor_spec.BoundedTensorSpec([32, 32], tf.uint8, 0, 255),
        "speed": tf.TensorSpec([3], tf.float32),
    }
    scalar = tf.TensorSpec([], tf.float32)
    kind = tf.TensorSpec([], tf.int32)
    return trajectory_lib.Trajectory(kind, observation, scalar, (), kind, scalar, scalar)


def test_large_fields_keep_a_column_of_their_own():
    layout = unroll_layout.UnrollLayout(image_spec(), num_lanes=2, unroll_length=3)
    signature = layout.signature()
    assert signature["observation/image"].shape == [2, 4, 32, 32]
    columns, views = layout.buffers()
    generator = np.random.default_rng(0)
    for view in views:
        view[...] = generator.integers(0, 100, view.shape)
    unroll = layout.unpack({name: tf.constant(column)[None] for name, column in columns.items()})
    assert unroll.state == ()
    for leaf, view in zip(tf.nest.flatten(unroll.trajectory), views):
        np.testing.assert_array_equal(leaf, view)


def test_a_table_for_other_data_is_refused_before_anything_is_written(make_stream):
    stream = make_stream(unroll_queue.UnrollQueue(3), 2)
    spec = stream.experience.data_spec
    other = spec._replace(observation=tensor_spec.BoundedTensorSpec([5], tf.float32, 0, 1))
    client = stream.server.client()
    for data_spec, lanes, length in ((other, 2, 3), (spec, 3, 3), (spec, 2, 4)):
        with pytest.raises(errors.SpecMismatchError, match="holds other data"):
            layout = unroll_layout.UnrollLayout(data_spec, lanes, length)
            unroll_observer.UnrollObserver(client, "unrolls", layout)
    with pytest.raises(errors.ReplayError, match="no table 'elsewhere'; it has 'unrolls'"):
        layout = unroll_layout.UnrollLayout(spec, 2, 3)
        unroll_observer.UnrollObserver(client, "elsewhere", layout)


def test_steps_that_break_their_spec_are_refused_naming_the_field(make_stream):
    stream = make_stream(unroll_queue.UnrollQueue(3), 2)
    step = stream.env.reset()
    info = {
        "log_probability": np.zeros(2, np.float32),
        "state": {"noise": np.zeros(2, np.float32), "count": np.zeros((2, 2), np.int32)},
    }
    action = np.zeros(2, np.int64)
    observe = stream.observer
    wrong = step._replace(observation=np.zeros((2, 3), np.float32))
    with pytest.raises(errors.SpecMismatchError, match="field 'observation'"):
        observe((wrong, policy_step.PolicyStep(action, (), info), step))
    without_state = {"log_probability": info["log_probability"]}
    with pytest.raises(errors.SpecMismatchError, match="no key 'state'"):
        observe((step, policy_step.PolicyStep(action, (), without_state), step))
    other_state = {**info, "state": {**info["state"], "noise": np.zeros(2, np.float64)}}
    with pytest.raises(errors.SpecMismatchError, match="float64"):
        observe((step, policy_step.PolicyStep(action, (), other_state), step))
    observe((step, policy_step.PolicyStep(action, (), info), step))


def test_a_batch_that_is_no_whole_number_of_unrolls_of_all_lanes_is_refused():
    stream_experience = sample_stream.Experience(image_spec(), 4, 1, 0.9)
    queue = unroll_queue.UnrollQueue(8, unrolls_per_batch=6)
    for ask in (
        lambda: queue.tables(stream_experience),
        lambda: queue.group_steps_per_update(stream_experience, 64),
    ):
        with pytest.raises(errors.ConfigError, match="6, not a multiple of the actor's 4 lanes"):
            ask()


@pytest.mark.parametrize(
    "name", ["unroll_length", "unrolls_per_batch", "max_queued_batches", "prefetch"]
)
def test_sizes_below_one_are_configuration_errors(name):
    with pytest.raises(errors.ConfigError, match=f"UnrollQueue.{name}"):
        unroll_queue.UnrollQueue(**{name: 0})


def test_several_learners_share_a_batch_and_take_nothing_before_they_ask(make_stream):
    queue = unroll_queue.UnrollQueue(2, unrolls_per_batch=8, max_queued_batches=3)
    stream = make_stream(queue, 2, episode_lengths=(100,))
    stream.collect(2 * 12)
    stream.observer.flush()
    stream.queue = queue.for_learners(2, stream.experience)
    learners = [stream.iterator(seconds) for seconds in (10.0, None)]
    left, keys, begins = 12, [], []
    time.sleep(0.2)  # Nothing shows that nobody takes anything.
    assert stream.server.info().tables["unrolls"].size == left
    for number in (0, 0, 1, 0, 1, 1):  # In no order, as learners that do not wait for one another.
        unroll, info = next(learners[number])
        left -= 2
        keys += info.key[::2].tolist()
        begins += unroll.trajectory.observation[::2, 0, 1].tolist()
        assert unroll.trajectory.observation.shape == (4, 3, 2)
        assert stream.server.info().tables["unrolls"].size == left
    assert len(set(keys)) == 12 and begins == list(range(0, 24, 2))


def test_a_learner_that_drops_an_unroll_takes_just_one_in_its_place(make_stream):
    queue = unroll_queue.UnrollQueue(1, unrolls_per_batch=4, max_queued_batches=3)
    stream = make_stream(queue, 1, episode_lengths=(100,))
    for stream.version in (5, 5, 0, 5, 5):
        stream.collect(1)
    stream.observer.flush()
    stream.queue = queue.for_learners(2, stream.experience)
    limit = version_limit.VersionLimit(tf.Variable(6, dtype=tf.int64), max_lag=1)
    learner = stream.iterator(limit=limit)
    next(learner)
    assert limit.dropped == 0
    _, info = next(learner)
    assert info.version.tolist() == [5, 5] and limit.dropped == 1
    assert stream.server.info().tables["unrolls"].size == 0
    limit.note_dropped(3)
    assert limit.dropped == 4


@pytest.mark.parametrize("groups", [1, 2])
def test_a_batch_that_learners_cannot_share_is_refused_with_one_that_they_can(groups):
    flowing = sample_stream.Experience(None, 4, n_step=1, gamma=0.9, num_groups=groups)
    told = f"--learners=3: a batch is {groups} item.*a multiple of {3 * 4 * groups}"
    with pytest.raises(errors.ConfigError, match=told):
        unroll_queue.UnrollQueue(2).for_learners(3, flowing)
    enough = unroll_queue.UnrollQueue(2, unrolls_per_batch=3 * 4 * groups)
    assert enough.for_learners(3, flowing).cells_per_batch(flowing) == 3 * groups
    apart_ = apart.Apart(unroll_queue.UnrollQueue(2), 6).for_run("a" * 32)
    flowing = sample_stream.Experience(None, 6, n_step=1, gamma=0.9)
    assert apart_.for_learners(3, flowing).table_name == apart_.table_name
    with pytest.raises(errors.ConfigError, match="a multiple of 4"):
        apart_.for_learners(4, flowing)


def test_other_streams_that_hand_out_every_item_once_must_say_how_learners_share_it():
    with pytest.raises(errors.ConfigError, match="LaneReplay.*no for_learners"):
        lane_replay.LaneReplay().for_learners(2, None)
