"""What gin files say about Ray is read from the text, and refused with words where it is wrong."""

import pytest

from actor_learner import config, ray_settings
from actor_learner.support import errors

KINDS = ("replay", "actor", "learner", "evaluator", "watcher")


def declared(*bindings):
    return ray_settings.declared(config.ConfigSource((), bindings), KINDS)


def test_nothing_said_is_one_cpu_each_packed():
    assert declared() == ({}, "PACK", {}, 600.0)


def test_requests_are_put_into_the_words_and_units_of_ray():
    found = declared(
        "Ray.resources = {'learner': {'num_gpus': 1, 'memory_gb': 1.5}, "
        "'actor': {'num_cpus': 0, 'resources': {'big_disk': 2}}, 'watcher': {'num_cpus': 0.5}}",
        "Ray.placement = 'SPREAD'",
        "Ray.runtime_env = {'env_vars': {'A': 'b'}}",
        "Ray.wait_seconds = 5",
    )
    assert found.resources == {
        "learner": {"CPU": 1.0, "GPU": 1.0, "memory": 1_500_000_000},
        "actor": {"CPU": 0.0, "big_disk": 2.0},
        "watcher": {"CPU": 0.5},
    }
    assert found[1:] == ("SPREAD", {"env_vars": {"A": "b"}}, 5.0)
    assert declared("Ray.placement = None").placement is None


@pytest.mark.parametrize(
    "binding, words",
    [
        ("Ray.resources = {'learnr': {}}", "names 'learnr', which is not.*did you mean 'learner'"),
        ("Ray.resources = {'actor': {'num_gpu': 1}}", "unknown word 'num_gpu'.*'num_gpus'"),
        ("Ray.resources = {'actor': {'CPU': 1}}", "unknown word 'CPU'.*num_cpus"),
        ("Ray.resources = {'actor': {'memory_gb': -1}}", "'memory_gb'.*at least 0; got -1"),
        ("Ray.resources = {'actor': {'num_cpus': True}}", "at least 0; got True"),
        ("Ray.resources = {'actor': {'num_gpus': 1.5}}", "whole GPUs only"),
        ("Ray.resources = {'actor': 3}", "must be a dict of amounts"),
        ("Ray.resources = {'actor': {'resources': {'GPU': 1}}}", "has a word of its own"),
        ("Ray.resources = {'actor': {'resources': 3}}", "dict of amounts by the names"),
        ("Ray.resources = 3", "must be a dict by kind of job"),
        ("Ray.resources = {'actor': {'num_cpus': %cpus}}", "must be written out, without @ or %"),
        ("Ray.placement = 'pack'", "None or one of PACK, SPREAD, .*; got 'pack'"),
        ("Ray.runtime_env = 'pip'", "must be a dict such as"),
        ("Ray.wait_seconds = None", "must be a number, at least 0; got None"),
    ],
)
def test_what_is_wrong_is_refused(binding, words):
    with pytest.raises(errors.ConfigError, match=words):
        declared(binding)


def test_the_old_name_of_the_resources_leads_to_the_new_one():
    with pytest.raises(errors.ConfigError, match="it is Ray.resources now"):
        config.check(config.ConfigSource((), ("Jobs.resources = {}",)))


def test_a_jobs_own_look_at_the_settings_refuses_the_same():
    with pytest.raises(errors.ConfigError, match="unknown word"):
        ray_settings.Ray(resources={"actor": {"num_gpu": 1}})
