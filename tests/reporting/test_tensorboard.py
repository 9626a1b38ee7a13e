import subprocess
import sys

import pytest

from actor_learner.reporting import tensorboard
from actor_learner.support import errors


def read_scalars(directory):
    from tensorboard.backend.event_processing import event_file_loader
    from tensorboard.util import tensor_util

    scalars = {}
    for path in sorted(directory.glob("events.out.tfevents.*")):
        for event in event_file_loader.EventFileLoader(str(path)).Load():
            for value in event.summary.value:
                number = tensor_util.make_ndarray(value.tensor).item()
                scalars.setdefault(value.tag, []).append((event.step, number))
    return scalars


def test_every_metric_is_drawn_under_its_tag_against_environment_steps(tmp_path):
    import tensorflow as tf

    logger = tensorboard.TensorBoardLogger(tmp_path)
    logger.write(
        {
            "environment_steps": 1000,
            "return": 21.5,
            "episode_length": 22,
            "environment_steps_per_second": 1250.0,
            "train_steps_per_second": 640.0,
            "loss": 0.25,
            "replay_size": 1000,
            "samples_per_insert": 32.0,
            "epsilon": 0.5,
            "my_metric": 7,
            "phase": "warm-up",
        }
    )
    with tf.summary.record_if(False):
        logger.write({"environment_steps": 2000, "eval_return": 475.5, "eval_return_std": 2.0})
    expected = {
        "charts/episodic_return": [(1000, 21.5)],
        "charts/episodic_length": [(1000, 22.0)],
        "charts/SPS": [(1000, 1250.0)],
        "charts/train_steps_per_second": [(1000, 640.0)],
        "losses/loss": [(1000, 0.25)],
        "replay/size": [(1000, 1000.0)],
        "replay/samples_per_insert": [(1000, 32.0)],
        "charts/epsilon": [(1000, 0.5)],
        "charts/my_metric": [(1000, 7.0)],
        "eval/return": [(2000, 475.5)],
        "eval/return_std": [(2000, 2.0)],
    }
    assert read_scalars(tmp_path) == expected  # Before close: each row is flushed.
    logger.close()


def test_a_number_too_large_to_be_drawn_is_infinite_there_and_no_error(tmp_path):
    logger = tensorboard.TensorBoardLogger(tmp_path)
    logger.write({"environment_steps": 1, "return": 1e39, "replay_size": 2**40})
    logger.close()
    assert read_scalars(tmp_path) == {
        "charts/episodic_return": [(1, float("inf"))],
        "replay/size": [(1, 2.0**40)],
    }


def test_a_row_without_environment_steps_is_refused(tmp_path):
    logger = tensorboard.TensorBoardLogger(tmp_path)
    with pytest.raises(errors.ActorLearnerError, match=r"no 'environment_steps', only \['loss'\]"):
        logger.write({"loss": 1.0})
    logger.close()


def test_importing_the_room_imports_no_heavy_library():
    code = (
        "import sys, pkgutil, importlib\n"
        "from actor_learner import reporting\n"
        "for module in pkgutil.iter_modules(reporting.__path__):\n"
        "    importlib.import_module('actor_learner.reporting.' + module.name)\n"
        "heavy = ['tensorflow', 'tf_agents', 'reverb', 'gymnasium', 'matplotlib', 'imageio']\n"
        "assert 'actor_learner.reporting.tensorboard' in sys.modules\n"
        "print([name for name in heavy if name in sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, stdout=subprocess.PIPE, text=True
    )
    assert done.stdout == "[]\n"
