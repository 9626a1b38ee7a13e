"""URLs of registries, and where they come from."""

import subprocess
import sys

import pytest

from actor_learner.naming import connect
from actor_learner.support import errors


@pytest.mark.parametrize(
    "url, place",
    [
        ("memory://here", "memory registry 'here'"),
        ("memory://", "memory registry 'default'"),
        ("file://{}/a%20b", "file registry {}/a b"),
        ("file://localhost{}/c", "file registry {}/c"),
        ("{}/d", "file registry {}/d"),
    ],
)
def test_each_form_of_url_opens_its_registry(tmp_path, url, place):
    with connect.connect(url.format(tmp_path), who="me") as names:
        assert str(names) == place.format(tmp_path)
        assert names.owner.startswith("me@")


@pytest.mark.parametrize(
    "url, message",
    [
        ("http://host/", "http://host/ is not a registry we know"),
        ("file://shared/registry", "write file:///shared/registry, with three slashes"),
        ("file://", "names the machine ''"),
        ("", "empty"),
    ],
)
def test_other_urls_are_refused(url, message):
    with pytest.raises(errors.ConfigError, match=message):
        connect.connect(url)


def test_a_flag_beats_the_environment_which_beats_the_default(monkeypatch):
    monkeypatch.setenv("ACTOR_LEARNER_REGISTRY", "memory://environment")
    assert connect.registry_url("memory://flag", "memory://default") == "memory://flag"
    assert connect.registry_url(None, "memory://default") == "memory://environment"
    monkeypatch.delenv("ACTOR_LEARNER_REGISTRY")
    assert connect.registry_url(None, "memory://default") == "memory://default"
    with pytest.raises(errors.ConfigError, match="set ACTOR_LEARNER_REGISTRY"):
        connect.registry_url()


def test_no_tensorflow_is_needed():
    program = (
        "import sys; from actor_learner.naming import connect, files, memory, redis, registry; "
        "assert not {'tensorflow', 'numpy', 'gin', 'redis'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
