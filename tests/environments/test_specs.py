import numpy as np
import pytest
from gymnasium import spaces
from tf_agents.specs import array_spec

from actor_learner.environments import specs
from actor_learner.support import errors
from tests.environments import sample_environments


def _described(spec):
    if isinstance(spec, array_spec.BoundedArraySpec):
        return (spec.shape, spec.dtype.name, spec.minimum.tolist(), spec.maximum.tolist())
    return (spec.shape, spec.dtype.name)


def test_observation_spaces_of_all_kinds_keep_shape_dtype_bounds_and_name():
    spec = specs.space_to_spec(sample_environments.ALL_SPACES, "observation")

    assert _described(spec["box"]) == ((2, 3), "float64", -1.0, 1.0)
    assert _described(spec["image"]) == ((4, 4, 1), "uint8", 0, 255)
    assert _described(spec["discrete"]) == ((), "int64", 5, 7)
    assert _described(spec["multi_discrete"]) == ((2,), "int64", [0, 0], [1, 3])
    assert _described(spec["multi_binary"]) == ((3,), "int8", 0, 1)
    assert isinstance(spec["tuple"], tuple)
    assert _described(spec["tuple"][0]) == ((), "float32", 0.0, 2.0)
    assert _described(spec["tuple"][1]["x"]) == ((), "int64", 0, 1)
    assert spec["box"].name == "observation/box"
    assert spec["tuple"][1]["x"].name == "observation/tuple/1/x"


def test_zero_based_specs_ignore_start():
    spec = specs.space_to_spec(sample_environments.ALL_ACTIONS, "action", zero_based=True)

    assert _described(spec["discrete"]) == ((), "int64", 0, 2)
    assert _described(spec["multi_discrete"]) == ((2,), "int64", [0, 0], [1, 3])


def test_multi_discrete_observations_keep_their_start():
    spec = specs.space_to_spec(spaces.MultiDiscrete([2, 4], start=[-1, 10]), "observation")

    assert _described(spec) == ((2,), "int64", [-1, 10], [0, 13])


def test_box_bounds_that_differ_stay_arrays_and_infinite_ones_become_finite():
    space = spaces.Box(np.float32([-1.0, -np.inf]), np.float32([1.0, np.inf]))

    spec = specs.space_to_spec(space, "observation")

    largest = np.finfo(np.float32).max
    np.testing.assert_array_equal(spec.minimum, np.float32([-1.0, -largest]))
    np.testing.assert_array_equal(spec.maximum, np.float32([1.0, largest]))


def test_bounds_are_only_simplified_if_asked_for():
    space = spaces.Box(0.0, 1.0, (3,))

    assert specs.space_to_spec(space).minimum.shape == ()
    assert specs.space_to_spec(space, simplify_box_bounds=False).minimum.shape == (3,)


def test_boolean_boxes_have_no_bounds():
    assert _described(specs.space_to_spec(spaces.Box(0, 1, (2,), dtype=bool))) == ((2,), "bool")


def test_dtype_map_replaces_dtypes_by_kind_of_space():
    space = spaces.Dict({"a": spaces.Discrete(3), "b": spaces.Box(0.0, 1.0, (2,))})

    spec = specs.space_to_spec(space, dtype_map={spaces.Discrete: np.int32})

    assert (spec["a"].dtype, spec["b"].dtype) == (np.int32, np.float32)


def test_mapped_dtypes_limit_the_bounds_to_what_they_can_hold():
    space = spaces.Box(np.array([-np.inf, 0.0]), np.array([np.inf, 3.0]), dtype=np.float64)

    spec = specs.space_to_spec(space, dtype_map={spaces.Box: np.int32})

    limits = np.iinfo(np.int32)
    assert _described(spec) == ((2,), "int32", [limits.min, 0], [limits.max, 3])


@pytest.mark.parametrize(
    "space, kind",
    [
        (spaces.Text(5), "Text"),
        (spaces.Sequence(spaces.Discrete(2)), "Sequence"),
        (spaces.Graph(spaces.Box(0, 1, (1,)), None), "Graph"),
        (spaces.OneOf([spaces.Discrete(2), spaces.Discrete(3)]), "OneOf"),
    ],
)
def test_other_spaces_are_refused_with_their_path_and_a_wrapper_that_helps(space, kind):
    nested = spaces.Dict({"fine": spaces.Discrete(2), "bad": spaces.Tuple((space,))})

    with pytest.raises(errors.SpecMismatchError) as caught:
        specs.space_to_spec(nested, "observation")

    message = str(caught.value)
    assert "observation['bad'][0]" in message
    assert kind in message
    assert "gymnasium.wrappers.TransformObservation" in message
    assert "gymnasium.wrappers.FilterObservation" in message


def test_refused_action_spaces_name_the_action_wrapper():
    with pytest.raises(errors.SpecMismatchError, match="gymnasium.wrappers.TransformAction"):
        specs.space_to_spec(spaces.Text(5), "action", zero_based=True)


def test_empty_dicts_are_refused():
    with pytest.raises(errors.SpecMismatchError, match=r"observation\['a'\].*no entries"):
        specs.space_to_spec(spaces.Dict({"a": spaces.Dict({})}), "observation")


def test_actions_get_start_added_and_their_own_dtype():
    encode = specs.compile_action(sample_environments.ALL_ACTIONS, num_lanes=2)

    action = encode(
        {
            "box": np.zeros((2, 2), np.float64),
            "discrete": np.array([0, 2], np.int32),
            "multi_discrete": np.array([[0, 0], [1, 3]]),
            "multi_binary": np.ones((2, 3), np.int8),
            "tuple": (np.array([0, 1]), np.array([0.5, 1.0], np.float32)),
        }
    )

    np.testing.assert_array_equal(action["discrete"], [5, 7])
    np.testing.assert_array_equal(action["multi_discrete"], [[-1, 10], [0, 13]])
    assert action["box"].dtype == np.float32
    assert action["discrete"].dtype == np.int64
    assert isinstance(action["tuple"], tuple)


def test_scalar_actions_of_one_environment_are_hashable():
    action = specs.compile_action(spaces.Discrete(3, start=5), num_lanes=None)(np.array(2))

    assert action == 7
    assert {7: "found"}[action] == "found"


@pytest.mark.parametrize(
    "action, message",
    [
        (np.array([0, 1, 0]), r"shape \(3,\).*expects \(2,\)"),
        (np.array([0.5, 1.0]), "dtype float64.*expects int64"),
    ],
)
def test_actions_of_wrong_shape_or_kind_are_refused(action, message):
    encode = specs.compile_action(spaces.Discrete(2), num_lanes=2)

    with pytest.raises(errors.SpecMismatchError, match=message):
        encode(action)


def test_actions_of_another_structure_are_refused():
    encode = specs.compile_action(spaces.Dict({"left": spaces.Discrete(2)}), num_lanes=1)

    with pytest.raises(errors.SpecMismatchError, match="structure"):
        encode({"right": np.array([0])})


def test_observations_are_copied_into_the_dtypes_of_the_spec():
    spec = {"a": array_spec.ArraySpec((2,), np.float32), "b": (array_spec.ArraySpec((), np.int64),)}
    source = np.array([1.0, 2.0], np.float32)

    copied = specs.compile_observation(spec)({"a": source, "b": [3]})
    source[:] = 0.0

    assert copied["a"].tolist() == [1.0, 2.0]
    assert copied["b"][0].dtype == np.int64
    assert isinstance(copied["b"], tuple)
