"""Tests of `actor_learner.learning.best_policy_trigger`."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil

import numpy as np
import pytest
import tensorflow as tf
from tf_agents.networks import q_network
from tf_agents.policies import greedy_policy, q_policy

from actor_learner.learning import best_policy_trigger, evaluation
from actor_learner.support import errors
from tests.learning import tiny_agent
from tests.learning.test_evaluation import result


@pytest.fixture(scope="module")
def policy():
    specs = tiny_agent.TinyAgent(tiny_agent.train_step())
    network = q_network.QNetwork(
        specs.time_step_spec.observation, specs.action_spec, fc_layer_params=(3,)
    )
    network.create_variables()
    made = q_policy.QPolicy(specs.time_step_spec, specs.action_spec, network)
    return greedy_policy.GreedyPolicy(made)


def set_weights(policy, value):
    for variable in policy.variables():
        variable.assign(tf.fill(variable.shape, value))


def saved_weight(directory):
    loaded = tf.saved_model.load(os.path.join(directory, "policy"))
    (weight,) = {float(x) for v in loaded.model_variables for x in np.unique(v.numpy())}
    return weight, int(loaded.get_train_step())


def score(directory):
    with open(os.path.join(directory, "score.json")) as file:
        return json.load(file)


def test_keeps_the_best_policy_with_its_score(tmp_path, policy):
    directory = str(tmp_path / "best")
    step = tiny_agent.train_step()
    best = best_policy_trigger.BestPolicyTrigger(policy, directory, train_step=step)
    assert best.best is None and not os.path.exists(directory)
    for number, mean in enumerate([5.0, 3.0, 5.0, 9.0, 8.0, 12.0]):
        step.assign(number)
        set_weights(policy, float(number))
        best(result(mean - 1, mean + 1, train_step=number, environment_step=number * 10))
        expected = {5.0: 0, 3.0: 0, 9.0: 3, 8.0: 3, 12.0: 5}[mean]
        assert saved_weight(directory) == (float(expected), expected)
        assert score(directory)["train_step"] == expected
        assert os.listdir(tmp_path) == ["best"], "no temporary directory is left"
    assert score(directory) == dict(
        mean=12.0,
        std=1.0,
        min=11.0,
        max=13.0,
        episodes=2,
        train_step=5,
        environment_step=50,
    )
    assert sorted(os.listdir(directory)) == ["policy", "score.json"]
    assert os.path.exists(tmp_path / "best" / "policy" / "policy_specs.pbtxt")


def test_the_graph_is_traced_and_written_only_once(tmp_path, policy, monkeypatch):
    directory = str(tmp_path / "best")
    saves = []
    save = tf.saved_model.save
    monkeypatch.setattr(
        tf.compat.v2.saved_model, "save", lambda *a, **k: saves.append(1) or save(*a, **k)
    )
    best = best_policy_trigger.BestPolicyTrigger(
        policy, directory, train_step=tiny_agent.train_step()
    )
    for mean in (1.0, 2.0, 3.0):
        best(result(mean))
    assert len(saves) == 1


def test_a_later_run_replaces_only_what_it_beats(tmp_path, policy):
    directory = str(tmp_path / "best")
    step = tiny_agent.train_step()
    set_weights(policy, 1.0)
    best_policy_trigger.BestPolicyTrigger(policy, directory, train_step=step)(result(7.0))
    later = best_policy_trigger.BestPolicyTrigger(policy, directory, train_step=step)
    assert later.best["mean"] == 7.0
    set_weights(policy, 2.0)
    later(result(7.0))
    assert saved_weight(directory)[0] == 1.0
    later(result(7.5))
    assert saved_weight(directory)[0] == 2.0


def confirmed(choosing, confirming, **more):
    return dataclasses.replace(result(choosing, **more), confirmed=result(confirming, **more))


def test_the_score_shown_is_that_of_episodes_that_did_not_choose_the_policy(tmp_path, policy):
    directory = str(tmp_path / "best")
    best = best_policy_trigger.BestPolicyTrigger(
        policy, directory, train_step=tiny_agent.train_step()
    )
    # The third is chosen though it is confirmed to be worse: what confirms has no say.
    for choosing, confirming, shown in ((5, 4, 4), (5, 9, 4), (7, 3, 3), (6, 8, 3)):
        best(confirmed(choosing, confirming))
        assert best.best["mean"] == score(directory)["mean"] == shown
    assert score(directory)["chosen_by"] == dict(mean=7.0, std=0.0, min=7.0, max=7.0, episodes=1)
    assert best_policy_trigger.BestPolicyTrigger(
        policy, directory, train_step=tiny_agent.train_step()
    ).would_keep(result(7.5))


def test_of_policies_that_are_all_alike_the_best_ones_score_is_not_the_luckiest():
    random = np.random.default_rng(0)
    shown = []
    for _ in range(300):
        best = None
        for _ in range(50):
            candidate = evaluation.score_of(confirmed(random.normal(), random.normal()))
            best = candidate if evaluation.supersedes(candidate, best) else best
        shown.append(best["mean"])
    # The highest of 50 is 2.2 on the average; 0.2 is 3.5 standard errors of the mean.
    assert abs(np.mean(shown)) < 0.2


def test_a_policy_that_is_confirmed_to_reach_the_target_is_the_best(tmp_path, policy):
    directory = str(tmp_path / "best")
    best = best_policy_trigger.BestPolicyTrigger(
        policy, directory, train_step=tiny_agent.train_step(), target_return=10.0
    )
    for choosing, confirming, shown in ((15, 9, 9), (11, 10, 10), (16, 9, 10), (17, 12, 12)):
        best(confirmed(choosing, confirming))
        assert score(directory)["mean"] == shown


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), float("-inf")])
def test_an_evaluation_that_is_not_finite_is_never_the_best_nor_in_its_way(tmp_path, policy, wrong):
    directory = str(tmp_path / "best")
    best = best_policy_trigger.BestPolicyTrigger(
        policy, directory, train_step=tiny_agent.train_step()
    )
    best(result(1.0, wrong))
    best(confirmed(1.0, wrong))
    assert best.best is None and not os.path.exists(directory)
    best(result(2.0))
    best(result(wrong))
    best(confirmed(3.0, wrong))
    assert score(directory)["mean"] == 2.0
    best(result(2.5))
    assert score(directory)["mean"] == 2.5


def test_a_score_of_nan_that_earlier_code_has_left_does_not_block_the_best(tmp_path, policy):
    directory = tmp_path / "best"
    (directory / "policy").mkdir(parents=True)
    (directory / "score.json").write_text('{"mean": NaN, "train_step": 3}')
    best = best_policy_trigger.BestPolicyTrigger(
        policy, str(directory), train_step=tiny_agent.train_step()
    )
    assert best.best is None
    best(result(-100.0))

    def refuse(word):
        raise AssertionError(f"{word} is not JSON")

    text = (directory / "score.json").read_text()
    assert json.loads(text, parse_constant=refuse)["mean"] == -100.0


class Killed(BaseException):
    """Stands for the end of the process: nothing of ours handles it."""


@pytest.mark.parametrize(
    "killed_at, surviving",
    [
        ("while writing the policy", 1.0),
        ("before the score", 1.0),
        ("before the first rename", 1.0),
        ("between the renames", 2.0),
        ("before the old one is removed", 2.0),
    ],
)
def test_a_process_killed_while_replacing_leaves_policy_and_score_of_one_evaluation(
    tmp_path, policy, monkeypatch, killed_at, surviving
):
    directory = str(tmp_path / "best")
    step = tiny_agent.train_step()
    best = best_policy_trigger.BestPolicyTrigger(policy, directory, train_step=step)
    set_weights(policy, 1.0)
    best(result(1.0))
    set_weights(policy, 2.0)

    def die(*_, **__):
        raise Killed()

    rename, renames = os.rename, []

    def rename_or_die(source, target):
        if len(renames) == {"before the first rename": 0, "between the renames": 1}[killed_at]:
            die()
        renames.append(source)
        rename(source, target)

    with monkeypatch.context() as patch:
        if killed_at == "while writing the policy":
            patch.setattr(best._saver, "save_checkpoint", die)
        elif killed_at == "before the score":
            patch.setattr(os, "replace", die)
        elif killed_at == "before the old one is removed":
            rmtree = shutil.rmtree
            patch.setattr(
                shutil,
                "rmtree",
                lambda path, **k: die() if os.path.exists(path) else rmtree(path, **k),
            )
        else:
            patch.setattr(os, "rename", rename_or_die)
        with pytest.raises(Killed):
            best(result(2.0))

    again = best_policy_trigger.BestPolicyTrigger(policy, directory, train_step=step)
    assert again.best["mean"] == surviving
    assert saved_weight(directory)[0] == surviving
    set_weights(policy, 3.0)
    again(result(3.0))
    assert saved_weight(directory)[0] == score(directory)["mean"] == 3.0
    assert os.listdir(tmp_path) == ["best"]


def test_a_directory_with_other_files_is_refused(tmp_path, policy):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match="notes.txt"):
        best_policy_trigger.BestPolicyTrigger(
            policy, str(tmp_path), train_step=tiny_agent.train_step()
        )


def test_an_empty_directory_is_used(tmp_path, policy):
    set_weights(policy, 4.0)
    best = best_policy_trigger.BestPolicyTrigger(
        policy, str(tmp_path) + os.sep, train_step=tiny_agent.train_step()
    )
    best(result(1.0))
    assert saved_weight(tmp_path)[0] == 4.0


def test_there_is_no_score_before_the_first_best(tmp_path):
    assert best_policy_trigger.read_best_score(str(tmp_path / "best")) is None


def test_a_policy_that_is_not_finite_never_becomes_the_best(policy, tmp_path):
    directory = str(tmp_path / "best")
    trigger = best_policy_trigger.BestPolicyTrigger(
        policy, directory, train_step=tiny_agent.train_step(7)
    )
    set_weights(policy, 1.0)
    trigger(result(1.0))
    set_weights(policy, np.nan)
    with pytest.raises(errors.NotFiniteError, match="not kept as the best"):
        trigger(result(5.0))
    assert saved_weight(directory) == (1.0, 7) and score(directory)["mean"] == 1.0
    set_weights(policy, 1.0)
