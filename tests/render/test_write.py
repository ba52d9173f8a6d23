import re
import subprocess

import imageio.v3 as iio
import imageio_ffmpeg
import numpy as np
import pytest

from fphys import render


def moving_bar(frames=12, height=64, width=96):
    video = np.full((frames, height, width, 3), 30, np.uint8)
    for t in range(frames):
        video[t, :, 6 * t : 6 * t + 12] = (220, 60, 40)
    return video


def read_video(path):
    """Frames, and ffmpeg's description of the stream."""
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-i", path, "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    done = subprocess.run(command, capture_output=True, check=True)
    (about,) = re.findall(r"Input #0.*?Stream #0:0[^:]*: Video: (.*?)$", done.stderr.decode(), re.DOTALL | re.MULTILINE)
    width, height = map(int, re.search(r", (\d+)x(\d+)", about).groups())
    return np.frombuffer(done.stdout, np.uint8).reshape(-1, height, width, 3), about


def test_a_video_comes_back_as_it_went_in(tmp_path):
    video = moving_bar()
    path = render.write_video(tmp_path / "new" / "bar.mp4", video, fps=12.5)
    read, about = read_video(path)
    assert read.shape == video.shape
    assert np.abs(read.astype(int) - video).mean() < 6
    assert about.startswith("h264")
    assert "yuv420p" in about
    assert "12.50 fps" in about
    assert [file.name for file in path.parent.iterdir()] == ["bar.mp4"]


def test_an_odd_size_loses_its_last_row_and_column(tmp_path):
    path = render.write_video(tmp_path / "odd.mp4", moving_bar(height=65, width=97))
    assert read_video(path)[0].shape[1:3] == (64, 96)


def test_a_picture_comes_back_exactly(tmp_path):
    image = moving_bar(1)[0]
    np.testing.assert_array_equal(iio.imread(render.write_image(tmp_path / "bar.png", image)), image)


@pytest.mark.parametrize(
    ("name", "video", "text"),
    [
        ("a.mp4", np.zeros((3, 8, 8, 3), np.float32), "float32"),
        ("a.mp4", np.zeros((8, 8, 3), np.uint8), r"\(8, 8, 3\)"),
        ("a.mp4", np.zeros((0, 8, 8, 3), np.uint8), r"\(0, 8"),
        ("a.mp4", np.zeros((2, 1, 8, 3), np.uint8), "at least 2 x 2"),
        ("a.gif", np.zeros((2, 8, 8, 3), np.uint8), "must end in .mp4"),
    ],
)
def test_what_is_no_video_is_refused(tmp_path, name, video, text):
    with pytest.raises(ValueError, match=text):
        render.write_video(tmp_path / name, video)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("fps", [0, -1.0, np.nan, np.inf])
def test_a_rate_that_cannot_be_is_refused(tmp_path, fps):
    with pytest.raises(ValueError, match=f"fps is {fps}, must be positive"):
        render.write_video(tmp_path / "a.mp4", moving_bar(), fps)
    assert not list(tmp_path.iterdir())


def test_a_failed_encoding_leaves_the_old_video(tmp_path, monkeypatch):
    path = render.write_video(tmp_path / "bar.mp4", moving_bar())
    before = path.read_bytes()
    monkeypatch.setattr(imageio_ffmpeg, "get_ffmpeg_exe", lambda: "false")
    with pytest.raises(OSError, match="ffmpeg failed"):
        render.write_video(path, moving_bar())
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["bar.mp4"]
