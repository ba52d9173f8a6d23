"""Images of a rollout's states."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ..errors import ModelError
from .camera import Camera, View, follow
from .canvas import Canvas, visible_geoms
from .flex import Flex
from .flexes import Flexes
from .matter import Grains, Surface


def frames(
    model: Any,
    states: Any,
    camera: str | int | Camera | None = None,
    height: int = 480,
    width: int = 640,
    world: int = 0,
    every: int = 1,
    flexes: Sequence[Flex | Surface | Grains] = (),
) -> np.ndarray:
    """Images of one world's motion: uint8, shape (time, height, width, 3).

    ``states`` is what :func:`fphys.rollout` returns: states stacked on a leading time axis, so that
    ``states.qpos`` has shape (time, world, nq). Every ``every``-th state is drawn, with the model
    parameters of that ``world``. ``camera`` is the name or index of a camera in the model, a
    :class:`Camera`, or None for one that shows the whole motion. If a state is not finite, the last
    finite one before it is drawn instead. ``flexes`` are deforming meshes, surfaces and grains of
    particles at the same times.

    mujoco draws on the host without a display, so this is not traceable and not differentiable.
    Without OpenGL it raises :class:`fphys.errors.MissingDependencyError`, which says what to install.
    """
    import jax

    from ..model.load import to_mujoco

    _check(states, world, every)
    taken = jax.tree.map(lambda x: np.asarray(x)[::every], states)
    source, data = to_mujoco(model, jax.tree.map(lambda x: x[0], taken), world)
    soft = Flexes(flexes, world, every) if flexes else None
    if soft is not None and len(soft.low) != len(taken.qpos):
        raise ValueError(f"the flexes have {len(soft.low)} times, the states {len(taken.qpos)}: they must be as many")
    motion = _Motion(source, data, taken, world, soft)

    with Canvas(source, height, width, flexes=soft) as canvas:
        cameras = _cameras(source, motion, camera, width / height)
        return np.stack([canvas.draw(pose, view) for pose, view in zip(motion, cameras, strict=True)])


def sight(
    model: Any,
    state: Any,
    camera: str | int,
    height: int = 480,
    width: int = 640,
    world: int = 0,
    flexes: Sequence[Flex | Surface | Grains] = (),
) -> tuple[np.ndarray, np.ndarray]:
    """What a camera of the model sees in one world of one state, with deforming meshes and particles at one time.

    Returns:
        The image, uint8 (height, width, 3), and its depth along the camera's axis [m], float32 (height, width),
        infinite in the sky. mujoco draws on the host, so this is not differentiable.

    Raises:
        ModelError: there is no such camera. MissingDependencyError: there is no OpenGL.
    """
    import mujoco

    from ..model.load import to_mujoco

    source, data = to_mujoco(model, state, world)
    view = mujoco.MjvCamera()
    view.type = mujoco.mjtCamera.mjCAMERA_FIXED
    view.fixedcamid = _camera_id(source, camera)
    with Canvas(source, height, width, flexes=Flexes(flexes, world) if flexes else None) as canvas:
        return canvas.look(data, view)


class _Motion:
    """``MjData`` at each time, with the poses of bodies, geoms, lights and cameras (always the same object).

    It moves the flexes, too.
    """

    def __init__(self, source: Any, data: Any, states: Any, world: int, flexes: Flexes | None = None) -> None:
        self._source, self._data, self.flexes = source, data, flexes
        self._qpos = np.asarray(states.qpos, float)[:, world]
        self._mocap_pos = np.asarray(states.mocap_pos, float)[:, world]
        self._mocap_quat = np.asarray(states.mocap_quat, float)[:, world]
        finite = np.isfinite(self._qpos).all(-1) & np.isfinite(self._mocap_pos).all((-2, -1))
        self._shown = np.maximum.accumulate(np.where(finite, np.arange(len(self._qpos)), 0))

    def __iter__(self) -> Iterator[Any]:
        import mujoco

        for k, t in enumerate(self._shown):
            if self.flexes is not None:
                self.flexes.put(k)
            self._data.qpos[:] = self._qpos[t]
            self._data.mocap_pos[:] = self._mocap_pos[t]
            self._data.mocap_quat[:] = self._mocap_quat[t]
            for pose in (mujoco.mj_kinematics, mujoco.mj_comPos, mujoco.mj_camlight, mujoco.mj_tendon):
                pose(self._source, self._data)
            yield self._data


def _check(states: Any, world: int, every: int) -> None:
    from ..model.arguments import whole_number

    shape = np.shape(states.qpos)
    if len(shape) != 3 or shape[0] == 0:
        raise ValueError(
            f"states.qpos has shape {shape}, must be (time, world, nq) with at least one state: pass the result of "
            "fphys.rollout, or one state as jax.tree.map(lambda x: x[None], state)"
        )
    if not 0 <= whole_number("world", world) < shape[1]:
        raise ValueError(f"world is {world}, the states have worlds 0 to {shape[1] - 1}")
    if whole_number("every", every) < 1:
        raise ValueError(f"every is {every}, must be at least 1")
    if not np.isfinite(np.asarray(states.qpos)[0, world]).all():
        raise ValueError(f"the first state of world {world} is not finite: there is nothing to draw")


def _cameras(source: Any, motion: _Motion, camera: str | int | Camera | None, aspect: float) -> Iterator[Any]:
    """An ``MjvCamera`` for each time."""
    import mujoco

    view = mujoco.MjvCamera()
    if isinstance(camera, str | int):
        view.type = mujoco.mjtCamera.mjCAMERA_FIXED
        view.fixedcamid = _camera_id(source, camera)
        return (view for _ in motion._shown)
    path = follow(camera or Camera(), *_boxes(source, motion), source.vis.global_.fovy, aspect)
    return (_aim(view, path, t) for t in range(len(path.lookat)))


def _aim(camera: Any, path: View, t: int) -> Any:
    camera.lookat[:] = path.lookat[t]
    camera.distance, camera.azimuth, camera.elevation = path.distance, path.azimuth, path.elevation
    return camera


def _camera_id(source: Any, camera: str | int) -> int:
    import mujoco

    names = [source.camera(i).name for i in range(source.ncam)]
    index = mujoco.mj_name2id(source, mujoco.mjtObj.mjOBJ_CAMERA, camera) if isinstance(camera, str) else camera
    if not 0 <= index < source.ncam:
        raise ModelError(f"the model has no camera {camera!r}; it has {names or 'none'}")
    return index


def _boxes(source: Any, motion: _Motion) -> tuple[np.ndarray, np.ndarray]:
    """Lowest and highest corner [m] of moving geoms and of geoms near them, at each time; each (time, 3)."""
    import mujoco

    endless = np.isin(source.geom_type, (mujoco.mjtGeom.mjGEOM_PLANE, mujoco.mjtGeom.mjGEOM_HFIELD))
    drawn = visible_geoms(source) & ~endless
    moving = (source.body_weldid[source.geom_bodyid] > 0) | (source.body_mocapid[source.geom_bodyid] >= 0)

    def extent(chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        centre, half = source.geom_aabb[chosen, :3], source.geom_aabb[chosen, 3:]
        low, high = [], []
        for data in motion:
            rotation = data.geom_xmat[chosen].reshape(-1, 3, 3)
            middle = data.geom_xpos[chosen] + np.einsum("gij,gj->gi", rotation, centre)
            reach = np.einsum("gij,gj->gi", np.abs(rotation), half)
            points = np.concatenate([data.xpos[1:], data.site_xpos])
            low.append(np.concatenate([middle - reach, points]).min(0, initial=np.inf))
            high.append(np.concatenate([middle + reach, points]).max(0, initial=-np.inf))
        return np.stack(low), np.stack(high)

    low, high = extent(drawn & moving)
    size = np.linalg.norm(high.max(0) - low.min(0))
    near = np.linalg.norm(source.geom_aabb[:, 3:], axis=-1) < (size if np.isfinite(size) else np.inf)
    low, high = extent(drawn & (moving | near))
    if (soft := motion.flexes) is not None:
        low, high = np.minimum(low, soft.low), np.maximum(high, soft.high)
    if not np.isfinite(low).all():  # nothing but planes: look at the model's centre
        reach = np.full(3, source.stat.extent / 2)
        low, high = (np.tile(source.stat.center + sign * reach, (len(low), 1)) for sign in (-1, 1))
    return low, high
