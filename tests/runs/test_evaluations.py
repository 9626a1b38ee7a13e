"""Evaluators' messages become rows, a reason to end, and the best policy that the learner keeps."""

import json
import math

import numpy as np
import pytest
import tensorflow as tf

from actor_learner.learning import evaluation
from actor_learner.parameters import store as store_lib
from actor_learner.replay.server import server
from actor_learner.runs import best_policy, evaluations
from actor_learner.support import errors


class Policy:
    """All that is needed of one here."""

    def __init__(self, value):
        self.kernel = tf.Variable(tf.fill([2, 3], float(value)), name="layer/kernel")
        self.bias = tf.Variable([0.5], name="layer/bias")

    def variables(self):
        return (self.kernel, self.bias)


class Mail(list):
    """A mailbox that a test puts messages into."""

    def receive(self):
        taken = list(self)
        self.clear()
        return taken


def figures(mean):
    std = 1.5 if math.isfinite(mean) else mean
    return {"mean": mean, "std": std, "min": mean, "max": mean, "episodes": 4}


def result(train_step, mean, *, evaluator=0, incarnation="first", sent=False, confirmed=None):
    return {
        "evaluator": evaluator,
        "incarnation": incarnation,
        "train_step": train_step,
        "environment_step": 10 * train_step,
        "mean": mean,
        "std": 1.5 if math.isfinite(mean) else mean,
        "episodes": 4,
        "confirmed": None if confirmed is None else figures(confirmed),
        "sent": sent,
    }


@pytest.fixture(scope="module")
def replay():
    with server.ReplayServer([best_policy.best_table()]) as made:
        yield made


@pytest.fixture
def store(tmp_path):
    return store_lib.ParameterStore(tmp_path / "parameters")


@pytest.fixture
def best(tmp_path):
    """Where the learner keeps the best policy."""
    return tmp_path / "best"


@pytest.fixture
def keeper(replay, best, store):
    client = replay.client()
    client.reset(best_policy.TABLE)
    return best_policy.Keeper(client, best, store)


class Evaluator:
    """Sends what it is told to be the best it has rated, and the message that follows."""

    def __init__(self, replay, directory, mail, index=0, incarnation="first"):
        self._client = replay.client()
        self._directory = directory
        self._mail = mail
        self._index = index
        self._incarnation = incarnation

    def rate(self, train_step, mean, *, confirmed=None, size=1):
        confirmed = mean if confirmed is None else confirmed
        score = {
            **figures(confirmed), "chosen_by": figures(mean),
            "train_step": train_step, "environment_step": 10 * train_step,
        }  # fmt: skip
        (self._directory / "policy" / "variables").mkdir(parents=True, exist_ok=True)
        (self._directory / "policy" / "saved_model.pb").write_text(f"version {train_step}" * size)
        (self._directory / "policy" / "variables" / "variables.index").write_text("index")
        (self._directory / "score.json").write_text(json.dumps(score))
        best_policy.send(self._client, self._directory, Policy(train_step))
        self._mail.append(
            result(
                train_step,
                mean,
                evaluator=self._index,
                incarnation=self._incarnation,
                sent=True,
                confirmed=confirmed,
            )
        )


def make(keeper, mail, rows, **settings):
    return evaluations.Evaluations(
        mail, keeper, on_row=rows.append, seconds=lambda: 2.0,
        **{"target_return": None, **settings},
    )  # fmt: skip


def test_each_result_becomes_one_row_even_if_it_comes_twice(keeper):
    mail, rows = Mail(), []
    made = make(keeper, mail, rows)
    mail += [result(5, 1.0), result(7, 2.0), result(5, 1.0, evaluator=1)]
    made.take()
    mail += [result(7, 2.0)]
    made.take()
    assert [row["train_steps"] for row in rows] == [5, 7, 5]
    assert rows[1] == {
        "seconds": 2.0, "environment_steps": 70, "train_steps": 7, "eval_return": 2.0,
        "eval_return_std": 1.5, "eval_episodes": 4,
    }  # fmt: skip
    assert made.raters(5) == {0, 1} and made.raters(7) == {0} and made.raters(6) == set()


def test_what_a_restarted_evaluator_rates_anew_is_taken_as_well(keeper, replay, tmp_path, store):
    mail, rows = Mail(), []
    made = make(keeper, mail, rows)
    for life, mean in (("first", 29.0), ("second", 43.0)):
        Evaluator(replay, tmp_path / life, mail, incarnation=life).rate(7, mean)
        made.take()
    assert [(row["train_steps"], row["eval_return"]) for row in rows] == [(7, 29.0), (7, 43.0)]
    assert store.get("policy", "best").metadata["mean_return"] == 43.0
    assert made.raters(7) == {0}


def test_the_target_is_reached_when_a_second_evaluation_confirms_it(keeper, caplog):
    mail = Mail()
    made = make(keeper, mail, [], target_return=3.0)
    mail += [result(1, 2.9), result(2, 3.0, confirmed=2.9), result(3, 2.9, confirmed=3.1)]
    with caplog.at_level("INFO", logger="absl"):
        made.take()
    assert made.target_reached is None
    assert "would reach the target 3, but 2.9 over 4 others does not confirm it" in caplog.text
    mail += [result(4, 3.0, confirmed=3.0)]
    made.take()
    assert made.target_reached == "mean return 3 over 4 episodes, and 3 over 4 others confirmed it"


@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
def test_what_is_not_finite_reaches_no_target_and_makes_the_run_a_failure(keeper, wrong):
    mail, rows = Mail(), []
    made = make(keeper, mail, rows, target_return=3.0)
    mail += [result(5, 4.0, confirmed=wrong), result(6, 4.0), result(7, wrong, confirmed=4.0)]
    made.take()
    assert made.target_reached is None and len(rows) == 3
    made.require_finite(6)
    with pytest.raises(errors.EvaluationError, match="of train step 7 cannot be evaluated"):
        made.require_finite(7)


def kept(best, store):
    """The version in `best/`, checked against the one in the store."""
    score = json.loads((best / "score.json").read_text())
    version = score["train_step"]
    assert f"version {version}" in (best / "policy" / "saved_model.pb").read_text()
    assert (best / "policy" / "variables" / "variables.index").read_text() == "index"
    assert sorted(path.name for path in best.iterdir()) == ["policy", "score.json"]
    stored = store.get("policy", "best")
    assert stored.version == version and stored.metadata["mean_return"] == score["mean"]
    np.testing.assert_array_equal(stored.values["layer/kernel"], np.full([2, 3], version))
    return version


def test_the_best_policy_that_was_sent_is_kept_and_tagged(replay, keeper, best, store, tmp_path):
    mail = Mail()
    made = make(keeper, mail, [])
    evaluator = Evaluator(replay, tmp_path / "rated", mail)
    evaluator.rate(4, 10.0)
    made.take()
    assert kept(best, store) == 4
    assert store.get("policy", "best").metadata == {
        "environment_steps": 40, "mean_return": 10.0, "std_return": 1.5, "episodes": 4,
        "choosing_mean_return": 10.0,
    }  # fmt: skip
    evaluator.rate(8, 9.0)  # It was restarted, and has forgotten the better one.
    made.take()
    assert kept(best, store) == 4
    evaluator.rate(12, 11.0, size=1_000)
    made.take()
    assert kept(best, store) == 12


def test_the_choosing_score_decides_and_the_confirming_one_is_shown(
    replay, keeper, best, store, tmp_path
):
    mail, rows = Mail(), []
    made = make(keeper, mail, rows)
    evaluator = Evaluator(replay, tmp_path / "rated", mail)
    for train_step, choosing, confirming, kept_step, shown in (
        (4, 10.0, 8.0, 4, 8.0),
        (8, 9.0, 12.0, 4, 8.0),
        (12, 11.0, 7.0, 12, 7.0),
    ):
        evaluator.rate(train_step, choosing, confirmed=confirming)
        made.take()
        assert kept(best, store) == kept_step
        metadata = store.get("policy", "best").metadata
        assert metadata["mean_return"] == shown == rows[-1]["best_return"]
        assert rows[-1]["best_environment_steps"] == 10 * kept_step
        assert rows[-1]["eval_return"] == choosing


def test_a_candidate_that_is_not_finite_is_not_kept(replay, keeper, best, store, tmp_path):
    mail = Mail()
    made = make(keeper, mail, [])
    evaluator = Evaluator(replay, tmp_path / "rated", mail)
    evaluator.rate(4, float("nan"))
    made.take()
    assert store.names() == () and not best.exists()
    store.push("policy", {"a": np.zeros(2)}, 3, tags=["best"], metadata={"mean_return": np.nan})
    evaluator.rate(8, -5.0)
    made.take()
    assert kept(best, store) == 8


def test_of_several_evaluators_the_best_policy_of_all_is_kept(
    replay, keeper, best, store, tmp_path
):
    mail = Mail()
    made = make(keeper, mail, [], target_return=20.0)
    one, other = (Evaluator(replay, tmp_path / str(i), mail, index=i) for i in range(2))
    one.rate(4, 10.0)
    other.rate(4, 25.0)
    one.rate(8, 12.0)
    made.take()  # All of them were on their way at once.
    assert made.target_reached.startswith("mean return 25 over 4 episodes, and 25 over 4 others")
    assert kept(best, store) == 4
    assert json.loads((best / "score.json").read_text())["mean"] == 25.0


def test_a_candidate_that_an_earlier_learner_has_left_is_kept(
    replay, keeper, best, store, tmp_path
):
    Evaluator(replay, tmp_path / "rated", Mail()).rate(4, 10.0)
    make(keeper, Mail(), []).take()
    assert kept(best, store) == 4


@pytest.mark.parametrize("dies_in", ["push", "put_in_place"])
def test_a_learner_that_dies_over_a_candidate_finds_it_again(
    replay, keeper, best, store, tmp_path, monkeypatch, dies_in
):
    Evaluator(replay, tmp_path / "rated", Mail()).rate(4, 10.0)
    with monkeypatch.context() as patch:
        where = store if dies_in == "push" else evaluation
        patch.setattr(where, dies_in, lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            make(keeper, Mail(), []).take()
    make(keeper, Mail(), []).take()
    assert kept(best, store) == 4


def test_a_result_that_was_not_sent_leaves_everything_alone(keeper, best, store):
    mail = Mail([result(3, 99.0)])
    make(keeper, mail, []).take()
    assert store.names() == () and not best.exists()


def test_a_run_of_many_evaluations_remembers_the_latest_only(keeper):
    mail, rows = Mail(), []
    taken = evaluations.Evaluations(
        mail, keeper, on_row=rows.append, seconds=lambda: 0.0, target_return=None
    )
    count = evaluations._REMEMBERED_RESULTS + 1_000
    mail.extend(result(step, 1.0) for step in range(count))
    taken.take()
    assert len(rows) == count
    assert len(taken._taken) == evaluations._REMEMBERED_RESULTS
    assert len(taken._raters) == evaluations._REMEMBERED_VERSIONS
    assert taken.raters(count - 1) == {0}
    mail.append(result(count - 5_000, 1.0))  # A restored replay sends it once more.
    taken.take()
    assert len(rows) == count
