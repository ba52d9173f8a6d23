"""Every quantity of the smooth dynamics against MuJoCo's, on random states of every mechanism."""

import copy
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import fphys

from ..rigid.mechanisms import TWINS, Inputs, case, corpus, loads, put, random_inputs, relative, to_state

STATES = 100
REDUCED = {"ant", "arm-urdf", "everything", "franka"}
DOUBLE = [pytest.param(name, marks=pytest.mark.slow if name in TWINS else []) for name in sorted(corpus())]
SINGLE = [pytest.param(name, marks=[] if name in REDUCED else pytest.mark.slow) for name in sorted(corpus())]


def theirs(m: mujoco.MjModel, x: Inputs) -> dict[str, np.ndarray]:
    """What MuJoCo says, every quantity with the world axis first."""
    d = mujoco.MjData(m)
    rows: dict[str, list[Any]] = {}
    for world in range(len(x.qpos)):
        put(d, x, world)
        mujoco.mj_forward(m, d)
        mujoco.mj_energyPos(m, d)
        mujoco.mj_energyVel(m, d)
        matrix, velocity = np.zeros((m.nv, m.nv)), np.zeros((m.nbody, 6))
        mujoco.mj_fullM(m, d, matrix)
        jacobians = {"body": mujoco.mj_jacBody, "site": mujoco.mj_jacSite, "geom": mujoco.mj_jacGeom}
        for b in range(m.nbody):
            mujoco.mj_objectVelocity(m, d, mujoco.mjtObj.mjOBJ_XBODY, b, velocity[b], 0)
        found = {
            "qacc": d.qacc.copy(),
            "force": d.qfrc_smooth - d.qfrc_passive + d.qfrc_bias,
            "matrix": matrix,
            "bias": d.qfrc_bias.copy(),
            "energy": d.energy.copy(),
            "body.pos": d.xpos.copy(),
            "body.quat": d.xquat.copy(),
            "body.vel": np.roll(velocity, 3, axis=1),
        }
        for kind in ("site", "geom"):
            found[f"{kind}.pos"] = getattr(d, f"{kind}_xpos").copy()
            found[f"{kind}.mat"] = getattr(d, f"{kind}_xmat").reshape(-1, 3, 3).copy()
        for kind, count in (("body", m.nbody), ("site", m.nsite), ("geom", m.ngeom)):
            for i in range(count):
                jacobian = np.zeros((6, m.nv))
                jacobians[kind](m, d, jacobian[:3], jacobian[3:], i)
                found[f"jacobian of {kind} {i}"] = jacobian
        d.qacc[:] = x.force[world]
        mujoco.mj_inverse(m, d)
        found["inverse"] = d.qfrc_inverse.copy()
        for name, value in found.items():
            rows.setdefault(name, []).append(value)
    return {name: np.array(row) for name, row in rows.items()}


def ours(model: fphys.Model, x: Inputs, frames: list[tuple[str, int]]) -> dict[str, Any]:
    """The same from fphys, all worlds in one call; Jacobians of the frames given."""
    state, (ctrl, wrench, force) = to_state(model, x), loads(model, x)

    def quantities(state: fphys.State, ctrl: Any, wrench: Any, force: Any) -> dict[str, Any]:
        qacc, _ = fphys.forward(model, state, ctrl, wrench, force)
        kinematics = fphys.kinematics(model, state)
        found = {
            "qacc": qacc,
            "force": fphys.inverse(model, state, qacc),
            "inverse": fphys.inverse(model, state, force),
            "matrix": fphys.mass_matrix(model, state),
            "bias": fphys.bias(model, state),
            "energy": jnp.stack(fphys.energy(model, state), -1),
            "body.pos": kinematics.body.pos,
            "body.quat": kinematics.body.quat,
            "body.vel": kinematics.body.vel,
        }
        for kind in ("site", "geom"):
            found |= {f"{kind}.pos": getattr(kinematics, kind).pos, f"{kind}.mat": getattr(kinematics, kind).mat}
        return found | {f"jacobian of {kind} {i}": fphys.jacobian(model, state, kind, i) for kind, i in frames}

    return jax.jit(quantities)(state, ctrl, wrench, force)


def frames(m: mujoco.MjModel, every: bool) -> list[tuple[str, int]]:
    """The bodies, sites and geoms whose Jacobians are compared: all, or the last of each."""
    counts = {"body": m.nbody, "site": m.nsite, "geom": m.ngeom}
    return [(kind, i) for kind, count in counts.items() for i in range(count) if every or i == count - 1]


@pytest.mark.parametrize("name", DOUBLE)
def test_every_quantity_equals_mujocos(name: str, full: bool):
    model, m = case(name)
    x = random_inputs(m, STATES)
    expected, found = theirs(m, x), ours(model, x, frames(m, full))
    errors = {part: relative(value, expected[part]) for part, value in found.items()}
    assert max(errors.values()) <= 1e-9, {part: error for part, error in errors.items() if error > 1e-9}


@pytest.mark.parametrize("name", SINGLE)
def test_float32_equals_mujocos_float64(name: str):
    """Relative to the largest entry over all states: where terms cancel in one of them, only rounding is left."""
    model, m = case(name, dtype="float32")
    x = Inputs(*(value.astype(np.float32) for value in random_inputs(m, STATES)))
    expected, found = theirs(m, x), ours(model, x, [])
    assert {value.dtype.name for value in found.values()} == {"float32"}
    errors = {part: relative(np.asarray(value)[None], expected[part][None]) for part, value in found.items()}
    assert max(errors.values()) <= 1e-4, {part: error for part, error in errors.items() if error > 1e-4}


def test_what_mujoco_disables_we_disable():
    """A model file's own flags: each switches off the same term on both sides."""
    unchanged, m = case("small")
    x = random_inputs(m, 3)
    step = jax.jit(fphys.step)
    plain = step(unchanged, to_state(unchanged, x), *loads(unchanged, x))
    for flag in ("gravity", "spring", "damper", "actuation", "clampctrl", "eulerdamp"):
        changed = copy.copy(case("small").source)
        changed.opt.disableflags |= getattr(mujoco.mjtDisableBit, f"mjDSBL_{flag.upper()}")
        model = fphys.load(changed)
        d, after = mujoco.MjData(changed), []
        for world in range(3):
            put(d, x, world)
            mujoco.mj_step(changed, d)
            after.append(np.concatenate([d.qpos, d.qvel, d.act]))
        state = step(model, to_state(model, x), *loads(model, x))
        assert relative(jnp.concatenate([state.qpos, state.qvel, state.act], 1), np.array(after)) <= 1e-9, flag
        assert relative(plain.qvel, state.qvel) > 1e-6, f"{flag} changes nothing: the test is empty"
