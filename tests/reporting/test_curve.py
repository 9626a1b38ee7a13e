import subprocess
import sys

import numpy as np
import pytest
from imageio import v2 as imageio

from actor_learner.reporting import curve

RETURN, EVALUATION, TARGET = (0x7A, 0x8A, 0xA6), (0xC2, 0x41, 0x0C), (0x15, 0x80, 0x3D)
SECOND_LABEL = (0x1D, 0x4E, 0xD8)


def make_rows(top=500.0, count=20, evaluate_every=5):
    rows = []
    for index in range(1, count + 1):
        value = top * index / count
        row = {
            "seconds": 2.0 * index,
            "environment_steps": 1000 * index,
            "return": value,
            "min_return": value - 20,
            "max_return": value + 20,
        }
        rows.append(row)
        if index % evaluate_every == 0:
            rows.append(
                {
                    "seconds": 2.0 * index,
                    "environment_steps": 1000 * index,
                    "eval_return": value + 10,
                    "eval_return_std": 5.0,
                    "eval_episodes": 20,
                }
            )
    return rows


def pixels_of(path, color):
    picture = imageio.imread(path)[..., :3].astype(int)
    assert picture.shape[:2] == (720, 1200)
    return int((np.abs(picture - color).max(axis=-1) <= 2).sum())


def test_return_evaluation_and_target_are_all_drawn(tmp_path):
    path = tmp_path / "run" / "curve.png"
    curve.draw_curve(make_rows(), path, "dqn_cartpole", target_return=475)
    for color in (RETURN, EVALUATION, TARGET):
        assert pixels_of(path, color) > 300
    assert list(path.parent.iterdir()) == [path]


def width_of(path, color):
    """Columns between the leftmost and the rightmost pixel of a colour."""
    picture = imageio.imread(path)[..., :3].astype(int)
    columns = np.flatnonzero((np.abs(picture - color).max(axis=-1) <= 2).any(axis=0))
    return int(np.ptp(columns))


@pytest.mark.parametrize("seeds", [False, True])
def test_runs_that_collect_nothing_are_drawn_over_their_train_steps(tmp_path, seeds):
    path = tmp_path / "curve.png"
    rows = [
        {"seconds": n, "environment_steps": 0, "train_steps": 100 * n, "eval_return": 3.0 * n}
        for n in range(10)
    ]
    if seeds:
        curve.draw_seed_bands({"bc": [rows, rows]}, path, "bc_cartpole")
    else:
        curve.draw_curve(rows, path, "bc_cartpole")
    assert width_of(path, EVALUATION) > 800  # Of 1,200; all in one column before.


def test_without_evaluation_or_target_neither_is_drawn(tmp_path):
    path = tmp_path / "curve.png"
    curve.draw_curve(make_rows(evaluate_every=1000), path, "dqn_cartpole")
    assert pixels_of(path, RETURN) > 300
    assert pixels_of(path, EVALUATION) == pixels_of(path, TARGET) == 0


@pytest.mark.parametrize("target", [None, 475.0, -180.0, 0.0])
@pytest.mark.parametrize("rows", [[], [{"environment_steps": 10, "seconds": 1.0}]])
def test_without_a_finished_episode_the_picture_is_empty_but_labelled(tmp_path, rows, target):
    path = tmp_path / "curve.png"
    curve.draw_curve(rows, path, "dqn_cartpole", target_return=target)
    assert pixels_of(path, EVALUATION) == 0
    assert (pixels_of(path, TARGET) > 300) == (target is not None)
    assert pixels_of(path, (0x1F, 0x29, 0x37)) > 300  # Title and axis labels.


def test_one_row_and_values_that_are_not_finite_do_no_harm(tmp_path):
    path = tmp_path / "curve.png"
    row = {"environment_steps": 10, "seconds": 1.0, "return": 3.0, "eval_return": 4.0}
    curve.draw_curve([row, {**row, "return": float("nan")}], path, "one")
    assert pixels_of(path, EVALUATION) > 20


def test_a_failed_drawing_keeps_the_old_picture(tmp_path):
    path = tmp_path / "curve.png"
    path.write_bytes(b"old")
    with pytest.raises(ValueError):
        curve.draw_curve([{"environment_steps": 1, "return": "high"}], path, "x")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_drawing_leaves_the_callers_matplotlib_alone(tmp_path):
    code = (
        "import sys, matplotlib\n"
        "matplotlib.use('svg')\n"
        "from actor_learner.reporting import curve\n"
        "curve.draw_curve([], sys.argv[1], 'x')\n"
        "print(matplotlib.get_backend(), 'matplotlib.pyplot' in sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "c.png")],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert done.stdout == "svg False\n"


def test_seeds_are_interpolated_onto_shared_steps_and_keep_their_last_value():
    first = (np.array([0.0, 100.0]), np.array([0.0, 100.0]))
    second = (np.array([10.0, 50.0]), np.array([0.0, 40.0]))
    grid, values = curve._on_common_grid([first, second])
    assert (grid[0], grid[-1]) == (10.0, 100.0)
    assert values.shape == (2, len(grid))
    np.testing.assert_allclose(values[0], grid)
    np.testing.assert_allclose(values[1], np.minimum(grid - 10.0, 40.0))


def test_every_label_is_drawn_in_its_own_colour(tmp_path):
    path = tmp_path / "learn.png"
    runs = {
        "dqn": [make_rows(top) for top in (400.0, 450.0, 500.0)],
        "c51": [make_rows(300.0), make_rows(evaluate_every=1000)],
        "sac": [],
    }
    curve.draw_seed_bands(runs, path, "CartPole-v1", target=475)
    for color in (EVALUATION, SECOND_LABEL, TARGET):
        assert pixels_of(path, color) > 300
    curve.draw_seed_bands({"dqn": runs["dqn"]}, path, "CartPole-v1", value="return")
    assert pixels_of(path, EVALUATION) > 300
    assert pixels_of(path, SECOND_LABEL) == pixels_of(path, TARGET) == 0


def test_without_any_seed_the_bands_are_empty_but_labelled(tmp_path):
    path = tmp_path / "learn.png"
    curve.draw_seed_bands({}, path, "CartPole-v1", target=475)
    assert pixels_of(path, TARGET) > 300
    assert pixels_of(path, EVALUATION) == 0


@pytest.mark.parametrize(
    "total, times",
    [
        (0.5, []),
        (4.0, [1, 2, 3, 4]),
        (76.0, [15, 30, 45, 60, 75]),
        (90_000.0, [21600, 43200, 64800, 86400]),
        (864_000.0, [172800, 345600, 518400, 691200, 864000]),
    ],
)
def test_times_on_the_upper_axis_are_round(total, times):
    assert curve._round_times(total).tolist() == times
