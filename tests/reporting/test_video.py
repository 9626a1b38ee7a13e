import numpy as np
import pytest
from imageio import v2 as imageio

from actor_learner.reporting import video
from actor_learner.support import errors


def frame(height, width, color):
    picture = np.zeros((height, width, 3), np.uint8)
    picture[:] = color
    return picture


def test_twenty_frames_come_back_with_their_size_and_colours(tmp_path):
    path = tmp_path / "videos" / "episode.mp4"
    colors = [(200, 30, 40)] * 10 + [(20, 60, 210)] * 10
    writer = video.VideoWriter(path, fps=10)
    for color in colors:
        writer.append(frame(48, 64, color))
    assert not path.exists()
    writer.close()
    writer.close()
    with imageio.get_reader(path) as reader:
        meta = reader.get_meta_data()
        frames = list(reader.iter_data())
    assert len(frames) == 20
    assert meta["size"] == (64, 48)
    assert meta["fps"] == 10.0
    assert meta["duration"] == 2.0
    assert meta["codec"] == "h264"
    assert meta["pix_fmt"].startswith("yuv420p")
    for shown, color in zip(frames, colors):
        assert np.abs(shown.astype(int) - color).max() <= 12
    assert list(path.parent.iterdir()) == [path]


def test_odd_sides_are_padded_with_the_edge(tmp_path):
    path = tmp_path / "odd.mp4"
    with video.VideoWriter(path, fps=30) as writer:
        writer.append(frame(33, 45, (0, 200, 0)))
    with imageio.get_reader(path) as reader:
        (shown,) = reader.iter_data()
    assert shown.shape == (34, 46, 3)
    assert np.abs(shown[-1, -1].astype(int) - (0, 200, 0)).max() <= 12


def test_without_frames_no_file_is_left(tmp_path):
    video.VideoWriter(tmp_path / "a.mp4", fps=30).close()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "wrong, shown",
    [
        (np.zeros((8, 8, 3), np.float32), r"float32 \[8, 8, 3\]"),
        (np.zeros((8, 8), np.uint8), r"uint8 \[8, 8\]"),
        (np.zeros((8, 8, 4), np.uint8), r"uint8 \[8, 8, 4\]"),
        (np.zeros((0, 8, 3), np.uint8), r"uint8 \[0, 8, 3\]"),
        (None, "'NoneType'"),
    ],
)
def test_a_frame_of_the_wrong_kind_is_refused_in_our_words(tmp_path, wrong, shown):
    writer = video.VideoWriter(tmp_path / "a.mp4", fps=30)
    with pytest.raises(errors.SpecMismatchError, match=shown + ".*render_mode='rgb_array'"):
        writer.append(wrong)
    writer.close()
    assert list(tmp_path.iterdir()) == []


def test_a_change_of_size_is_refused_and_the_video_so_far_is_kept(tmp_path):
    path = tmp_path / "a.mp4"
    with video.VideoWriter(path, fps=30) as writer:
        writer.append(frame(32, 32, (1, 2, 3)))
        with pytest.raises(errors.SpecMismatchError, match=r"\[32, 32, 3\] and now got \[16, 32"):
            writer.append(frame(16, 32, (1, 2, 3)))
    assert imageio.get_reader(path).count_frames() == 1


def test_a_closed_video_takes_no_frame(tmp_path):
    writer = video.VideoWriter(tmp_path / "a.mp4", fps=30)
    writer.close()
    with pytest.raises(errors.ActorLearnerError, match="is closed"):
        writer.append(frame(8, 8, (0, 0, 0)))


def test_other_formats_and_impossible_rates_are_refused_at_once(tmp_path):
    with pytest.raises(errors.ConfigError, match="must end in .mp4"):
        video.VideoWriter(tmp_path / "a.gif", fps=30)
    with pytest.raises(errors.ConfigError, match="fps of video .* is 0"):
        video.VideoWriter(tmp_path / "a.mp4", fps=0)
