"""Variables to arrays and back, and warm starts from everything they can start from."""

import shutil
import warnings

import numpy as np
import pytest
import tensorflow as tf
from tf_agents.networks import q_network
from tf_agents.policies import policy_saver, q_policy
from tf_agents.specs import tensor_spec
from tf_agents.trajectories import time_step as ts

from actor_learner.parameters import archive, store, variables
from actor_learner.support import errors


def make_policy(units=4, actions=3):
    observation = tf.TensorSpec([2], tf.float32)
    action = tensor_spec.BoundedTensorSpec([], tf.int32, 0, actions - 1)
    network = q_network.QNetwork(observation, action, fc_layer_params=(units, units))
    network.create_variables()
    return q_policy.QPolicy(ts.time_step_spec(observation), action, network)


def fill(policy, number):
    """Gives each variable values of its own."""
    for i, variable in enumerate(policy.variables()):
        variable.assign(tf.fill(variable.shape, float(number + i)))


def assert_filled(policy, number):
    for i, variable in enumerate(policy.variables()):
        np.testing.assert_array_equal(variable, np.full(variable.shape, number + i, np.float32))


@pytest.fixture(scope="module")
def export(tmp_path_factory):
    """An exported policy, filled with 5."""
    policy = make_policy()
    fill(policy, 5)
    path = tmp_path_factory.mktemp("run") / "best" / "policy"
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Encoding a StructuredValue")
        policy_saver.PolicySaver(policy, batch_size=None).save(str(path))
    return path


def test_names_are_the_same_however_many_networks_the_process_has_made():
    names = list(variables.named_variables(make_policy()))
    assert list(variables.named_variables(make_policy())) == names
    assert names == [
        "QNetwork/EncodingNetwork/dense/kernel",
        "QNetwork/EncodingNetwork/dense/bias",
        "QNetwork/EncodingNetwork/dense/kernel#2",
        "QNetwork/EncodingNetwork/dense/bias#2",
        "QNetwork/dense/kernel",
        "QNetwork/dense/bias",
    ]


def test_values_are_copies_that_training_does_not_change():
    weight = tf.Variable([1.0, 2.0], name="weight")
    values = variables.values_of([weight])
    weight.assign_add([1.0, 1.0])
    np.testing.assert_array_equal(values["weight"], [1.0, 2.0])


def test_what_one_policy_knew_another_knows_through_a_store(tmp_path):
    taught, fresh = make_policy(), make_policy()
    fill(taught, 7)
    held = store.ParameterStore(tmp_path)
    held.push("policy", variables.values_of(taught), 10)
    variables.assign(fresh, held.get("policy").values)
    assert_filled(fresh, 7)


def test_types_come_back_through_a_store(tmp_path):
    def make(number):
        return {
            "half": tf.Variable(tf.cast([number, 0.1], tf.bfloat16), name="half"),
            "count": tf.Variable(int(number), dtype=tf.int64, name="count"),
            "flag": tf.Variable([number > 1], name="flag"),
        }

    held = store.ParameterStore(tmp_path)
    held.push("all", variables.values_of(make(3.0)), 1)
    given = make(1.0)
    variables.assign(given, held.get("all").values)
    for key, variable in make(3.0).items():
        assert given[key].dtype == variable.dtype
        np.testing.assert_array_equal(given[key].numpy(), variable.numpy())


def test_an_agents_policy_is_meant_by_an_agent():
    class Agent:
        policy = make_policy()
        collect_policy = policy

    assert list(variables.named_variables(Agent())) == list(variables.named_variables(Agent.policy))


def test_what_holds_no_variables_is_refused():
    with pytest.raises(TypeError, match="expected an agent, a policy or variables; got float"):
        variables.named_variables([1.0])


def test_every_difference_is_named_and_nothing_is_assigned():
    policy = make_policy()
    fill(policy, 1)
    values = variables.values_of(make_policy(units=5))
    del values["QNetwork/dense/bias"]
    values["QNetwork/dense/kernel"] = np.zeros([4, 3], np.float64)
    values["QNetwork/extra"] = np.zeros(1)
    with pytest.raises(errors.SpecMismatchError) as caught:
        variables.assign(policy, values, source="version 3 of 'policy'")

    lines = str(caught.value).splitlines()
    assert lines[0] == "version 3 of 'policy' does not fit these 6 variables:"
    encoding = "QNetwork/EncodingNetwork/dense"
    assert lines[1:-1] == [
        f"  {encoding}/kernel must be float32 [2, 4], and is float32 [2, 5]",
        f"  {encoding}/bias must be float32 [4], and is float32 [5]",
        f"  {encoding}/kernel#2 must be float32 [4, 4], and is float32 [5, 5]",
        f"  {encoding}/bias#2 must be float32 [4], and is float32 [5]",
        "  QNetwork/dense/kernel must be float32 [4, 3], and is float64 [4, 3]",
        "  QNetwork/dense/bias float32 [3] is missing",
        "  QNetwork/extra is there, but not among the variables",
    ]
    assert_filled(policy, 1)


def test_many_differences_are_shortened():
    many = [tf.Variable(0.0, name=f"weight{i}x") for i in range(14)]
    with pytest.raises(errors.SpecMismatchError, match="\n  and 4 more\n"):
        variables.assign(many, {})


@pytest.fixture(scope="module")
def policy():
    """One for tests that fill it first."""
    return make_policy()


@pytest.fixture(scope="module")
def run(tmp_path_factory, policy):
    """A run with versions 1, 2 (best) and 3, filled with 10, 20 and 30. Nobody changes it."""
    directory = tmp_path_factory.mktemp("runs") / "run"
    directory.mkdir()
    (directory / "run.json").write_text("{}")
    held = store.ParameterStore(directory / "parameters")
    for version in (1, 2, 3):
        fill(policy, 10 * version)
        held.push("policy", variables.values_of(policy), version)
    held.push("rival", variables.values_of(policy), 9, tags=["champion"])
    held.tag("policy", 2, "best")
    return directory


@pytest.mark.parametrize(
    "source, expected, used",
    [
        ("{run}", 20, "version 2 of 'policy' in {run}/parameters"),
        ("{run}/parameters", 20, "version 2 of 'policy' in {run}/parameters"),
        ("{run}:policy", 30, "version 3 of 'policy' in {run}/parameters"),
        ("{run}:policy@best", 20, "version 2 of 'policy' in {run}/parameters"),
        ("{run}@best", 20, "version 2 of 'policy' in {run}/parameters"),
        ("{run}@1", 10, "version 1 of 'policy' in {run}/parameters"),
        ("{run}/parameters:policy@1", 10, "version 1 of 'policy' in {run}/parameters"),
        ("{run}:rival@champion", 30, "version 9 of 'rival' in {run}/parameters"),
    ],
)
def test_warm_starts_from_runs_and_stores(run, policy, source, expected, used):
    fill(policy, 1)
    assert variables.warm_start(policy, source.format(run=run)) == used.format(run=run)
    assert_filled(policy, expected)


def test_without_a_best_version_a_run_means_its_latest(run, policy, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    store.ParameterStore(copy / "parameters").untag("policy", "best")
    fill(policy, 1)
    variables.warm_start(policy, copy)
    assert_filled(policy, 30)


def test_warm_start_from_a_file(tmp_path):
    taught, fresh = make_policy(), make_policy()
    fill(taught, 4)
    archive.save(tmp_path / "a.npz", variables.values_of(taught), name="policy", version=8)
    used = variables.warm_start(fresh, tmp_path / "a.npz")
    assert used == f"version 8 of 'policy' in {tmp_path}/a.npz"
    assert_filled(fresh, 4)


def test_warm_start_from_an_exported_policy_and_from_a_run_that_has_nothing_else(export, policy):
    for source in (export, export.parents[1]):
        fill(policy, 1)
        assert variables.warm_start(policy, source) == f"the exported policy {export}"
        assert_filled(policy, 5)


def test_an_exported_policy_of_another_shape_is_refused(export):
    policy = make_policy(actions=2)
    fill(policy, 1)
    with pytest.raises(errors.SpecMismatchError, match=r"kernel must be float32 \[4, 2\].*4, 3\]"):
        variables.warm_start(policy, export)
    assert_filled(policy, 1)
    fewer = policy.variables()[:4]
    with pytest.raises(errors.SpecMismatchError, match="variable 5 is there, but not among"):
        variables.warm_start(fewer, export)


def test_a_damaged_exported_policy_is_an_error_that_names_it(export, policy, tmp_path):
    (tmp_path / "saved_model.pb").write_bytes((export / "saved_model.pb").read_bytes())
    with pytest.raises(store.DamagedParametersError, match=f"exported policy {tmp_path} cannot"):
        variables.warm_start(policy, tmp_path)


@pytest.mark.parametrize(
    "source, error, message",
    [
        (
            "{run}/nowhere",
            store.ParametersNotFoundError,
            "nowhere' does not exist; it must be a run",
        ),
        ("{run}/nowhere:policy", store.ParametersNotFoundError, "nowhere' does not exist"),
        ("{run}:policy@worst", store.ParametersNotFoundError, "no tag 'worst'"),
        ("{run}@7", store.ParametersNotFoundError, "no version '7'; versions: 3, 2, 1"),
        ("{run}:policy@7", store.ParametersNotFoundError, "no version '7'; versions: 3, 2, 1"),
        ("{run}:nobody", store.ParametersNotFoundError, "'nobody': there are policy, rival"),
        ("{run}/run.json", store.DamagedParametersError, "run.json is damaged, or not a file of"),
        ("{run}/..", store.ParametersNotFoundError, "neither .*best/policy nor .*greedy_policy"),
    ],
)
def test_a_warm_start_from_nothing_says_what_was_looked_for(run, policy, source, error, message):
    fill(policy, 1)
    with pytest.raises(error, match=message):
        variables.warm_start(policy, source.format(run=run))
    assert_filled(policy, 1)


def test_a_run_without_the_name_asked_for_says_which_there_are(run, policy):
    with pytest.raises(store.ParametersNotFoundError, match="only of policy, rival"):
        variables.warm_start(policy, run, name="league")
