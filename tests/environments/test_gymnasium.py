import gin
import gymnasium
import numpy as np
import pytest
import tensorflow as tf
from gymnasium import spaces
from tf_agents.specs import array_spec

from actor_learner.environments import seeding
from actor_learner.environments.gymnasium import GymnasiumEnvironment
from actor_learner.support import errors
from tests import counting_environment
from tests.environments import sample_environments

F, M, L = 0, 1, 2

# Episodes of 2, 3, 2, 3, ... steps that end terminated, truncated, both, terminated, ...
EXPECTED = [  # (episode, step), reward, step_type, discount
    ((0, 0), 0.0, F, 1.0),
    ((0, 1), 1.0, M, 1.0),
    ((0, 2), 2.0, L, 0.0),
    ((1, 0), 0.0, F, 1.0),
    ((1, 1), 1.0, M, 1.0),
    ((1, 2), 2.0, M, 1.0),
    ((1, 3), 3.0, L, 1.0),
    ((2, 0), 0.0, F, 1.0),
    ((2, 1), 1.0, M, 1.0),
    ((2, 2), 2.0, L, 0.0),
    ((3, 0), 0.0, F, 1.0),
]
COUNTING = {"episode_lengths": (2, 3), "endings": ("terminated", "truncated", "both")}


def _run(env, num_steps):
    action = tf.nest.map_structure(
        lambda spec: np.zeros((env.batch_size, *spec.shape), spec.dtype), env.action_spec()
    )
    return [env.reset(), *(env.step(action) for _ in range(num_steps))]


def _rows(time_steps, lane):
    return [
        (
            tuple(t.observation[lane].tolist()),
            float(t.reward[lane]),
            int(t.step_type[lane]),
            pytest.approx(float(t.discount[lane])),
        )
        for t in time_steps
    ]


@pytest.mark.parametrize("vectorization", ["sync", "async"])
@pytest.mark.parametrize("num_envs", [1, 4])
def test_every_lane_gives_the_steps_of_its_episodes_in_order(vectorization, num_envs):
    with GymnasiumEnvironment(
        "CountingEnv-v0", num_envs, vectorization=vectorization, make_kwargs=COUNTING
    ) as env:
        time_steps = _run(env, len(EXPECTED) - 1)

    for lane in range(num_envs):
        assert _rows(time_steps, lane) == EXPECTED


@pytest.mark.parametrize("vectorization", ["sync", "async"])
def test_lanes_that_end_at_different_times_do_not_disturb_one_another(vectorization):
    lengths = [1 + lane_seed % 4 for lane_seed in seeding.lane_seeds(5, 4)]
    assert len(set(lengths)) > 1

    with GymnasiumEnvironment(
        sample_environments.SeededLengthEnv, 4, vectorization=vectorization, seed=5
    ) as env:
        time_steps = _run(env, 9)

    for lane, length in enumerate(lengths):
        expected = []
        for episode in range(10):
            expected.append(((episode, 0), 0.0, F, 1.0))
            expected += [((episode, t), float(t), M, 1.0) for t in range(1, length)]
            expected.append(((episode, length), float(length), L, 0.0))
        assert _rows(time_steps, lane) == expected[:10]


def test_the_discount_applies_to_all_but_first_and_terminated_steps():
    with GymnasiumEnvironment("CountingEnv-v0", make_kwargs=COUNTING, discount=0.5) as env:
        discounts = [float(t.discount[0]) for t in _run(env, 8)]

    assert discounts == [1.0, 0.5, 0.0, 1.0, 0.5, 0.5, 0.5, 1.0, 0.5]


def test_native_cartpole_has_the_same_boundaries_as_its_flags_say():
    with GymnasiumEnvironment("CartPole-v1", 4, seed=1) as env:
        assert env.vectorization == "native"
        time_steps = _run(env, 60)

    step_type = np.stack([t.step_type for t in time_steps])  # [steps, lanes]
    discount = np.stack([t.discount for t in time_steps])
    reward = np.stack([t.reward for t in time_steps])
    angle = np.stack([np.abs(t.observation[:, 2]) for t in time_steps])
    fallen = angle > 12 * 2 * np.pi / 360
    assert fallen.any(axis=0).all()
    np.testing.assert_array_equal(step_type == L, fallen)
    np.testing.assert_array_equal(discount, np.where(fallen, 0.0, 1.0))
    np.testing.assert_array_equal(step_type[1:] == F, step_type[:-1] == L)
    np.testing.assert_array_equal(reward, np.where(step_type == F, 0.0, 1.0))
    assert np.all(np.abs(np.stack([t.observation for t in time_steps]))[step_type == F] <= 0.05)


@pytest.mark.parametrize("vectorization", ["sync", "native"])
def test_a_time_limit_keeps_the_discount_and_the_true_final_observation(vectorization):
    with (
        GymnasiumEnvironment(
            "CartPole-v1", 2, vectorization=vectorization, max_episode_steps=3, seed=0
        ) as limited,
        GymnasiumEnvironment("CartPole-v1", 2, vectorization=vectorization, seed=0) as unlimited,
    ):
        short, long = _run(limited, 4), _run(unlimited, 4)

    assert [t.step_type.tolist() for t in short] == [[F, F], [M, M], [M, M], [L, L], [F, F]]
    assert [t.discount.tolist() for t in short] == [[1.0, 1.0]] * 5
    assert long[3].step_type.tolist() == [M, M]
    np.testing.assert_array_equal(short[3].observation, long[3].observation)


@pytest.mark.parametrize("vectorization", ["sync", "async"])
def test_all_six_kinds_of_space_arrive_with_the_specs_dtypes(vectorization):
    with GymnasiumEnvironment(
        sample_environments.AllSpacesEnv, 2, vectorization=vectorization, seed=0
    ) as env:
        spec = array_spec.add_outer_dims_nest(env.time_step_spec(), (2,))
        time_steps = _run(env, 6)

    for time_step in time_steps:
        tf.nest.map_structure(_assert_matches, time_step, spec)
    assert not np.array_equal(
        time_steps[0].observation["box"][0], time_steps[0].observation["box"][1]
    )


def _assert_matches(array, spec):
    assert spec.check_array(array), (array, spec)
    if isinstance(spec, array_spec.BoundedArraySpec):
        assert np.all(array >= spec.minimum) and np.all(array <= spec.maximum)


def test_actions_reach_each_lane_with_start_added():
    with GymnasiumEnvironment(sample_environments.AllSpacesEnv, 2, vectorization="sync") as env:
        env.reset()
        env.step(
            {
                "box": np.array([[0.0, 0.5], [1.0, -1.0]], np.float32),
                "discrete": np.array([0, 2]),
                "multi_discrete": np.array([[0, 0], [1, 3]]),
                "multi_binary": np.array([[0, 1, 0], [1, 1, 1]], np.int8),
                "tuple": (np.array([0, 1]), np.array([0.0, 1.0], np.float32)),
            }
        )
        first, second = (lane.unwrapped.actions[0] for lane in env.vector_env.envs)

    assert (first["discrete"], second["discrete"]) == (5, 7)
    assert first["multi_discrete"].tolist() == [-1, 10]
    assert second["multi_discrete"].tolist() == [0, 13]
    assert second["box"].tolist() == [1.0, -1.0]
    assert second["tuple"] == (1, 1.0)


def test_unsupported_spaces_are_refused_before_lanes_are_started():
    class TextEnv(counting_environment.CountingEnv):
        def __init__(self):
            super().__init__()
            self.observation_space = spaces.Text(3)

    for vectorization in ("sync", "async"):
        with pytest.raises(errors.SpecMismatchError, match="observation is Text.*Transform"):
            GymnasiumEnvironment(TextEnv, 2, vectorization=vectorization)


@pytest.mark.parametrize("vectorization", ["sync", "async", "native"])
def test_lanes_have_seeds_of_their_own_that_reproduce(vectorization):
    with GymnasiumEnvironment("CartPole-v1", 3, vectorization=vectorization, seed=7) as env:
        first = env.reset().observation
        unseeded = env.reset().observation
        env.seed(7)
        again = env.reset().observation
        env.seed(8)
        other = env.reset().observation

    assert len({tuple(row) for row in first.tolist()}) == 3
    np.testing.assert_array_equal(first, again)
    assert not np.any(first == unseeded)
    assert not np.any(first == other)


def test_lane_seeds_are_those_of_the_seed_sequence():
    with GymnasiumEnvironment("CartPole-v1", 2, vectorization="sync", seed=7) as env:
        observation = env.reset().observation

    for lane, lane_seed in enumerate(np.random.SeedSequence(7).generate_state(2)):
        expected, _ = gymnasium.make("CartPole-v1").reset(seed=int(lane_seed))
        np.testing.assert_array_equal(observation[lane], expected)


@pytest.mark.parametrize("seed", [-1, 1.5, "7", True])
def test_seeds_must_be_whole_numbers(seed):
    with pytest.raises(errors.ConfigError, match="seed is"):
        GymnasiumEnvironment("CartPole-v1", seed=seed)


@pytest.mark.parametrize(
    "env_id, vectorization",
    [("CountingEnv-v0", "sync"), ("CountingEnv-v0", "async"), ("CartPole-v1", "native")],
)
def test_time_steps_are_never_written_again(env_id, vectorization):
    with GymnasiumEnvironment(env_id, 2, vectorization=vectorization) as env:
        env.reset()
        kept, copies = [], []
        for _ in range(20):
            time_step = env.step(np.zeros(2, np.int64))
            kept.append(time_step)
            copies.append(tf.nest.map_structure(np.copy, time_step))

    for time_step, copy in zip(kept, copies):
        tf.nest.map_structure(np.testing.assert_array_equal, time_step, copy)


def test_auto_is_native_only_where_nothing_prevents_it():
    def choice(*args, **kwargs):
        with GymnasiumEnvironment(*args, **kwargs) as env:
            return env.vectorization

    assert choice("CartPole-v1", 2) == "native"
    assert choice("CartPole-v1", 2, max_episode_steps=9) == "native"
    assert choice("CartPole-v1") == "sync"  # One lane of the native environment costs as ten do.
    assert choice("CartPole-v1", vectorization="native") == "native"
    assert choice("CartPole-v1", max_episode_steps=0) == "sync"
    assert choice("CartPole-v1", wrappers=["FlattenObservation"]) == "sync"
    assert choice("CountingEnv-v0") == "sync"
    assert choice(counting_environment.CountingEnv) == "sync"


@pytest.mark.parametrize(
    "args, message",
    [
        ({"env_id": "CountingEnv-v0", "vectorization": "native"}, "no vector_entry_point"),
        (
            {
                "env_id": "CartPole-v1",
                "vectorization": "native",
                "wrappers": ["FlattenObservation"],
            },
            "wrappers apply to single environments",
        ),
        ({"env_id": "CartPole-v1", "vectorization": "parallel"}, "'parallel': choose one of auto"),
        ({"env_id": "CartPole-v1", "num_envs": 0}, "num_envs is 0"),
        ({"env_id": "CartPole-v1", "discount": 1.5}, "discount is 1.5"),
        ({"env_id": "CartPole-v1", "step_timeout_seconds": 0}, "step_timeout_seconds is 0"),
        ({"env_id": "CartPol-v1"}, "did you mean CartPole-v1"),
    ],
)
def test_what_cannot_be_done_is_refused_at_once(args, message):
    with pytest.raises(errors.ConfigError, match=message):
        GymnasiumEnvironment(**args)


def test_a_callable_must_make_a_new_environment_for_each_lane():
    one = counting_environment.CountingEnv()

    with pytest.raises(errors.ConfigError, match="same environment twice"):
        GymnasiumEnvironment(lambda: one, 2)


def test_vector_environments_with_another_autoreset_mode_are_refused():
    class SameStep(gymnasium.envs.classic_control.cartpole.CartPoleVectorEnv):
        metadata = {"autoreset_mode": gymnasium.vector.AutoresetMode.SAME_STEP}

    gymnasium.register("SameStep-v0", vector_entry_point=SameStep, max_episode_steps=5)
    try:
        with pytest.raises(errors.ConfigError, match="SameStep-v0.*SAME_STEP.*only NEXT_STEP"):
            GymnasiumEnvironment("SameStep-v0", 2, vectorization="native")
    finally:
        del gymnasium.registry["SameStep-v0"]


def test_the_first_step_without_reset_resets():
    with GymnasiumEnvironment("CountingEnv-v0", 2) as env:
        assert env.step(np.zeros(2, np.int64)).step_type.tolist() == [F, F]


def test_reset_in_the_middle_of_episodes_resets_all_lanes():
    with GymnasiumEnvironment("CountingEnv-v0", 2, make_kwargs={"episode_lengths": (1, 5)}) as env:
        env.reset()
        env.step(np.zeros(2, np.int64))  # Both lanes have ended.
        time_step = env.reset()
        following = env.step(np.zeros(2, np.int64))

    assert time_step.step_type.tolist() == [F, F]
    assert time_step.observation.tolist() == [[1.0, 0.0], [1.0, 0.0]]
    assert following.step_type.tolist() == [M, M]


def test_wrong_numbers_of_actions_are_refused():
    with GymnasiumEnvironment("CartPole-v1", 2) as env:
        env.reset()
        with pytest.raises(errors.SpecMismatchError, match=r"shape \(3,\).*expects \(2,\)"):
            env.step(np.zeros(3, np.int64))


def test_exceptions_of_an_environment_say_which_and_keep_their_cause():
    with GymnasiumEnvironment(sample_environments.RaisingEnv, 2) as env:
        env.reset()
        with pytest.raises(errors.EnvironmentError, match="RaisingEnv.*planted mistake") as caught:
            env.step(np.array([0, 1]))

    assert isinstance(caught.value.__cause__, ZeroDivisionError)


@pytest.mark.parametrize("vectorization", ["sync", "async"])
def test_info_is_that_of_the_last_step(vectorization):
    with GymnasiumEnvironment("CountingEnv-v0", 2, vectorization=vectorization) as env:
        env.reset()
        env.step(np.zeros(2, np.int64))
        env.step(np.zeros(2, np.int64))

        assert env.get_info()["step"].tolist() == [2, 2]


@pytest.mark.parametrize("vectorization", ["sync", "async"])
def test_render_gives_the_frame_of_the_first_lane(vectorization):
    with GymnasiumEnvironment(
        "CountingEnv-v0",
        2,
        vectorization=vectorization,
        make_kwargs={"render_mode": "rgb_array"},
    ) as env:
        env.reset()
        env.step(np.zeros(2, np.int64))
        frame = env.render()

    assert frame.shape == (8, 8, 3)
    assert np.all(frame == 1)


def test_native_environments_render_their_first_lane():
    with GymnasiumEnvironment("CartPole-v1", 2, render_mode="rgb_array") as env:
        env.reset()
        frame = env.render()

    assert (frame.shape, frame.dtype) == ((400, 600, 3), np.uint8)


def test_render_without_a_render_mode_says_how_to_get_frames():
    with GymnasiumEnvironment("CountingEnv-v0") as env:
        env.reset()
        with pytest.raises(errors.ConfigError, match="needs it made with render_mode='rgb_array'"):
            env.render()


def test_close_may_be_repeated_and_ends_use():
    env = GymnasiumEnvironment("CountingEnv-v0")
    env.reset()
    env.close()
    env.close()

    for call in (env.reset, env.render, lambda: env.step(np.zeros(1, np.int64))):
        with pytest.raises(errors.EnvironmentError, match="'CountingEnv-v0' is closed"):
            call()


def test_everything_can_be_bound_in_gin():
    config = """
        GymnasiumEnvironment.env_id = 'CountingEnv-v0'
        GymnasiumEnvironment.num_envs = 3
        GymnasiumEnvironment.wrappers = [
            ('TimeLimit', {'max_episode_steps': 4}), 'FlattenObservation']
        GymnasiumEnvironment.make_kwargs = {'episode_lengths': (1,)}
    """
    with gin.unlock_config():
        gin.parse_config(config)
    try:
        with GymnasiumEnvironment() as env:
            time_steps = _run(env, 1)
            innermost = env.vector_env.envs[0]
    finally:
        gin.clear_config()

    assert isinstance(innermost, gymnasium.wrappers.FlattenObservation)
    assert isinstance(innermost.env, gymnasium.wrappers.TimeLimit)
    assert time_steps[1].step_type.tolist() == [L, L, L]
