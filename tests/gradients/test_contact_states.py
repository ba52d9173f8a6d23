"""Gradients through contact: against differences of our own steps and of MuJoCo's, and in states of every kind."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import fphys
from fphys.rigid.solve import constraint

from ..parity.corpus import FEATURES, case, searched
from .contact_scenes import KINDS, NAMES, Start, along, slides, states
from .windows import Windows

QUICK = "box on a plane"
STEPPED = (QUICK, "ant")
"""Compared step by step in every run."""
COUNT = 0.8
"""Share of the columns that must count, over all windows; and 20 windows must have that share."""


def marked(*quick: str) -> list[Any]:
    return [pytest.param(name, marks=[] if name in quick else pytest.mark.slow) for name in NAMES]


EACH = [pytest.param(name, marks=pytest.mark.slow) for name in (*FEATURES, *searched()) if name not in NAMES]
"""Every feature by itself: eight windows, one step."""


def windows(name: str, steps: int, start: Start, seed: int = 0) -> Windows:
    """Steps under controls that change; they and activations stay off the ends of their ranges, which have no slope."""
    model, rng = untied(case(name)), np.random.default_rng(seed)
    half = 0.5 * np.ptp(model.structure.source.actuator_ctrlrange, axis=1)
    jitter = 0.02 * half * rng.uniform(-1, 1, (steps, *start.ctrl.shape))
    state = start.state(model)
    state = state.replace(act=state.act + 0.3)
    return Windows(model, state, inside(model, start.ctrl) + jitter)


def untied(model: fphys.Model) -> fphys.Model:
    """With geoms' frictions a thousandth or more apart. Of two the larger counts: where they are equal, the error of a
    centred difference falls with its step only, and not with the square."""
    ways = 1 + 1e-3 * np.arange(model.structure.ngeom)[None, :, None]
    return model.replace({"geom.friction": np.asarray(model.geom.friction) * ways})


def inside(model: fphys.Model, ctrl: np.ndarray) -> np.ndarray:
    """Controls drawn towards the middle of their ranges; a muscle's is from zero to one."""
    m = model.structure.source
    middle = np.where(m.actuator_ctrllimited, m.actuator_ctrlrange.mean(1), 0.0)
    muscle = m.actuator_dyntype == int(mujoco.mjtDyn.mjDYN_MUSCLE)
    return np.where(muscle, 0.5 + 0.3 * ctrl, middle + 0.7 * (ctrl - middle))


def judge(found: Any, tol: float, needed: int) -> None:
    """Enough columns and windows must count, and all of those that do must be right: to the bar, or to five times what
    the differences disagree with themselves, which few may."""
    share, n = found.counts.mean(1), found.counts
    assert n.mean() >= COUNT and (share >= COUNT).sum() >= needed, f"counted: {np.round(share, 2)}"
    blunt = n & (5 * found.apart > tol) & (found.error > tol)
    print(f"worst error {found.error[n & ~blunt].max():.1e}, {n.mean():.0%} counted, {blunt.sum()} blunt differences")
    wrong = np.argwhere(n & ~(found.error <= np.maximum(tol, 5 * found.apart)))
    lines = [
        f"window {w}, {found.group[c]}: error {found.error[w, c]:.1e}, fd {found.apart[w, c]:.1e}" for w, c in wrong
    ]
    assert not lines, "\n".join(lines[:20])
    assert blunt.sum() <= 0.01 * n.sum()


@pytest.mark.parametrize("name", [*marked(*STEPPED), *EACH])
def test_one_step(name: str, full: bool):
    """In pressed, tilted, parting and symmetric states, by state, control and every parameter."""
    count = 25 if name in NAMES and full else 8
    judge(windows(name, 1, states(name, count)).check(), 1e-5, needed=int(0.75 * count))


@pytest.mark.parametrize("name", marked(QUICK))
def test_thirty_two_steps(name: str, full: bool):
    """Along trajectories that slide, stick, roll and come to touch."""
    count = 30 if full else 4
    judge(windows(name, 32, along(name, count)).check(), 1e-4, needed=20 if full else 3)


@pytest.mark.parametrize("name", [name for name in NAMES if case(name).structure.elliptic])
def test_windows_slide_and_stick(name: str):
    """Of the hand's many contacts one slides in almost every state."""
    m, kinds = case(name).structure.source, set()
    for qpos, qvel, ctrl in zip(*along(name, 4 if name == QUICK else 30), strict=True):
        d = mujoco.MjData(m)
        d.qpos[:], d.qvel[:], d.ctrl[:] = qpos, qvel, ctrl
        mujoco.mj_forward(m, d)
        kinds.add(slides(d))
    assert kinds == {True, False} or (name.startswith("hand") and True in kinds)


@pytest.mark.usefixtures("fresh_traces")
def test_a_thousandth_too_much_is_noticed(monkeypatch: pytest.MonkeyPatch):
    operation = constraint._back_solve_op

    def too_much(damping: bool) -> Any:
        def solve(*args: Any) -> Any:
            found = operation(damping)(*args)
            return found._replace(trial=1.001 * found.trial)

        return solve

    monkeypatch.setattr(constraint, "_back_solve_op", too_much)
    with pytest.raises(AssertionError, match="window"):
        judge(windows(QUICK, 1, states(QUICK, 4)).check(), 1e-5, needed=3)


def mujoco_signature(m: mujoco.MjModel, d: mujoco.MjData) -> Any:
    return d.contact.geom.tobytes(), d.efc_state[: d.nefc].tobytes(), d.efc_type[: d.nefc].tobytes()


def mujoco_differences(m: mujoco.MjModel, d: mujoco.MjData, step: float) -> tuple[np.ndarray, np.ndarray]:
    """mjd_transitionFD's A and B side by side, and the columns whose perturbed states keep the signature."""
    size = 2 * m.nv + m.na
    a, b = np.zeros((size, size)), np.zeros((size, m.nu))
    mujoco.mjd_transitionFD(m, d, step, True, a, b, None, None)
    start, e, kept = mujoco.MjData(m), mujoco.MjData(m), []
    mujoco.mj_copyData(start, m, d)
    mujoco.mj_forward(m, d)
    nominal = mujoco_signature(m, d)
    for i in range(size + m.nu):
        same = True
        for sign in (1, -1):
            mujoco.mj_copyData(e, m, start)
            if i < m.nv:
                mujoco.mj_integratePos(m, e.qpos, np.eye(m.nv)[i], sign * step)
            else:
                moved = np.concatenate([e.qvel, e.act, e.ctrl])
                moved[i - m.nv] += sign * step
                e.qvel[:], e.act[:], e.ctrl[:] = np.split(moved, [m.nv, m.nv + m.na])
            mujoco.mj_forward(m, e)
            same &= mujoco_signature(m, e) == nominal
        kept.append(same)
    mujoco.mj_copyData(d, m, start)
    return np.concatenate([a, b], 1), np.array(kept)


@pytest.mark.parametrize("name", marked(QUICK, "ant"))
def test_linearize_equals_mujocos_differences(name: str, full: bool):
    """Column by column, relative to its largest entry; where MuJoCo's differences with two steps disagree by more than
    a fifth of the bar, five times that is the bar."""
    model = case(name)
    m, count = model.structure.source, 25 if full else 6
    start = along(name, count, seed=3)
    ctrl = inside(model, start.ctrl)  # off the limits, where MuJoCo's differences are one-sided
    found = jax.jit(fphys.linearize)(model, start.state(model), jnp.asarray(ctrl))
    ours = np.concatenate(found, 2)
    errors, disagreement, counts = [], [], []
    for w in range(count):
        d = mujoco.MjData(m)
        d.qpos[:], d.qvel[:], d.ctrl[:] = start.qpos[w], start.qvel[w], ctrl[w]
        fine, kept = mujoco_differences(m, d, 1e-6)
        coarse, also = mujoco_differences(m, d, 3e-6)
        size = np.maximum(np.abs(fine).max(0), 1e-3 * np.abs(fine).max())
        errors.append(np.minimum(*(np.abs(ours[w] - x).max(0) for x in (fine, coarse))) / size)
        disagreement.append(np.abs(fine - coarse).max(0) / size)
        counts.append(kept & also)
    errors, disagreement, counts = np.array(errors), np.array(disagreement), np.array(counts)
    print(f"{name}: worst {errors[counts].max():.1e}; MuJoCo with itself {disagreement[counts].max():.1e}")
    assert counts.mean() >= COUNT
    assert (errors <= np.maximum(1e-5, 5 * disagreement))[counts].all()
    assert np.median(disagreement[counts]) <= 2e-6, "the oracle is too blunt to judge anything"


@functools.cache
def gradient_of(name: str, dtype: str) -> Any:
    """By state, control and parameters, world by world, of a weighted sum of the next velocities; and the forces."""
    model = case(name, dtype)
    paths = ("body.mass", "geom.size", "geom.friction", "geom.solref", "geom.solimp", "dof.damping")

    def loss(leaves: Any, qpos: Any, qvel: Any, ctrl: Any, model: Any, weights: Any) -> Any:
        changed = model.replace(leaves, derived="frozen")
        state = fphys.init(model, len(qpos)).replace(qpos=qpos, qvel=qvel)
        return jnp.vdot(weights, fphys.step(changed, state, ctrl).qvel)

    def both(model: Any, qpos: Any, qvel: Any, ctrl: Any, weights: Any) -> Any:
        leaves = {path: getattr(getattr(model, path.split(".")[0]), path.split(".")[1]) for path in paths}
        wide = {k: jnp.repeat(v, len(qpos), 0) for k, v in leaves.items()}
        grads = jax.grad(loss, (0, 1, 2, 3))(wide, qpos, qvel, ctrl, model, weights)
        info = fphys.forward(model, fphys.init(model, len(qpos)).replace(qpos=qpos, qvel=qvel), ctrl)[1]
        return grads, info.force[:, :, 0].max(1)

    return functools.partial(jax.jit(both), model)  # as an argument: XLA would fold a constant for every world


def gradients(name: str, start: Start, dtype: str = "float64") -> tuple[dict[str, np.ndarray], np.ndarray]:
    real = np.dtype(dtype)
    weights = np.random.default_rng(5).standard_normal(start.qvel.shape)
    (leaves, *by_state), force = gradient_of(name, dtype)(*(x.astype(real) for x in (*start, weights)))
    flat = leaves | dict(zip(("qpos", "qvel", "ctrl"), by_state, strict=True))
    return {k: np.asarray(v, float).reshape(len(force), -1) for k, v in flat.items()}, np.asarray(force)


@pytest.mark.parametrize("name", marked(QUICK, "stack of boxes, elliptic"))
def test_no_state_gives_nan_or_hides_its_contact(name: str, full: bool):
    """Pressed in, on an edge, parting, perfectly symmetric: all finite, and where a contact force acts it is felt."""
    count = 1252 if full else 120
    found, force = gradients(name, states(name, count, seed=2))
    assert all(np.isfinite(g).all() for g in found.values())
    felt = np.linalg.norm(found["geom.solref"], axis=1)
    for k, kind in enumerate(KINDS):
        pressed = force[k::4] > 0
        assert pressed.any(), f"{kind}: nothing touches"
        assert (felt[k::4][pressed] > 0).all(), f"{kind}: a contact force acts and its gradient is zero"
    assert (np.linalg.norm(found["qvel"], axis=1) > 0).all()


@pytest.mark.parametrize("name", marked(QUICK))
def test_float32_agrees_with_float64(name: str, full: bool):
    """The gradient of each world by each part, in the norm; the median over the states. What is less than a hundredth
    of its usual size, as that by the damping of a box that lies still, is measured by that."""
    start = along(name, 500 if full else 60, seed=4)
    start = Start(*(np.float64(np.float32(x)) for x in start))
    double, single = (gradients(name, start, dtype)[0] for dtype in ("float64", "float32"))
    for part, g in double.items():
        size = np.linalg.norm(g, axis=1)
        if size.any():
            error = np.linalg.norm(single[part] - g, axis=1) / np.maximum(size, 1e-2 * np.sqrt((size**2).mean()))
            print(f"{name}, {part}: median {np.median(error):.1e}")
            assert np.median(error) <= 1e-3, part
