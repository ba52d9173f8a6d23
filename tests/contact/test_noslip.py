"""The no-slip pass: MuJoCo's step, its forces, the gradient of the sweeps as taken, and what it is for."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import fphys
from fphys import oracle
from fphys.rigid.solve import noslip
from fphys.rigid.solve.constraint import Ids
from fphys.testing import check_grads

SCENE = """
<mujoco><option timestep="0.005" cone="{cone}" noslip_iterations="{most}" integrator="{integrator}"/>
  <default><joint damping="0.2" frictionloss="0.2"/><geom condim="{condim}"/></default>
  <worldbody><geom type="plane" size="3 3 1" friction="0.6 0.02 0.02"/>
    <body pos="0 0 0.5"><joint name="a" axis="0 1 0"/><joint axis="0.2 0 1"/>
      <geom type="capsule" fromto="0 0 0 0.4 0 -0.3" size="0.05"/>
      <body pos="0.4 0 -0.3"><joint name="b" axis="0.2 1 0"/><joint axis="1 0 0.3"/>
        <geom type="capsule" fromto="0 0 0 0.2 0.1 -0.1" size="0.05"/></body></body>
    <body pos="-0.5 0.4 0.098"><freejoint/><geom type="box" size="0.1 0.15 0.1"/></body>
    <body pos="0.6 -0.4 0.098"><freejoint/><geom type="sphere" size="0.1"/></body>
  </worldbody>
  <tendon><fixed frictionloss="0.1" armature="0.1"><joint joint="a" coef="1"/><joint joint="b" coef="-0.5"/></fixed>
  </tendon>
  <actuator><motor joint="a" gear="3"/><motor joint="b"/></actuator></mujoco>"""
CASES = [("pyramidal", 3, 5, "Euler"), ("elliptic", 3, 5, "implicitfast"), ("elliptic", 6, 4, "RK4")]
EACH = [*CASES[:2], pytest.param(CASES[2], marks=pytest.mark.slow)]
PARTS = [pytest.param(name, marks=pytest.mark.slow) for name in noslip.Pulled._fields if name != "matrix"] + ["matrix"]
FORWARD, STEP = jax.jit(fphys.forward), jax.jit(fphys.step)


@functools.cache
def compared(cone: str, condim: int, most: int, integrator: str) -> tuple[fphys.Model, Any, list[Any]]:
    """The model, MuJoCo's under the oracle's settings but with its islands, and states along its trajectories."""
    m = oracle.strict(SCENE.format(cone=cone, condim=condim, most=most, integrator=integrator))
    m.opt.disableflags &= ~int(mujoco.mjtDisableBit.mjDSBL_ISLAND)
    return fphys.load(m), m, oracle.states(m, 12, trajectories=2)


@pytest.mark.parametrize("case", EACH)
def test_a_step_is_that_of_mujoco(case: Any):
    """Accelerations, forces and velocities; five sweeps of a pyramid do not converge, and must stop where MuJoCo's do.

    MuJoCo's root of an ellipse's multiplier has a tolerance of 1e-10 N^2, which leaves up to 1e-7 of the forces.
    """
    model, _, rows = compared(*case)
    bar = 1e-9 if case[0] == "pyramidal" else 1e-7
    state, ctrl = oracle.to_state(model, rows)
    qacc, info = jax.tree.map(np.asarray, FORWARD(model, state, ctrl))
    assert oracle.error(qacc, np.array([row.qacc for row in rows])).max() < bar
    after = np.asarray(STEP(model, state, ctrl).qvel)
    assert oracle.error(after, np.array([row.after for row in rows])).max() < bar
    slipping = mujoco.MjModel.from_xml_string(SCENE.format(cone=case[0], condim=case[1], most=0, integrator=case[3]))
    moved = 0.0
    for w, row in enumerate(rows):
        n = len(row.contacts.geom)
        order = [int(np.abs(info.contacts.pos[w, :n] - pos).sum(1).argmin()) for pos in row.contacts.pos]
        if len(set(order)) == n:  # the two capsules may touch in one point
            ours = info.force[w][order]
            assert np.abs(ours - row.contacts.force).max(initial=0) < 1e2 * bar * max(1, np.abs(ours).max(initial=0))
        moved = max(moved, np.abs(oracle.answer(slipping, row).qacc - row.qacc).max())
    assert moved > 1e-2, "the pass changes nothing here"


LEAVES = (
    "geom.friction",
    "body.mass",
    "body.inertia",
    "dof.armature",
    "tendon.armature",
    "dof.frictionloss",
    "tendon.frictionloss",
)
LEAVES += ("geom.size", "body.pos", "opt.timestep", "opt.impratio")


def active(case: Any) -> tuple[fphys.Model, fphys.State, Any]:
    """States in which a contact acts, and frictions of geoms that differ: of two equal ones neither is the larger."""
    model, _, rows = compared(*case)
    state, ctrl = oracle.to_state(model, [row for row in rows if row.active][:4])
    ways = 1 + 1e-3 * np.arange(model.structure.ngeom)[None, :, None]
    return model.replace({"geom.friction": np.asarray(model.geom.friction) * ways}), state, jnp.asarray(ctrl)


def leaves(model: fphys.Model, names: Any) -> dict[str, Any]:
    return {name: getattr(getattr(model, name.split(".")[0]), name.split(".")[1]) for name in names}


def check_pass(case: Any, directions: int) -> None:
    """The gradient of the pass by itself, from given accelerations and contacts.

    At given accelerations the forces that the pass starts from are stiff: a step of 1e-6 may move one off its bound.
    """
    model, state, ctrl = active(case)
    info = FORWARD(model, state, ctrl)[1]
    ids = Ids(info.contacts.pair, info.contacts.feature)

    def gripped(changed: dict[str, Any], qpos: Any, qvel: Any, qacc: Any) -> Any:
        found = noslip.without_slip(model.replace(changed), state.replace(qpos=qpos, qvel=qvel), ids, qacc)
        return 1e-2 * found.qacc, 1e-2 * found.force

    args = (leaves(model, LEAVES), state.qpos, state.qvel, info.qacc)
    check_grads(jax.jit(gripped), args, tol=1e-6, directions=directions, steps=(1e-6, 1e-7, 1e-8))


@pytest.mark.parametrize("case", EACH)
def test_the_gradient_is_that_of_the_sweeps(case: Any):
    check_pass(case, directions=3)


@pytest.mark.usefixtures("fresh_traces")
@pytest.mark.parametrize("part", PARTS)
def test_a_hundredth_too_much_of_a_cotangent_is_noticed(monkeypatch: pytest.MonkeyPatch, part: str):
    pull = noslip._pull_op

    def too_much(*args: Any) -> Any:
        found = pull(*args)
        return found._replace(**{part: 1.01 * getattr(found, part)})

    monkeypatch.setattr(noslip, "_pull_op", too_much)
    with pytest.raises(AssertionError, match="gradient checks"):
        check_pass(CASES[1], directions=1)


def test_the_gradient_of_a_step_and_of_forces():
    """The pass between the solver and the damping of the integrator."""
    case = CASES[1]
    model, state, ctrl = active(case)
    contacts = FORWARD(model, state, ctrl)[1].contacts
    pick = jnp.asarray(np.random.default_rng(0).standard_normal((*contacts.pair.shape, 6)))

    def answer(changed: dict[str, Any], qpos: Any, qvel: Any, u: Any) -> Any:
        at, of = state.replace(qpos=qpos, qvel=qvel), model.replace(changed)
        info = fphys.forward(of, at, u, contacts=contacts)[1]
        force = jnp.where((contacts.pair >= 0)[..., None], pick * info.force, 0).sum((1, 2))
        return fphys.step(of, at, u).qvel, 1e-2 * force

    args = (
        leaves(model, ("geom.friction", "body.mass", "dof.damping", "geom.solref", "geom.solimp")),
        state.qpos,
        state.qvel,
        ctrl,
    )
    check_grads(jax.jit(answer), args, tol=1e-6, directions=2)


@pytest.mark.parametrize("cone", ["pyramidal", "elliptic"])
def test_a_box_on_a_slope_does_not_creep(cone: str):
    """mu is 0.5, the slope 0.3: without the pass it creeps by R; sweeps end where they gain less than 1e-6."""
    text = f"""<mujoco><option cone="{cone}" noslip_iterations="MOST" gravity="3 0 -10"/><worldbody>
      <geom type="plane" size="9 9 1" friction="0.5"/>
      <body pos="0 0 0.0999"><freejoint/><geom type="box" size="0.1 0.1 0.1"/></body></worldbody></mujoco>"""
    speed = []
    for most in ("0", "50"):
        model = fphys.load(text.replace("MOST", most))
        state = fphys.init(model, 1)
        for _ in range(200):
            state = STEP(model, state)
        speed.append(abs(float(state.qvel[0, 0])))
    assert speed[0] > 1e-4
    assert speed[1] < 1e-2 * speed[0]


def test_models_without_it_launch_nothing_of_it(monkeypatch: pytest.MonkeyPatch):
    model = fphys.load(SCENE.format(cone="elliptic", condim=3, most=0, integrator="Euler"))
    monkeypatch.setattr(noslip, "_grip", None)
    jax.eval_shape(fphys.step, model, fphys.init(model, 1))
    assert not noslip.grips(model)
