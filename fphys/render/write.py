"""Images and videos on disk."""

import contextlib
import os
import subprocess
import tempfile
from pathlib import Path

import numpy as np


def write_video(path: str | os.PathLike[str], frames: np.ndarray, fps: float = 30.0) -> Path:
    """Write frames, uint8 of shape (time, height, width, 3), as an mp4 that plays everywhere (H.264, yuv420p).

    Odd heights and widths lose their last row or column, because the format needs even ones. The file
    appears under its name only when it is complete.

    Raises:
        ValueError: the frames have another shape or dtype, the rate is not positive and finite, or the name does not
            end in .mp4.
    """
    path, frames = Path(path), np.asarray(frames)
    if frames.ndim != 4 or frames.shape[-1] != 3 or frames.dtype != np.uint8 or 0 in frames.shape:
        raise ValueError(f"frames are {frames.dtype} {frames.shape}, must be uint8 (time, height, width, 3)")
    if min(frames.shape[1:3]) < 2:
        raise ValueError(f"frames of {frames.shape[2]} x {frames.shape[1]} pixels: a video needs at least 2 x 2")
    if not 0 < fps < np.inf:
        raise ValueError(f"fps is {fps}, must be positive and finite: pictures a second")
    if path.suffix != ".mp4":
        raise ValueError(f"{path.name}: a video's name must end in .mp4")
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.stem}.part.mp4")
    try:
        _encode(part, frames[:, : frames.shape[1] // 2 * 2, : frames.shape[2] // 2 * 2], fps)
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
    return path


def _encode(path: Path, frames: np.ndarray, fps: float) -> None:
    """Pipe frames into ffmpeg. (imageio's writer runs Python code in a forked child, which JAX's threads forbid.)"""
    import imageio_ffmpeg

    _, height, width, _ = frames.shape
    source = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}", "-r", f"{fps:.6f}", "-i", "-"]
    target = ["-c:v", "libx264", "-pix_fmt", "yuv420p", "-crf", "20", "-movflags", "+faststart", str(path)]
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-y", "-loglevel", "error", *source, *target]
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=log, start_new_session=True)
        with contextlib.suppress(BrokenPipeError), process:  # the pipe breaks if ffmpeg fails; its log says why
            try:
                for frame in frames:
                    process.stdin.write(frame.tobytes())  # type: ignore[union-attr]
            except KeyboardInterrupt:
                process.kill()
                raise
        if process.returncode:
            log.seek(0)
            said = log.read().decode(errors="replace").strip()
            raise OSError(f"{path}: ffmpeg failed ({process.returncode}): {said}")


def write_image(path: str | os.PathLike[str], image: np.ndarray) -> Path:
    """Write an image, uint8 of shape (height, width, 3), in the format of its file name.

    Raises:
        ValueError: the image has another shape or dtype, or the name has no suffix.
    """
    import imageio.v3 as imageio

    path = Path(path)
    image = np.asarray(image)
    if image.ndim != 3 or image.shape[-1] != 3 or image.dtype != np.uint8:
        raise ValueError(f"the image is {image.dtype} {image.shape}, must be uint8 (height, width, 3)")
    if not path.suffix:
        raise ValueError(f"{path.name}: an image's name must end in .png, .jpg or another format")
    path.parent.mkdir(parents=True, exist_ok=True)
    imageio.imwrite(path, image)
    return path
