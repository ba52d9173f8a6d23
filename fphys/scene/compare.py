"""One scene and one control on several engines: the same numbers of each, beside one another."""

import copy
import dataclasses
import time
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from ..errors import MissingDependencyError, ModelError, UnsupportedError
from .compose import compose, layout
from .scene import BACKENDS, Scene
from .sensors import Contact
from .specs import LINK, ActionSpec, ObservationSpec
from .ticket import Engine

_COLORS = {"native": "#1769aa", "genesis": "#ec6a29", "physx": "#3b8c3b"}


@dataclasses.dataclass(frozen=True, eq=False)
class Motion:
    """What one engine made of a scene: NumPy arrays, float64; after each step, with the beginning as the first row."""

    times: np.ndarray  # [s], (step + 1,)
    positions: np.ndarray  # of hinges and slides [rad or m], (step + 1, joint)
    velocities: np.ndarray  # [rad/s or m/s], (step + 1, joint)
    links: np.ndarray  # position [m], quaternion, velocity [m/s], angular velocity [rad/s], (step + 1, link, 13)
    energy: np.ndarray  # kinetic, of gravity and of joints' springs [J], (step + 1,)
    force: np.ndarray  # net force of the contacts of each link [N], world axes, (step + 1, link, 3); 0 at the beginning
    seconds: float  # that a step took, the median [s]


@dataclasses.dataclass(frozen=True, eq=False)
class Comparison:
    """The motion of a scene on several engines."""

    motions: dict[str, Motion]  # by back end
    absent: dict[str, str]  # why a back end is not among them
    joints: tuple[str, ...]
    links: tuple[str, ...]  # bodies that move

    def difference(self, name: str, reference: str = "native") -> dict[str, float]:
        """The largest differences of an engine from another one.

        Returns:
            Of joints [rad or m] ("positions"), of links' places [m] ("links"), of the energy [J], and of the impulse of
            all contacts [N s] ("impulse"), which is less a matter of single steps than their force.

        Raises:
            ModelError: one of them did not run.
        """
        for key in (name, reference):
            if key not in self.motions:
                why = self.absent.get(key, "it was not among the backends")
                raise ModelError(
                    f"{key!r} did not run: {why}; these did: {', '.join(self.motions)}. difference(name, reference) "
                    "takes two of them"
                )
        a, b = self.motions[name], self.motions[reference]
        step = float(a.times[1] - a.times[0])
        gaps = {
            "positions": a.positions - b.positions,
            "links": (a.links - b.links)[..., :3],
            "energy": a.energy - b.energy,
            "impulse": (a.force - b.force).sum(0) * step,
        }
        return {key: float(np.abs(gap).max(initial=0.0)) for key, gap in gaps.items()}

    def figure(self) -> Any:
        """A ``matplotlib.figure.Figure``: joints, or heights where there are none, energy, contacts, time per step."""
        from matplotlib.figure import Figure

        figure = Figure(figsize=(12, 3), layout="constrained")
        motion, energy, force, cost = figure.subplots(1, 4, width_ratios=(3, 3, 3, 1))
        for name, run in self.motions.items():
            line = {"color": _COLORS.get(name), "lw": 1.0, "alpha": 0.8}
            moved = run.positions if self.joints else run.links[..., 2]
            motion.plot(run.times, moved, **line)
            energy.plot(run.times, run.energy, label=name, **line)
            force.plot(run.times, np.linalg.norm(run.force, axis=-1).sum(-1), **line)
            cost.bar([name], [1e3 * run.seconds], color=_COLORS.get(name))
        labels = ("joints [rad or m]" if self.joints else "heights [m]", "energy [J]", "contact forces [N]")
        for axes, label in zip((motion, energy, force), labels, strict=True):
            axes.set(xlabel="time [s]", ylabel=label)
        cost.set(xlabel="engine", ylabel="a step [ms]", yscale="log")
        cost.tick_params(axis="x", rotation=45)
        energy.legend(frameon=False)
        return figure


def compare(
    scene: Scene,
    control: Any = None,
    steps: int | None = None,
    positions: Any = None,
    action: ActionSpec | None = None,
    backends: str | Sequence[str] = BACKENDS,
) -> Comparison:
    """Run one world of a scene on several engines under one control.

    Sensors of the scene are left out: every body that moves and has a name is observed, and its contacts.

    Args:
        control: (step, control), as ``world.step`` takes them; None for no control.
        steps: how many; by default as many as controls, or 1,000.
        positions: of the joints at the beginning, as in ``world.init``.
        action: what the controls mean.
        backends: engines, several or one. One that is not installed, or refuses the scene, is among ``absent`` with
            the reason.

    Raises:
        ModelError: no engine is left, there is no step, or not one for each control.
    """
    control = None if control is None else np.asarray(control, float)
    steps = (1000 if control is None else len(control)) if steps is None else steps
    if control is not None and (control.ndim != 2 or len(control) != steps):
        raise ModelError(f"control has shape {control.shape}, needs (steps, controls) with {steps} steps")
    if steps < 1:
        raise ModelError(f"{steps} steps: give one at least, or a control with a row for each")
    m = compose(scene.parts, {}, scene.timestep, scene.gravity).compile()
    found = layout(m, {})
    bodies = [b for b in range(m.nbody) if m.body_weldid[b] and m.body(b).name]
    links = tuple(m.body(b).name for b in bodies)
    felt = copy.copy(scene)
    felt.sensors = {f"contact{k}": Contact(link) for k, link in enumerate(links)}
    spec = ObservationSpec(found.joints, links, tuple(felt.sensors))
    motions, absent = {}, {}
    for name in (backends,) if isinstance(backends, str) else backends:
        try:
            world = felt.build(1, backend=name, action=action)
        except (MissingDependencyError, UnsupportedError) as error:
            absent[name] = str(error)
            continue
        seen, seconds = _run(world, not isinstance(world, Engine), control, steps, positions, spec)
        motions[name] = _motion(m, bodies, found.joints, scene.timestep, seen, seconds)
        getattr(world, "close", lambda: None)()
    if not motions:
        raise ModelError("no engine runs this scene:\n" + "\n".join(f"  {name}: {why}" for name, why in absent.items()))
    return Comparison(motions, absent, found.joints, links)


def _run(
    world: Any, pure: bool, control: Any, steps: int, positions: Any, spec: ObservationSpec
) -> tuple[np.ndarray, float]:
    """Observations of one world, (step + 1, column), and the median time of a step [s]."""
    step = jax.jit(world.step) if pure else world.step
    observe = jax.jit(lambda state: world.observe(state, spec)) if pure else lambda state: world.observe(state, spec)
    state = world.init() if positions is None else world.init(positions)
    first = observe(state)
    seen, seconds = [np.asarray(first)[0]], []
    for k in range(steps):
        given = () if control is None else (np.asarray(control[k : k + 1], first.dtype),)
        start = time.perf_counter()
        state = jax.block_until_ready(step(state, *given)) if pure else step(state, *given)
        seconds.append(time.perf_counter() - start)
        seen.append(np.asarray(observe(state))[0])
    world.check(state)
    return np.array(seen, float), float(np.median(seconds))


def _motion(m: Any, bodies: list[int], joints: Any, timestep: float, seen: np.ndarray, seconds: float) -> Motion:
    n, links = len(joints), len(bodies)
    positions, velocities, rest = np.split(seen, [n, 2 * n], axis=1)
    placed = rest[:, : len(LINK) * links].reshape(len(seen), links, len(LINK))
    force = rest[:, len(LINK) * links :].reshape(len(seen), links, 3)
    force[0] = 0.0
    times = timestep * np.arange(len(seen))
    return Motion(times, positions, velocities, placed, _energy(m, bodies, positions, placed), force, seconds)


def _energy(m: Any, bodies: list[int], positions: np.ndarray, links: np.ndarray) -> np.ndarray:
    """Kinetic energy, that of gravity and that of the springs of hinges and slides [J], (step,)."""
    total = np.zeros(len(links))
    for k, b in enumerate(bodies):
        where, quat, speed, spin = np.split(links[:, k], [3, 7, 10], axis=1)
        arm = _turned(quat, m.body_ipos[b])
        centre = speed + np.cross(spin, arm)
        own = _turned(m.body_iquat[b] * [1, -1, -1, -1], _turned(quat * [1, -1, -1, -1], spin))
        total += 0.5 * m.body_mass[b] * (centre**2).sum(1) + 0.5 * (own**2 @ m.body_inertia[b])
        total -= m.body_mass[b] * (where + arm) @ m.opt.gravity
    single = [j for j in range(m.njnt) if m.jnt_type[j] >= 2]  # slides and hinges
    for column, j in enumerate(single):
        stretch = positions[:, column] - m.qpos_spring[m.jnt_qposadr[j]]
        total += 0.5 * np.ravel(m.jnt_stiffness[j])[0] * stretch**2
    return total


def _turned(quat: np.ndarray, vector: np.ndarray) -> np.ndarray:
    """Vectors turned by quaternions (w, x, y, z)."""
    axis, w = quat[..., 1:], quat[..., :1]
    twice = 2 * np.cross(axis, vector)
    return vector + w * twice + np.cross(axis, twice)
