"""Pictures and videos of a motion: by mujoco, headless, on the host. Not differentiable."""

from .camera import Camera
from .motion import frames
from .write import write_image, write_video

__all__ = ["Camera", "frames", "write_image", "write_video"]
