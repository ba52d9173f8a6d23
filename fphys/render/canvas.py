"""An off-screen OpenGL canvas that mujoco draws on."""

import os
import platform
from types import TracebackType
from typing import Any

import numpy as np

from ..errors import MissingDependencyError
from .flexes import Flexes

PACKAGES = "libegl1 libegl-mesa0 libgl1-mesa-dri"
SHADOW_SIZE = 2048  # as good as mujoco's 4096 at 640 x 480, and twice as fast on a CPU; at 1024, shadows speckle
FINE = 720  # rows from which on an image has mujoco's 4096, and smooth edges, which take twice the time
SAMPLES = 4  # per pixel of a fine image
GLASS = 0.5  # opacity below which a thing casts no shadow
SUNNY = 1.8  # half the edge of the square that has shadows, in distances of the camera
SKY = np.array([[226, 233, 240], [166, 186, 208]], np.float32)  # horizon and zenith, for models without a sky


def backend() -> str:
    """Name of the OpenGL backend: ``MUJOCO_GL`` from the environment, or one that needs no display."""
    chosen = os.environ.get("MUJOCO_GL", "").lower().strip()
    if chosen in ("egl", "osmesa", "glfw", "cgl"):
        return chosen
    return {"Linux": "egl", "Darwin": "cgl"}.get(platform.system(), "glfw")


def gl_context(height: int, width: int) -> Any:
    """Make an off-screen OpenGL context current. Raises :class:`MissingDependencyError` if there is no OpenGL."""
    name = backend()
    try:
        context = _backend_module(name).GLContext(width, height)
        context.make_current()
    except Exception as cause:  # if libraries are missing, PyOpenGL raises anything from ImportError to AttributeError
        raise MissingDependencyError(
            f"cannot draw: OpenGL is not available through {name} ({type(cause).__name__}: {cause}). "
            f"On Debian and Ubuntu: apt-get install {PACKAGES}"
        ) from cause
    return context


def _backend_module(name: str) -> Any:
    if name == "egl":
        from mujoco import egl as module
    elif name == "osmesa":
        from mujoco import osmesa as module
    elif name == "cgl":
        from mujoco import cgl as module
    else:
        from mujoco import glfw as module
    return module


class Canvas:
    """Draws one mujoco model, and flexes. It changes settings of the ``MjModel`` (buffer size, headlight): pass a copy.

    The flexes are a model of their own, because fphys loads no model with flexes.
    """

    def __init__(
        self, model: Any, height: int, width: int, max_geom: int = 20_000, flexes: Flexes | None = None
    ) -> None:
        import mujoco

        if height < 1 or width < 1:
            raise ValueError(f"an image of {width} x {height} pixels: both must be at least 1")
        _prepare(model, height, width)
        self._gl = gl_context(height, width)
        self._model, self._flexes = model, flexes
        self._rect = mujoco.MjrRect(0, 0, width, height)
        self._max_geom, self._seen = max_geom, flexes.model if flexes else model
        self._scene = mujoco.MjvScene(self._seen, maxgeom=max_geom)
        self._context = mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_150.value)
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN.value, self._context)
        self._has_sky = mujoco.mjtTexture.mjTEXTURE_SKYBOX in model.tex_type
        self._option = mujoco.MjvOption()
        self._option.flags[mujoco.mjtVisFlag.mjVIS_RANGEFINDER] = False  # rangefinder rays are not part of the scene
        self._option.flags[mujoco.mjtVisFlag.mjVIS_FLEXSKIN] = True
        self._option.flags[mujoco.mjtVisFlag.mjVIS_FLEXEDGE] = False
        if not visible_geoms(model).any():  # a mechanism without shapes: draw inertias and joints instead
            self._option.flags[mujoco.mjtVisFlag.mjVIS_INERTIA] = True
            self._option.flags[mujoco.mjtVisFlag.mjVIS_JOINT] = True

    def draw(self, data: Any, camera: Any) -> np.ndarray:
        """The image of ``MjData`` seen by an ``MjvCamera``: uint8, shape (height, width, 3)."""
        return self.look(data, camera)[0]

    def look(self, data: Any, camera: Any) -> tuple[np.ndarray, np.ndarray]:
        """The image, and the depth along the camera's axis [m], float32 (height, width), infinite in the sky."""
        import mujoco

        everything = mujoco.mjtCatBit.mjCAT_ALL.value
        if self._flexes is None:
            mujoco.mjv_updateScene(self._model, data, self._option, None, camera, everything, self._scene)
        else:
            if self._flexes.model is not self._seen:  # more particles' triangles than the scene has room for
                self._seen = self._flexes.model
                self._scene = mujoco.MjvScene(self._seen, maxgeom=self._max_geom)
            self._flexes.draw(self._option, self._scene)
            mujoco.mjv_addGeoms(self._model, data, self._option, mujoco.MjvPerturb(), everything, self._scene)
            mujoco.mjv_makeLights(self._model, data, self._scene)
            mujoco.mjv_updateCamera(self._model, data, camera, self._scene)
        self._cast_shadows(camera)
        mujoco.mjr_render(self._rect, self._scene, self._context)
        image = np.empty((self._rect.height, self._rect.width, 3), np.uint8)
        depth = np.empty((self._rect.height, self._rect.width), np.float32)
        mujoco.mjr_readPixels(image, depth, self._rect, self._context)
        if not self._has_sky:
            height = np.linspace(0.0, 1.0, len(image), dtype=np.float32)[:, None]  # the first row is the lowest
            sky = ((1 - height) * SKY[0] + height * SKY[1]).astype(np.uint8)
            image = np.where((depth >= 1.0)[..., None], sky[:, None], image)
        near, far = (self._model.stat.extent * z for z in (self._model.vis.map.znear, self._model.vis.map.zfar))
        metres = np.where(depth >= 1.0, np.inf, near / (1.0 - depth * (1.0 - near / far))).astype(np.float32)
        return np.flipud(image), np.flipud(metres)

    def _cast_shadows(self, camera: Any) -> None:
        """Shadows of the sun where a free camera looks, and none of glass.

        mujoco draws the shadow of a directional light about the light's position, in a square of a fixed size.
        """
        import mujoco

        for geom in self._scene.geoms[: self._scene.ngeom]:
            if geom.rgba[3] < GLASS:
                geom.category = mujoco.mjtCatBit.mjCAT_DECOR
        if camera.type != mujoco.mjtCamera.mjCAMERA_FREE:
            return
        for light in self._scene.lights[: self._scene.nlight]:
            if light.type == mujoco.mjtLightType.mjLIGHT_DIRECTIONAL and not light.headlight:
                self._context.shadowClip = SUNNY * camera.distance
                light.pos = camera.lookat - camera.distance * light.dir

    def close(self) -> None:
        """Free the OpenGL context."""
        self._context.free()
        self._gl.free()

    def __enter__(self) -> "Canvas":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


def visible_geoms(model: Any) -> np.ndarray:
    """Which geoms are drawn: those in groups 0 to 2 that are not transparent, shape (ngeom,)."""
    alpha = np.where(model.geom_matid >= 0, 1.0, model.geom_rgba[:, 3])
    return (model.geom_group <= 2) & (alpha > 0)


def _prepare(model: Any, height: int, width: int) -> None:
    model.vis.global_.offheight = max(height, model.vis.global_.offheight)
    model.vis.global_.offwidth = max(width, model.vis.global_.offwidth)
    model.vis.quality.shadowsize = min(SHADOW_SIZE * (1 + (height >= FINE)), model.vis.quality.shadowsize)
    model.vis.quality.offsamples = SAMPLES if height >= FINE else 0
    if model.nlight == 0:  # the headlight alone is too dim
        model.vis.headlight.ambient[:] = 0.35
        model.vis.headlight.diffuse[:] = 0.6
        model.vis.headlight.specular[:] = 0.2
