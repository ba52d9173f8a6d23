"""Images and videos of a motion, rendered by mujoco on the host without a display. Not differentiable."""

from .camera import Camera
from .flex import Flex
from .matter import Grains, Surface
from .motion import frames, sight
from .outline import outline
from .splat import splat
from .write import write_image, write_video

__all__ = ["Camera", "Flex", "Grains", "Surface", "frames", "outline", "sight", "splat", "write_image", "write_video"]
