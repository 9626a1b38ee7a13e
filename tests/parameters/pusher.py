"""A process that pushes versions until it is killed, run by the tests as a script.

pusher.py DIRECTORY FIRST_VERSION
"""

import itertools
import sys

import numpy as np

from actor_learner.parameters import store


def main(directory, first):
    parameters = store.ParameterStore(directory)
    for version in itertools.count(int(first)):
        # Several arrays, all saying the same, large enough to be written in several pieces.
        arrays = {f"layer/{i}": np.full([10_000], version, np.int64) for i in range(4)}
        tags = ["best"] if version % 3 == 0 else []
        parameters.push("policy", arrays, version, tags=tags, metadata={"version": version})
        print(version, flush=True)


if __name__ == "__main__":
    assert "tensorflow" not in sys.modules
    main(*sys.argv[1:])
