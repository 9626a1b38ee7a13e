"""The wheel, the constraints and the Makefile, used the way a user meets them."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from importlib import metadata

import pytest
from packaging import requirements, specifiers

ROOT = pathlib.Path(__file__).resolve().parent.parent


def run(*command, cwd, **environment):
    """Runs a command to its end and returns what it did.

    It inherits neither a Python path nor the settings of the `make` that may run these tests.
    """
    hidden = {"PYTHONPATH", "MAKEFLAGS", "MAKELEVEL", "MFLAGS", "ARGS"}
    inherited = {key: value for key, value in os.environ.items() if key not in hidden}
    return subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**inherited, **environment},
        capture_output=True,
        text=True,
        timeout=240,
    )


def succeed(*command, cwd, **environment):
    done = run(*command, cwd=cwd, **environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The path of a wheel built from a copy of the sources, so that the checkout stays clean."""
    source = tmp_path_factory.mktemp("source")
    for name in ("setup.py", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    ignored = shutil.ignore_patterns("__pycache__")
    for name in ("actor_learner", "gin"):
        shutil.copytree(ROOT / name, source / name, ignore=ignored)
    build = (sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", "dist", ".")
    succeed(*build, cwd=source)
    (found,) = (source / "dist").glob("*.whl")
    return found


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """The `bin` of a fresh environment with the wheel in it and its dependencies borrowed.

    The dependencies are those of the environment the tests run in, added after the wheel is
    installed and without the `.pth` files that may make this checkout importable.
    """
    place = tmp_path_factory.mktemp("environment")
    venv.create(place, with_pip=False, symlinks=True)
    pip = (sys.executable, "-m", "pip", "--python", place / "bin" / "python", "install", "-q")
    succeed(*pip, "--no-deps", "--no-index", wheel, cwd=place)
    (site_packages,) = place.glob("lib/python*/site-packages")
    borrowed = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    (site_packages / "borrowed.pth").write_text("\n".join(sorted(borrowed)) + "\n")
    return place / "bin"


def test_wheel_carries_every_gin_file_and_every_module(wheel):
    inside = set(zipfile.ZipFile(wheel).namelist())
    configs = {p.relative_to(ROOT / "gin").as_posix() for p in (ROOT / "gin").rglob("*.gin")}
    assert "dqn_cartpole.gin" in configs
    assert {f"actor_learner/gin_files/{name}" for name in configs} <= inside
    modules = {p.relative_to(ROOT).as_posix() for p in (ROOT / "actor_learner").rglob("*.py")}
    assert modules <= inside
    assert {"actor_learner/py.typed", "actor_learner/__init__.pyi"} <= inside
    assert [name for name in inside if name.endswith("LICENSE")]
    assert not [name for name in inside if name.startswith(("gin/", "tests/"))]


def test_wheel_declares_its_extras_python_and_console_script(wheel):
    archive = zipfile.ZipFile(wheel)
    (name,) = [n for n in archive.namelist() if n.endswith(".dist-info/METADATA")]
    lines = archive.read(name).decode().splitlines()
    assert "Name: actor-learner" in lines
    (python,) = [line.split(": ")[1] for line in lines if line.startswith("Requires-Python: ")]
    assert specifiers.SpecifierSet(python) == specifiers.SpecifierSet(">=3.9,<3.12")
    extras = {line.split(": ")[1] for line in lines if line.startswith("Provides-Extra: ")}
    assert extras == {
        "atari", "box2d", "docs", "envpool", "mujoco", "multiagent",
        "ray", "redis", "test", "wandb",
    }  # fmt: skip
    scripts = archive.read(name.replace("METADATA", "entry_points.txt")).decode()
    assert "actor-learner = actor_learner.cli:main" in scripts


def test_installed_package_finds_its_gin_files_from_any_directory(installed, tmp_path):
    program = "from actor_learner import config; print(config.find('dqn_cartpole.gin'))"
    found = succeed(installed / "python", "-c", program, cwd=tmp_path).strip()
    assert found.startswith(str(installed.parent))
    assert found.endswith("site-packages/actor_learner/gin_files/dqn_cartpole.gin")


def test_installed_package_trains_from_another_directory(installed, tmp_path):
    succeed(
        installed / "actor-learner",
        "train",
        "--gin_file=dqn_cartpole.gin",
        "--gin_param=Experiment.environment_steps = 2000",
        "--run_dir=run",
        cwd=tmp_path,
    )
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines]
    operative = (tmp_path / "run" / "operative_config.gin").read_text()
    assert "Experiment.environment_steps = 2000" in operative


def test_gin_folder_is_not_a_package():
    assert not (ROOT / "gin" / "__init__.py").exists()


def test_constraints_are_what_is_installed():
    pins = []
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            pin = requirements.Requirement(line)
            if pin.marker is None or pin.marker.evaluate():
                pins.append(pin)
    names = [pin.name for pin in pins]
    assert len(names) == len(set(names))
    differing = {}
    for pin in pins:
        try:
            version = metadata.version(pin.name)
        except metadata.PackageNotFoundError:
            continue
        if version not in pin.specifier:
            differing[str(pin)] = version
    assert differing == {}
    assert {"tensorflow", "tf-agents", "dm-reverb", "gymnasium", "gin-config", "box2d"} <= set(
        names
    )


def test_constraints_name_no_hosts_and_no_paths():
    text = (ROOT / "constraints.txt").read_text()
    assert "/" not in text
    assert "@" not in text


# The Makefile, asked what it would do.


@pytest.fixture
def checkout(tmp_path):
    """A folder with the Makefile and what its rules depend on."""
    for name in ("Makefile", "setup.py", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


def planned(checkout, *arguments):
    """The commands `make` would run, one string each, continued lines joined."""
    text = succeed("make", "-n", *arguments, cwd=checkout).replace("\\\n", " ")
    return [" ".join(line.split()) for line in text.splitlines()]


@pytest.mark.parametrize(
    "arguments, command",
    [
        ("", "--gin_file=gin/dqn_cartpole.gin"),
        ("--seed=3", "--gin_file=gin/dqn_cartpole.gin --seed=3"),
        ("--gin_file=a.gin --seed=3", "--gin_file=a.gin --seed=3"),
        ("--resume=runs/a", "--resume=runs/a"),
        ("--gin_param='A.b = 1'", "--gin_file=gin/dqn_cartpole.gin --gin_param='A.b = 1'"),
    ],
)
def test_make_train_passes_arguments_and_keeps_the_default_leaf(checkout, arguments, command):
    last = planned(checkout, "train", f"ARGS={arguments}")[-1]
    assert last == f".venv/bin/python train.py {command}"


def test_make_installs_once_and_again_only_after_a_change(checkout):
    assert any("pip install" in line for line in planned(checkout, "test"))
    (checkout / ".venv").mkdir()
    for stamp in (".installed", ".installed-test"):
        (checkout / ".venv" / stamp).touch()
    command = ".venv/bin/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder"
    assert planned(checkout, "test") == [command]
    assert len(planned(checkout, "train")) == 1
    newer = (checkout / ".venv" / ".installed").stat().st_mtime + 10
    os.utime(checkout / "constraints.txt", (newer, newer))
    assert any("pip install" in line for line in planned(checkout, "train"))


def test_make_without_a_suitable_python_says_so_in_one_line(checkout):
    done = run("make", "train", "PYTHON=no-such-python", cwd=checkout)
    assert done.returncode == 2
    errors = [line for line in done.stderr.splitlines() if not line.startswith("make")]
    assert len(errors) == 1
    assert errors[0].startswith("error: no Python 3.10, 3.11 or 3.9")
    assert "no-such-python" in errors[0]
    assert not (checkout / ".venv").exists()
