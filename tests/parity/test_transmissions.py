"""Tendons and actuators against MuJoCo's: lengths, Jacobians, moments, forces, and what is derived from them."""

from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import fphys
from fphys.rigid.forces.actuation import actuator_force, transmissions

from ..rigid.mechanisms import UNCONSTRAINED, case, put, random_inputs, relative, to_state

RING = """
<mujoco>
  <worldbody>
    <geom name="ring" type="{shape}" size="0.3 1" pos="0.1 0.2 0.3" euler="20 30 10"/>
    <body name="a" mocap="true"><site name="a"/></body>
    <body name="b" mocap="true"><site name="b"/></body>
    <body name="side" mocap="true"><site name="side"/></body>
    <body><joint/><geom size="0.1"/></body>
  </worldbody>
  <tendon>
    <spatial><site site="a"/><geom geom="ring"/><site site="b"/></spatial>
    <spatial><site site="a"/><geom geom="ring" sidesite="side"/><site site="b"/></spatial>
  </tendon>
</mujoco>
"""
"""A tendon past, around or through a sphere or cylinder, its ends and its side site anywhere."""

CROSSING = """
<mujoco>
  <worldbody>
    <site name="root" pos="-0.4 0.1 0.05"/>
    <body>
      <joint axis="0 1 0.2"/><joint type="slide" axis="0 1 0"/>
      <geom name="ring" type="{shape}" size="0.1 0.5" mass="1" pos="0.1 0 0.1" euler="80 10 0"/>
      <site name="inside" pos="0.12 0.01 0.08"/>
      <body pos="0.3 0 0"><joint axis="0 1 0"/><geom size="0.05" mass="1"/><site name="tip" pos="0.3 0.1 0.05"/></body>
    </body>
  </worldbody>
  <tendon>
    <spatial stiffness="20" damping="2">
      <site site="root"/><geom geom="ring" sidesite="inside"/><site site="tip"/>
    </spatial>
  </tendon>
</mujoco>
"""
"""A tendon that must pass through a ring."""


def theirs(m: mujoco.MjModel, x: Any) -> dict[str, np.ndarray]:
    d, rows = mujoco.MjData(m), []
    for world in range(len(x.qpos)):
        put(d, x, world)
        mujoco.mj_forward(m, d)
        jacobian, moment = np.zeros((m.ntendon, m.nv)), np.zeros((m.nu, m.nv))
        mujoco.mju_sparse2dense(jacobian, d.ten_J, m.ten_J_rownnz, m.ten_J_rowadr, m.ten_J_colind)
        mujoco.mju_sparse2dense(moment, d.actuator_moment, d.moment_rownnz, d.moment_rowadr, d.moment_colind)
        found = (d.ten_length, jacobian, d.actuator_length, moment, d.actuator_force, d.ten_wrapnum)
        rows.append([np.array(value) for value in found])
    names = ("tendon_length", "tendon_jacobian", "length", "moment", "force", "points")
    return {name: np.array(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)}


@pytest.mark.parametrize("name", ["spatial", "muscle", "everything"])
def test_lengths_jacobians_and_forces_equal_mujocos(name: str):
    model, m = case(name)
    x = random_inputs(m, 200)
    state, expected = to_state(model, x), theirs(m, x)
    found = transmissions(model, state)._asdict() | {"force": actuator_force(model, state, jnp.asarray(x.ctrl))}
    errors = {part: relative(value, expected[part]) for part, value in found.items()}
    assert max(errors.values()) <= 1e-12, errors
    wraps = [t for t in range(m.ntendon) if len(np.unique(expected["points"][:, t])) > 1]
    assert name == "everything" or wraps, "no tendon wraps in some states and not in others: the test is empty"


def plane(seed: int, worlds: int) -> np.ndarray:
    """Two ends and a side point for each world: around the ring, in its plane, to both sides of its circle."""
    rng = np.random.default_rng(seed)
    radius, angle = rng.uniform(0.31, 1.2, (worlds, 3)), rng.uniform(0, 2 * np.pi, (worlds, 3))
    radius[:, 2] = rng.uniform(0.05, 0.8, worlds)
    return np.stack([radius * np.cos(angle), radius * np.sin(angle), np.zeros((worlds, 3))], -1)


@pytest.mark.parametrize("shape", ["sphere", "cylinder"])
@pytest.mark.parametrize("depth", [0.0, 0.2])
def test_every_way_around_is_mujocos(shape: str, depth: float):
    """Long ways and short, by the side site or without, inside and outside; off the plane where there is depth."""
    model = fphys.load(RING.format(shape=shape), disable=UNCONSTRAINED)
    m, worlds = model.structure.source, 3000
    points = plane(0, worlds)
    points[..., 2] = depth * np.random.default_rng(1).standard_normal((worlds, 3))
    turn, d = np.zeros(9), mujoco.MjData(m)
    mujoco.mju_quat2Mat(turn, m.geom_quat[0])
    points = m.geom_pos[0] + points @ turn.reshape(3, 3).T
    lengths, bends = [], []
    for p in points:
        d.mocap_pos[:] = p
        mujoco.mj_forward(m, d)
        lengths.append(d.ten_length.copy())
        bends.append(d.ten_wrapnum.copy())
    state = fphys.init(model, worlds).replace(mocap_pos=jnp.asarray(points))
    found = np.asarray(transmissions(model, state).tendon_length)
    # where MuJoCo stops at 1e-6 short of the touching point inside, lengths differ by the square of that
    assert np.abs(found / np.array(lengths) - 1).max() <= 1e-11
    for t in range(2):
        assert 0.1 < np.mean(np.array(bends)[:, t] == 4) < 0.9
    assert np.mean(np.abs(np.diff(lengths, axis=1)) > 1e-3) > 0.1, "the side site changes nothing"


@pytest.mark.parametrize("shape", ["sphere", "cylinder"])
def test_a_tendon_through_a_ring(shape: str):
    """MuJoCo's touching point is off by up to 1e-6 rad, where its Newton iteration stops."""
    model = fphys.load(CROSSING.format(shape=shape), disable=UNCONSTRAINED)
    m = model.structure.source
    x = random_inputs(m, 200, size=0.3)
    state, expected = to_state(model, x), theirs(m, x)
    found = transmissions(model, state)
    assert 0.2 < np.mean(expected["points"] == 4) < 1.0
    assert relative(found.tendon_length, expected["tendon_length"]) <= 1e-11
    assert relative(found.tendon_jacobian, expected["tendon_jacobian"]) <= 1e-6


def test_setpoints_of_rotations_are_taken_modulo_whole_turns():
    model, m = case("muscle")
    x = random_inputs(m, 50, seed=4)
    i = model.id("actuator", "turn")
    x.ctrl[:, i] = np.linspace(-20, 20, 50)
    period = 2 * np.pi * np.linalg.norm(m.actuator_gear[i, :3])
    force = actuator_force(model, to_state(model, x), jnp.asarray(x.ctrl))
    assert relative(force, theirs(m, x)["force"]) <= 1e-12
    assert np.abs(np.asarray(force)[:, i]).max() < m.actuator_gainprm[i, 0] * period


def test_ranges_of_sums_of_forces_bind():
    """Both ranges are reached in some worlds: what they do is part of every comparison of the model."""
    m = case("muscle").source
    x = random_inputs(m, 100)
    d, held = mujoco.MjData(m), []
    tendon, joint = m.tendon("triceps").id, m.joint("shoulder")
    for world in range(100):
        put(d, x, world)
        mujoco.mj_forward(m, d)
        total = d.actuator_force[(m.actuator_trntype == 3) & (m.actuator_trnid[:, 0] == tendon)].sum()
        held.append((np.isclose(abs(total), 4), d.qfrc_actuator[joint.dofadr[0]] in (-1.5, 2)))
    assert (np.mean(held, 0) > 0.05).all() and (np.mean(held, 0) < 0.95).all()


@pytest.mark.parametrize(
    ("path", "index", "value"),
    [("body.mass", (0, 1), 3.0), ("site.pos", (0, 0), (-0.2, 0.02, 0.1)), ("actuator.gear", (0, 1, 0), 2.0)]
    + [("geom.size", (0, 0), (0.06, 0.1, 0.0)), ("tendon.coef", (0, -1), 0.7), ("qpos0", (0, -1), 0.3)],
)
def test_derived_constants_follow(path: str, index: Any, value: Any):
    """As MuJoCo's mj_setConst; rest lengths that the file did not give as in a file with the change."""
    model, m = case("muscle")
    group, _, name = path.rpartition(".")
    old = getattr(getattr(model, group) if group else model, name)
    changed = model.replace({path: old.at[index].set(jnp.asarray(value))})
    copied, _ = fphys.to_mujoco(changed, fphys.init(model, 1))
    d = mujoco.MjData(copied)
    d.qpos[:] = copied.qpos_spring
    mujoco.mj_forward(copied, d)
    copied.tendon_lengthspring[1:] = d.ten_length[1:, None]  # the file gives that of the first tendon alone
    mujoco.mj_setConst(copied, mujoco.MjData(copied))
    muscle = m.actuator_gaintype == 2
    for ours, theirs in (
        (changed.tendon.lengthspring, copied.tendon_lengthspring),
        (changed.tendon.length0, copied.tendon_length0),
        (changed.tendon.invweight0, copied.tendon_invweight0),
        (changed.actuator.acc0[:, muscle], copied.actuator_acc0[muscle]),
        (changed.dof.invweight0, copied.dof_invweight0),
    ):
        np.testing.assert_allclose(ours[0], theirs, rtol=1e-10, atol=1e-13)
    frozen = model.replace({path: old.at[index].set(jnp.asarray(value))}, derived="frozen")
    np.testing.assert_array_equal(frozen.actuator.acc0, model.actuator.acc0)
    np.testing.assert_array_equal(frozen.tendon.lengthspring, model.tendon.lengthspring)


def test_a_rest_length_that_is_given_stays():
    model, _ = case("muscle")
    rest = model.tendon.lengthspring + 0.1
    changed = model.replace({"tendon.lengthspring": rest, "tendon.coef": model.tendon.coef.at[0, -1].set(0.9)})
    np.testing.assert_array_equal(changed.tendon.lengthspring, rest)
    changed = model.replace({"tendon.coef": model.tendon.coef.at[0, -1].set(0.9)})
    np.testing.assert_array_equal(changed.tendon.lengthspring[0, 0], model.tendon.lengthspring[0, 0])


@pytest.mark.parametrize(
    "path",
    ["body.invweight0", "dof.invweight0", "opt.meaninertia", "tendon.length0", "tendon.invweight0", "actuator.acc0"],
)
def test_a_derived_constant_that_is_given_stays(path: str):
    """Beside masses, of which the others are derived; a later replace derives it again."""
    model, _ = case("muscle")
    group, name = path.split(".")
    read = lambda model: getattr(getattr(model, group), name)  # noqa: E731
    heavier, derived = {"body.mass": 2 * model.body.mass}, model.structure.muscles if name == "acc0" else True
    given = jnp.where(derived, 1.5 * read(model) + 0.1, read(model))
    np.testing.assert_array_equal(read(model.replace({**heavier, path: given})), given)
    slope = jax.grad(lambda given: read(model.replace({**heavier, path: given})).sum())(given)
    np.testing.assert_array_equal(slope, jnp.ones_like(given))
    others, wanted = model.replace({**heavier, path: given}), model.replace(heavier)
    assert (read(others) != read(wanted)).any()
    np.testing.assert_array_equal(read(others.replace(heavier)), read(wanted))
    for x, y in zip(jax.tree.leaves(others.replace({path: read(wanted)})), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("derived", ["recomputed", "frozen"])
def test_a_rest_length_that_is_given_stays_from_then_on(derived: str):
    """As in MuJoCo, whose mj_setConst leaves rest lengths alone; until it is said that they follow again."""
    model, _ = case("muscle")
    moved = {"site.pos": model.site.pos * 1.2}
    rest = model.tendon.lengthspring + 0.1

    def later(rest: Any) -> Any:
        return model.replace({"tendon.lengthspring": rest}, derived=derived).replace(moved)

    np.testing.assert_array_equal(later(rest).tendon.lengthspring, rest)
    slope = jax.grad(lambda rest: later(rest).tendon.lengthspring.sum())(rest)
    np.testing.assert_array_equal(slope, jnp.ones_like(rest))
    wanted = model.replace(moved).tendon.lengthspring[:, 1:]  # the file gives that of the first tendon
    assert jnp.abs(wanted - model.tendon.lengthspring[:, 1:]).max() > 0.01
    follows = later(rest).replace({"tendon.follows": 1.0})
    np.testing.assert_array_equal(follows.tendon.lengthspring[:, 1:], wanted)


def test_models_of_given_rest_lengths_have_one_structure():
    """So that a loop may carry them, and worlds may have their own."""
    model, _ = case("muscle")
    rest = model.tendon.lengthspring * jnp.ones((3, 1, 1))
    assert jax.tree.structure(model.replace({"tendon.lengthspring": rest})) == jax.tree.structure(model)
    assert model.replace({"tendon.lengthspring": rest}).tendon.follows.shape == rest.shape[:2]
    longer = lambda model, _: (model.replace({"tendon.lengthspring": model.tendon.lengthspring + 1}), None)  # noqa: E731
    found, _ = jax.lax.scan(longer, model, None, 2)
    np.testing.assert_allclose(found.tendon.lengthspring, model.tendon.lengthspring + 2)
