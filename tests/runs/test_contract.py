"""The contract of a run: told by its replay job, compared by whoever joins."""

import copy

import numpy as np
import pytest
import tensorflow as tf
from tf_agents.specs import tensor_spec
from tf_agents.trajectories import time_step as ts

import actor_learner
from actor_learner import experiment as experiment_lib
from actor_learner.agents import c51, dqn, r2d2
from actor_learner.messaging import messages
from actor_learner.runs import contract, model
from actor_learner.support import errors

RUN_ID = "0123456789abcdef" * 2
OBSERVATION = {
    "position": tensor_spec.BoundedTensorSpec([3], tf.float32, -1.5, np.inf),
    "image": tensor_spec.BoundedTensorSpec([8, 8, 1], tf.uint8, 0, 255),
}
VECTOR = tensor_spec.BoundedTensorSpec([4], tf.float32, [-1, -2, -3, -4], [1, 2, 3, 4])


def make_model(agent=dqn.dqn, observation=VECTOR, actions=2, lanes=8, collecting=None, **more):
    made = experiment_lib.Experiment(
        lambda: None, agent, environment_steps=5_000, collecting=collecting
    )
    action_spec = tensor_spec.BoundedTensorSpec([], tf.int64, 0, actions - 1)
    time_step_spec = ts.time_step_spec(observation)
    return model.Model(made, time_step_spec, action_spec, lanes, run_id=RUN_ID, seed=0, **more)


@pytest.fixture(scope="module")
def written():
    return make_model().contract(RUN_ID)


def refusal(ours, theirs):
    with pytest.raises(errors.SpecMismatchError) as info:
        contract.require_same(ours, theirs, "actor-3 of run mine")
    return str(info.value)


def test_a_contract_survives_the_wire(written):
    sent = messages.Message("contract", {"contract": written})
    assert messages.decode(messages.encode(sent)).body["contract"] == written


def test_jobs_without_an_environment_get_its_specs_from_the_contract():
    made = make_model(
        lambda world: dqn.dqn(world, fc_layer_params=(4,)), observation=OBSERVATION, actions=5
    )
    time_step_spec, action_spec = contract.specs_of(made.contract(RUN_ID))
    for ours, given in zip(
        tf.nest.flatten([time_step_spec, action_spec]),
        tf.nest.flatten([made.time_step_spec, made.action_spec]),
    ):
        assert (ours.shape, ours.dtype) == (given.shape, given.dtype)
        if isinstance(given, tensor_spec.BoundedTensorSpec):
            np.testing.assert_array_equal(ours.minimum, given.minimum)
            np.testing.assert_array_equal(ours.maximum, given.maximum)
    assert time_step_spec.observation.keys() == OBSERVATION.keys()


def test_the_same_configuration_makes_the_same_contract(written):
    contract.require_same(make_model().contract(RUN_ID), written, "actor-0")


def test_another_environment_is_named_with_the_field_that_differs(written):
    wider = tensor_spec.BoundedTensorSpec([6], tf.float32, -1, 1)
    said = refusal(make_model(observation=wider).contract(RUN_ID), written)
    assert said.startswith("actor-3 of run mine does not fit the run:\n")
    assert "time step spec/observation/shape[0]: 6 here, 4 in the run" in said
    assert "Start every job of a run with the same gin files" in said


def test_other_actions_bounds_included_are_named(written):
    said = refusal(make_model(actions=3).contract(RUN_ID), written)
    assert "action spec" in said and "time step spec" not in said


def test_another_algorithm_is_named(written):
    said = refusal(make_model(c51.c51).contract(RUN_ID), written)
    assert 'algorithm: "WeightedC51" here, "DdqnAgent" in the run' in said
    assert "policy variables" in said


def test_other_lanes_and_settings_are_named(written):
    said = refusal(make_model(lanes=3).contract(RUN_ID), written)
    assert "lanes per actor: 3 here, 8 in the run" in said
    said = refusal(make_model(lambda world: dqn.dqn(world, n_step=3)).contract(RUN_ID), written)
    assert "n_step: 3 here, 1 in the run" in said


def test_another_version_of_the_package_is_named(written, monkeypatch):
    monkeypatch.setattr(actor_learner, "__version__", "99.0")
    said = refusal(make_model().contract(RUN_ID), written)
    assert f'package version: "99.0" here, "{written["package version"]}" in the run' in said
    assert len(said.splitlines()) == 3


def test_what_only_one_side_knows_is_a_difference(written):
    older = copy.deepcopy(written)
    del older["stream"]
    assert "stream: " in refusal(written, older) and "missing in the run" in refusal(written, older)
    assert "missing here" in refusal(older, written)


def test_another_run_is_named(written):
    other = "f" * 32
    said = refusal(make_model().contract(other), written)
    assert f'run id: "{other}" here, "{RUN_ID}" in the run' in said


def test_lanes_that_step_apart_have_tables_of_one_lane_and_the_contract_says_so(written):
    apart = make_model(lanes_apart=True).contract(RUN_ID)
    alone = make_model(lanes=1).contract(RUN_ID)
    assert (apart["lanes apart"], written["lanes apart"]) == (True, False)
    assert apart["tables"] == alone["tables"] != written["tables"]
    assert apart["lanes per actor"] == 8


def test_what_is_collected_is_the_same_for_actors_and_those_without_an_environment():
    settings = actor_learner.Collecting(
        tables=["mine", "watch"], send_concise_info=True, postprocessors=[lambda episode: episode]
    )
    told = make_model(r2d2.r2d2, collecting=settings).contract(RUN_ID)
    names = {f"{name}@{RUN_ID[:8]}" for name in ("mine", "watch", "episodes")}
    assert set(told["tables"]) == names
    assert not told["lanes apart"]  # They step together, and are only written apart.
    joining = make_model(r2d2.r2d2, collecting=settings, lanes_apart=told["lanes apart"])
    contract.require_same(joining.contract(RUN_ID), told, "the learner")
    without = make_model(r2d2.r2d2).contract(RUN_ID)
    assert "watch" in refusal(without, told)
