"""Evaluators' results become rows, a reason to end, and the best policy that the learner keeps."""

import json
import math

import numpy as np
import pytest
import tensorflow as tf
from tf_agents.specs import tensor_spec
from tf_agents.trajectories import time_step as ts

from actor_learner import experiment as experiment_lib
from actor_learner.agents import dqn
from actor_learner.learning import best_policy_trigger
from actor_learner.parameters import packing
from actor_learner.parameters import store as store_lib
from actor_learner.runs import model
from actor_learner.runs.evaluation import best_policy, evaluations
from actor_learner.support import errors, unsaved
from tests.small_disk import small_disk  # noqa: F401 - a fixture.


def make_model():
    made = experiment_lib.Experiment(
        lambda: None, lambda world: dqn.dqn(world, fc_layer_params=(3,)), environment_steps=5_000
    )
    return model.Model(
        made,
        ts.time_step_spec(tensor_spec.BoundedTensorSpec([2], tf.float32, -1, 1)),
        tensor_spec.BoundedTensorSpec([], tf.int64, 0, 1),
        4,
        run_id="0" * 32,
        seed=0,
    )


@pytest.fixture(scope="module")
def rated_model():
    """The evaluators' copy of the learner's policy."""
    return make_model()


def figures(mean):
    std = 1.5 if math.isfinite(mean) else mean
    return {"mean": mean, "std": std, "min": mean, "max": mean, "episodes": 4}


def result(train_step, mean, *, evaluator=0, incarnation="first", confirmed=None):
    return {
        "evaluator": evaluator,
        "incarnation": incarnation,
        "train_step": train_step,
        "environment_step": 10 * train_step,
        **figures(mean),
        "confirmed": None if confirmed is None else figures(confirmed),
    }


@pytest.fixture
def store(tmp_path):
    return store_lib.ParameterStore(tmp_path / "parameters")


@pytest.fixture
def best(tmp_path):
    """Where the learner keeps the best policy."""
    return tmp_path / "best"


@pytest.fixture
def keeper(best, store):
    return best_policy.BestPolicyKeeper(make_model, best, store)


@pytest.fixture
def candidate(rated_model):
    """Makes a result, and the policy that goes with it: one whose weights all are its version."""

    def make(train_step, mean, *, confirmed=None, weight=None, **more):
        variables = rated_model.published_variables()
        for variable in variables:
            value = train_step if weight is None else weight
            variable.assign(np.full(variable.shape, value, variable.dtype.as_numpy_dtype))
        confirmed = mean if confirmed is None else confirmed
        packed = packing.Packing(variables).pack()
        packed.setflags(write=False)  # As it comes from the wire.
        return result(train_step, mean, confirmed=confirmed, **more), packed

    return make


def make(keeper, rows=None, **settings):
    return evaluations.Evaluations(
        keeper,
        on_row=([] if rows is None else rows).append,
        seconds=lambda: 2.0,
        **{"target_return": None, **settings},
    )


def test_each_result_becomes_one_row_even_if_it_comes_twice(keeper):
    rows = []
    made = make(keeper, rows)
    for taken in (result(5, 1.0), result(7, 2.0), result(5, 1.0, evaluator=1), result(7, 2.0)):
        made.take(taken)
    assert [row["train_steps"] for row in rows] == [5, 7, 5]
    assert rows[1] == {
        "seconds": 2.0, "environment_steps": 70, "train_steps": 7, "eval_return": 2.0,
        "eval_return_std": 1.5, "eval_episodes": 4,
    }  # fmt: skip
    assert made.raters(5) == {0, 1} and made.raters(7) == {0} and made.raters(6) == set()


def test_what_a_restarted_evaluator_rates_again_is_taken_as_well(keeper, store, candidate):
    rows = []
    made = make(keeper, rows)
    for life, mean in (("first", 29.0), ("second", 43.0)):
        made.take(*candidate(7, mean, incarnation=life))
    assert [(row["train_steps"], row["eval_return"]) for row in rows] == [(7, 29.0), (7, 43.0)]
    assert store.get("policy", "best").metadata["mean_return"] == 43.0
    assert made.raters(7) == {0}


def test_the_target_is_reached_when_a_second_evaluation_confirms_it(keeper, caplog):
    made = make(keeper, target_return=3.0)
    with caplog.at_level("INFO", logger="absl"):
        for train_step, mean, confirmed in ((1, 2.9, None), (2, 3.0, 2.9), (3, 2.9, 3.1)):
            made.take(result(train_step, mean, confirmed=confirmed))
        made.take(result(4, 5.0))  # Nobody has confirmed it.
    assert made.target_reached is None
    assert "would reach the target 3, but 2.9 over 4 others does not confirm it" in caplog.text
    made.take(result(5, 3.0, confirmed=3.0))
    assert made.target_reached == "mean return 3 over 4 episodes, and 3 over 4 others confirmed it"


@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
def test_what_is_not_finite_reaches_no_target_and_makes_the_run_a_failure(keeper, wrong):
    rows = []
    made = make(keeper, rows, target_return=3.0)
    for train_step, mean, confirmed in ((5, 4.0, wrong), (6, 4.0, None), (7, wrong, 4.0)):
        made.take(result(train_step, mean, confirmed=confirmed))
    assert made.target_reached is None and len(rows) == 3
    made.require_finite(6)
    with pytest.raises(errors.EvaluationError, match="of train step 7 cannot be evaluated"):
        made.require_finite(7)


def policy_in(best):
    """The version in `best/`: its score, the weights and the train step of its SavedModel."""
    score = json.loads((best / "score.json").read_text())
    assert sorted(path.name for path in best.iterdir()) == ["policy", "score.json"]
    loaded = tf.saved_model.load(str(best / "policy"))
    weights = {float(x) for v in loaded.model_variables for x in np.unique(v.numpy())}
    assert weights == {float(score["train_step"])}
    assert int(loaded.get_train_step()) == score["train_step"]
    return score


def kept(best, store):
    """The version in `best/`, checked against the one in the store."""
    score = policy_in(best)
    version = score["train_step"]
    stored = store.get("policy", "best")
    assert stored.version == version and stored.metadata["mean_return"] == score["mean"]
    assert len(stored.values) == 4  # Kernel and bias of two layers.
    for value in stored.values.values():
        np.testing.assert_array_equal(value, np.full_like(value, version))
    return version


def test_the_best_policy_that_was_sent_is_kept_and_tagged(keeper, best, store, candidate):
    made = make(keeper)
    made.take(*candidate(4, 10.0))
    assert kept(best, store) == 4
    assert store.get("policy", "best").metadata == {
        "environment_steps": 40, "mean_return": 10.0, "std_return": 1.5, "episodes": 4,
        "choosing_mean_return": 10.0,
    }  # fmt: skip
    made.take(*candidate(8, 9.0))  # The evaluator was restarted, and has forgotten the better one.
    assert kept(best, store) == 4
    made.take(*candidate(12, 11.0))
    assert kept(best, store) == 12


def test_the_choosing_score_decides_and_the_confirming_one_is_shown(keeper, best, store, candidate):
    rows = []
    made = make(keeper, rows)
    for train_step, choosing, confirming, kept_step, shown in (
        (4, 10.0, 8.0, 4, 8.0),
        (8, 9.0, 12.0, 4, 8.0),
        (12, 11.0, 7.0, 12, 7.0),
    ):
        made.take(*candidate(train_step, choosing, confirmed=confirming))
        assert kept(best, store) == kept_step
        metadata = store.get("policy", "best").metadata
        assert metadata["mean_return"] == shown == rows[-1]["best_return"]
        assert rows[-1]["best_environment_steps"] == 10 * kept_step
        assert rows[-1]["eval_return"] == choosing


def test_a_policy_that_is_confirmed_to_reach_the_target_is_the_better_one(best, store, candidate):
    keeper = best_policy.BestPolicyKeeper(make_model, best, store, target_return=20.0)
    made = make(keeper, target_return=20.0)
    made.take(*candidate(4, 30.0, confirmed=19.0))
    made.take(*candidate(8, 25.0, confirmed=21.0))
    assert made.target_reached.startswith("mean return 25 over 4 episodes, and 21 over 4 others")
    assert kept(best, store) == 8


def test_former_best_versions_do_not_stay_beyond_the_promised_number(best, store, candidate):
    made = make(best_policy.BestPolicyKeeper(make_model, best, store, kept=2))
    for train_step in (4, 8, 12, 16, 20):
        made.take(*candidate(train_step, float(train_step)))
    assert [held.version for held in store.list("policy")] == [20, 16, 12]
    assert store.get("policy", "best").version == 20


def test_a_candidate_whose_score_is_not_finite_is_not_kept(keeper, best, store, candidate):
    made = make(keeper)
    made.take(*candidate(4, float("nan")))
    assert store.names() == () and not best.exists()
    store.push("policy", {"a": np.zeros(2)}, 3, tags=["best"], metadata={"mean_return": np.nan})
    made.take(*candidate(8, -5.0))
    assert kept(best, store) == 8


@pytest.mark.parametrize("stored", [True, False])
def test_a_candidate_whose_weights_are_not_finite_is_refused(
    keeper, best, store, candidate, caplog, stored
):
    rows = []
    made = make(keeper, rows)
    made.take(*candidate(4, 10.0))
    if not stored:  # An earlier learner may have died between the two places.
        store.untag("policy", "best")
    made.take(*candidate(8, 11.0 if stored else 9.0, weight=np.nan))
    assert "evaluator-0 sent a policy that is refused" in caplog.text
    assert "is not finite" in caplog.text
    assert policy_in(best)["train_step"] == 4
    assert [held.version for held in store.list("policy")] == [4]
    assert len(rows) == 2 and made.raters(8) == {0}  # The figures count all the same.
    if not stored:
        made.take(*candidate(12, 8.0))  # What was refused is no measure for the store.
        assert store.get("policy", "best").version == 12


@pytest.mark.parametrize("change", [lambda packed: packed[:-64], lambda packed: packed.view("f4")])
def test_a_candidate_that_does_not_fit_the_policy_is_refused(
    keeper, best, store, candidate, caplog, change
):
    rows = []
    made = make(keeper, rows)
    found, packed = candidate(4, 10.0)
    made.take(found, change(packed))
    assert "evaluator-0 sent a policy that is refused" in caplog.text
    assert f"bytes where the policy has {packed.size}" in caplog.text
    assert store.names() == () and not best.exists()
    assert len(rows) == 1 and made.raters(4) == {0}
    made.take(*candidate(8, 9.0))
    assert kept(best, store) == 8


def test_of_several_evaluators_the_best_policy_of_all_is_kept(keeper, best, store, candidate):
    made = make(keeper, target_return=20.0)
    made.take(*candidate(4, 10.0))
    made.take(*candidate(6, 25.0, evaluator=1))
    made.take(*candidate(8, 12.0))
    assert made.target_reached.startswith("mean return 25 over 4 episodes, and 25 over 4 others")
    assert kept(best, store) == 6
    assert json.loads((best / "score.json").read_text())["mean"] == 25.0


def test_the_best_policy_of_an_earlier_learner_stays_until_a_better_one_comes(
    keeper, best, store, candidate
):
    make(keeper).take(*candidate(4, 10.0))
    rows = []
    resumed = best_policy.BestPolicyKeeper(make_model, best, store)
    assert resumed.best["mean"] == 10.0
    made = make(resumed, rows)
    made.take(*candidate(8, 9.0))
    assert kept(best, store) == 4 and rows[-1]["best_return"] == 10.0
    made.take(*candidate(12, 11.0))
    assert kept(best, store) == 12 and rows[-1]["best_return"] == 11.0


def test_nothing_is_built_for_candidates_that_are_not_the_best(keeper, best, store, candidate):
    make(keeper).take(*candidate(4, 10.0))
    resumed = best_policy.BestPolicyKeeper(lambda: pytest.fail("is not needed"), best, store)
    make(resumed).take(*candidate(8, 9.0))


@pytest.mark.parametrize("dies_in", ["push", "put_in_place"])
def test_a_learner_that_dies_over_a_candidate_gets_it_again(
    keeper, best, store, candidate, monkeypatch, dies_in
):
    sent = candidate(4, 10.0)
    with monkeypatch.context() as patch:
        where = store if dies_in == "push" else best_policy_trigger
        patch.setattr(where, dies_in, lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            make(keeper).take(*sent)
    # Its evaluator has no answer, and sends it to the next one.
    make(best_policy.BestPolicyKeeper(make_model, best, store)).take(*sent)
    assert kept(best, store) == 4


def test_a_candidate_that_could_not_be_kept_is_taken_when_it_comes_again(
    keeper, best, store, candidate, monkeypatch
):
    sent, rows = candidate(4, 10.0), []
    made = make(keeper, rows)
    with monkeypatch.context() as patch:
        patch.setattr(best_policy_trigger, "put_in_place", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            made.take(*sent)
    assert rows == []
    made.take(*sent)
    assert kept(best, store) == 4 and len(rows) == 1


def test_a_result_without_a_policy_leaves_everything_alone(keeper, best, store):
    make(keeper).take(result(3, 99.0))
    assert store.names() == () and not best.exists()


def test_files_of_others_in_the_directory_of_the_best_policy_are_refused_at_the_start(best, store):
    best.mkdir()
    (best / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match="is replaced as a whole, but it contains notes.txt"):
        best_policy.BestPolicyKeeper(make_model, best, store)


def test_on_a_full_disk_the_best_policy_waits_in_memory(small_disk, candidate):  # noqa: F811
    best = small_disk.path / "best"
    store = store_lib.ParameterStore(small_disk.path / "parameters")
    rows = []
    made = make(best_policy.BestPolicyKeeper(make_model, best, store), rows, target_return=12.0)
    with unsaved.scope() as ledger:
        ledger.final_wait_seconds = 0.0
        made.take(*candidate(4, 10.0))
        small_disk.fill()
        made.take(*candidate(8, 12.0))
        small_disk.fill()
        # Better than what is written, but not than what waits.
        made.take(*candidate(12, 11.0, evaluator=1))
        assert made.target_reached is not None
        assert kept(best, store) == 4 and rows[-1]["best_return"] == 10.0
        waiting = {entry.what for entry in ledger.entries}
        assert waiting == {"the best policy", "the best policy in the parameter store"}
        assert not ledger.settle()
        small_disk.free()
        assert ledger.settle()
    assert kept(best, store) == 8
    made.take(*candidate(16, 11.0, evaluator=1))
    assert kept(best, store) == 8 and rows[-1]["best_return"] == 12.0


def test_a_run_of_many_evaluations_remembers_the_latest_only(keeper):
    rows = []
    made = make(keeper, rows)
    count = evaluations._REMEMBERED_RESULTS + 1_000
    for step in range(count):
        made.take(result(step, 1.0))
    assert len(rows) == count
    assert len(made._taken) == evaluations._REMEMBERED_RESULTS
    assert len(made._raters) == evaluations._REMEMBERED_VERSIONS
    assert made.raters(count - 1) == {0}
    made.take(result(count - 5_000, 1.0))  # Its evaluator has missed the answer.
    assert len(rows) == count
