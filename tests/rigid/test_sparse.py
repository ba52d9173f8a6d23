"""Mechanisms without matrices: articulated inertias, conjugate gradients and the broad phase.

They must give what MuJoCo gives, and what the dense solve gives, for every mechanism that they can be used for.
"""

import functools
import itertools

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import fphys
from fphys.rigid.collide.collision import _near_op, contacts
from fphys.rigid.collide.pairs import geoms_of
from fphys.testing import check_grads, check_transforms

CONTACTS, FORWARD, INVERSE, STEP = map(jax.jit, (contacts, fphys.forward, fphys.inverse, fphys.step))
BRANCHES = """
<mujoco><option timestep="0.002" jacobian="{jacobian}" integrator="{integrator}"/>
  <default><joint damping="0.3" armature="0.02"/><geom mass="0.4"/></default>
  <worldbody>
    <geom type="plane" size="9 9 1"/>
    <body pos="0 0 0.25"><freejoint/><geom type="box" size="0.2 0.12 0.05"/>
      <body pos="0.2 0.1 0"><joint name="bend" axis="0 1 0" limited="true" range="-20 40" frictionloss="0.3"/>
        <geom type="capsule" fromto="0 0 0 0.1 0.05 -0.2" size="0.04"/>
        <body pos="0.1 0.05 -0.2"><joint type="ball"/><geom size="0.06" friction="0.5 0.01 0.001" condim="6"/></body>
      </body>
      <body pos="-0.2 0 0"><joint name="slide" type="slide" axis="1 0 1" limited="true" range="-0.05 0.05"/>
        <joint axis="0 1 0"/><geom type="capsule" fromto="0 0 0 -0.1 0 -0.22" size="0.05" condim="1"/>
        <body pos="0 0 0.1"><geom size="0.05"/></body>
      </body>
    </body>
    <body pos="0.45 0.2 0.1"><freejoint/><geom size="0.12" condim="4"/></body>
    <body pos="-0.2 0.4 0.1"><geom type="box" size="0.1 0.1 0.1"/></body>
  </worldbody>
  <actuator><position joint="" kp="3"/></actuator>
</mujoco>""".replace('  <actuator><position joint="" kp="3"/></actuator>\n', "")
"""A tree with every kind of joint, limits, dry friction, two joints on one body, a welded body, all condims."""

ROPE = """<body pos="0.1 0 0"><joint axis="0 {a} {b}" damping="0.01"/>
<geom type="capsule" size="0.02" fromto="0 0 0 0.1 0 0"/>"""


def rope(n: int, jacobian: str) -> str:
    """A hanging chain whose hinges are turned against each other."""
    links = "".join(ROPE.format(a=k % 2, b=1 - k % 2) for k in range(n)) + "</body>" * n
    flag = "<flag contact='disable'/>"
    return f"<mujoco><option jacobian='{jacobian}'>{flag}</option><worldbody>{links}</worldbody></mujoco>"


def pile(shape: tuple[int, int, int], jacobian: str, kinds: tuple[str, ...] = ("sphere", "box", "capsule")) -> str:
    """Free bodies over a plane and against a wall, in layers."""
    size = {"sphere": "0.1", "box": "0.09 0.1 0.08", "capsule": "0.07 0.05"}
    rng, bodies = np.random.default_rng(0), ""
    for k, place in enumerate(itertools.product(*map(range, shape))):
        x, y, z = np.array([0.19, 0.2, 0.17]) * place + rng.normal(size=3) * 0.004
        kind = kinds[k % len(kinds)]
        bodies += f"<body pos='{x:.4f} {y:.4f} {z + 0.09:.4f}'><freejoint/>"
        bodies += f"<geom type='{kind}' size='{size[kind]}' mass='0.5'/></body>"
    wall = "<geom type='plane' size='9 9 1'/><geom type='box' size='1 0.05 1' pos='0 -0.14 0.5'/>"
    option = f"<option timestep='0.002' jacobian='{jacobian}'/>"
    return f"<mujoco>{option}<worldbody>{wall}{bodies}</worldbody></mujoco>"


BONDED = """
<mujoco><option timestep="0.002" jacobian="{jacobian}"/>
  <default><joint damping="0.3" armature="0.02"/><geom mass="0.4"/><site size="0.01"/></default>
  <worldbody>
    <geom type="plane" size="9 9 1"/><site name="hook" pos="0.3 0.2 0.8"/>
    <body name="a" pos="0 0 0.2"><freejoint/><geom type="box" size=".2 .12 .05"/>
      <body name="arm" pos="0.2 0.1 0"><joint name="swing" axis="0 1 0"/>
        <geom type="capsule" fromto="0 0 0 0.1 0.05 0.2" size="0.04"/>
        <body name="tip" pos="0.1 0.05 0.2"><joint type="ball" limited="true" range="0 5"/>
          <geom size="0.06" pos="0.02 0 0.08"/><site name="st" pos="0 0 0.1" euler="20 10 0"/></body>
      </body>
    </body>
    <body name="b" pos="0.3 0.15 0.5"><freejoint/><geom size="0.08"/><site name="sb" pos="0 0.05 0"/></body>
    <body name="c" pos="0 0 0.4"><freejoint/><geom type="box" size=".1 .1 .05"/><site name="sc" pos="0 0 -0.1"/></body>
    <body name="d" pos="-0.5 0 0.5"><joint name="x" type="slide" axis="1 0 0.2"/><joint name="y" axis="0 1 0"/>
      <geom type="capsule" fromto="0 0 0 0.1 0 -0.2" size="0.05"/><site name="sd" pos="0.1 0 -0.2"/></body>
    <body name="e" pos="-0.5 0.4 0.5"><joint name="z" axis="1 0 0"/><geom type="box" size=".1 .05 .2" pos="0 0 -.2"/>
      <body name="f" pos="0 0 -0.4"><joint name="w" axis="1 0 0"/><geom name="reel" size=".07"/><site name="sf"/></body>
    </body>
    <body name="g" pos=".6 .5 .3" euler="0 30 0"><freejoint/><geom size=".1"/><site name="sg" pos="0 0.1 0.1"/></body>
  </worldbody>
  <equality>
    <connect body1="tip" body2="b" anchor="0 0 0.1"/><weld body1="c" body2="a" torquescale="0.7"/>
    <connect body1="g" anchor="0 0.05 0.1" solref="0.03 0.8"/><weld site1="st" site2="hook" solref="0.2 1"/>
    <joint joint1="x" joint2="z" polycoef="0.01 0.4 0.2 0 0"/><joint joint1="w" polycoef="0.1 0 0 0 0"/>
    <joint joint1="swing" joint2="y" polycoef="0 0.7 0 0 0"/>
    <tendon tendon1="sum" tendon2="cord" polycoef="0.02 0.3 0 0 0"/><tendon tendon1="line" polycoef="-0.01 0 0 0 0"/>
  </equality>
  <tendon>
    <fixed name="sum" limited="true" range="-0.05 0.05" frictionloss="0.2" damping="0.3">
      <joint joint="y" coef="0.8"/><joint joint="w" coef="-0.5"/><joint joint="swing" coef="0.3"/></fixed>
    <spatial name="cord" limited="true" range="0 0.9" frictionloss=".1" stiffness="5"><site site="sb"/><site site="sc"/>
      <pulley divisor="2"/><site site="sc"/><site site="hook"/><pulley divisor="2"/><site site="hook"/><site site="sd"/>
    </spatial>
    <spatial name="line"><site site="sd"/><geom geom="reel"/><site site="sg"/></spatial>
    <spatial name="stay" limited="true" range="0 0.3"><site site="sf"/><site site="sg"/></spatial>
  </tendon>
</mujoco>"""
"""Equalities between all sorts of bodies, tendons with limits and friction, a ball's limit, two joints on a body."""


MEDIUM = '<option density="50" viscosity="0.3" wind="1 0 0.5"/></mujoco>'
DRIVEN = """<actuator><velocity joint="bend" kv="2"/>
  <general joint="slide" gaintype="affine" gainprm="1 0 -0.5" ctrlrange="-1 1"/></actuator></mujoco>"""


def elliptic(xml: str) -> str:
    return xml.replace("<option ", "<option cone='elliptic' impratio='3' ")


SCENES = {
    "branches": lambda j: BRANCHES.format(jacobian=j, integrator="Euler"),
    "branches-rk4": lambda j: BRANCHES.format(jacobian=j, integrator="RK4"),
    "rope": lambda j: rope(20, j),
    "pile": lambda j: pile((2, 2, 2), j),
    "fast": lambda j: (
        BRANCHES.format(jacobian=j, integrator="implicitfast")
        .replace("</mujoco>", MEDIUM)
        .replace('<geom size="0.12" ', '<geom type="box" size="0.12 0.08 0.05" ')
    ),  # what floats alone has its own block
    "bonded": lambda j: BONDED.format(jacobian=j),
    "elliptic": lambda j: elliptic(pile((2, 2, 2), j)),
    "elliptic branches": lambda j: elliptic(BRANCHES.format(jacobian=j, integrator="Euler")),
}


def settled(xml: str, steps: int, disturb: float = 0.3) -> tuple[mujoco.MjModel, mujoco.MjData]:
    """MuJoCo's state after some steps, its velocities disturbed."""
    m = mujoco.MjModel.from_xml_string(xml)
    m.opt.tolerance, m.opt.iterations = 0, 200
    m.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_ISLAND | mujoco.mjtDisableBit.mjDSBL_WARMSTART
    d = mujoco.MjData(m)
    for _ in range(steps):
        mujoco.mj_step(m, d)
    d.qvel += disturb * np.random.default_rng(1).normal(size=m.nv)
    mujoco.mj_forward(m, d)
    return m, d


def state_of(model: fphys.Model, d: mujoco.MjData) -> fphys.State:
    real = model.qpos0.dtype
    return fphys.init(model, 1).replace(qpos=jnp.array(d.qpos, real)[None], qvel=jnp.array(d.qvel, real)[None])


@functools.cache
def exact(name: str) -> fphys.Model:
    return fphys.load(settled(SCENES[name]("sparse"), 0)[0])


@functools.cache
def pair(name: str, steps: int = 60) -> tuple[fphys.Model, fphys.Model, fphys.State]:
    """The same mechanism without matrices and with, in a state with contacts."""
    _, d = settled(SCENES[name]("sparse"), steps)
    sparse, dense = (fphys.load(SCENES[name](j)) for j in ("sparse", "dense"))
    assert sparse.structure.sparse and not dense.structure.sparse
    return sparse, dense, state_of(sparse, d)


def close(a: jax.Array, b: jax.Array, part: float) -> None:
    scale = max(1.0, float(jnp.abs(b).max()))
    np.testing.assert_allclose(a, b, rtol=0, atol=part * scale)


@pytest.mark.parametrize("steps", [0, 40, 150])
@pytest.mark.parametrize("name", SCENES)
def test_accelerations_are_mujocos(name: str, steps: int) -> None:
    m, d = settled(SCENES[name]("sparse"), steps)
    model = exact(name)
    assert model.structure.sparse
    state = state_of(model, d)
    qacc, info = FORWARD(model, state)
    close(qacc[0], d.qacc, 1e-8)
    assert int(info.status[0]) == 0
    assert info.contacts is None or int((info.contacts.pair >= 0).sum()) == d.ncon
    mujoco.mj_step(m, d)
    close(STEP(model, state).qvel[0], d.qvel, 1e-9)


@pytest.mark.parametrize("name", SCENES)
def test_gradients_are_those_of_the_dense_solve(name: str) -> None:
    sparse, dense, state = pair(name)
    force = 0.1 * jnp.ones((1, sparse.structure.nv))
    weight = jnp.cos(1.7 * jnp.arange(sparse.structure.nv, dtype=float))[None]

    def loss(model: fphys.Model, state: fphys.State, force: jax.Array) -> jax.Array:
        step = lambda state, _: (fphys.step(model, state, force=force), None)  # noqa: E731
        after, _ = jax.lax.scan(step, state, length=2)
        return (after.qvel * weight).sum() + (after.qpos**2).sum()

    found, wanted = (jax.jit(jax.grad(loss, (0, 1, 2), allow_int=True))(m, state, force) for m in (sparse, dense))
    leaves = zip(jax.tree.leaves_with_path(found), jax.tree.leaves(wanted), strict=True)
    for (path, a), b in leaves:
        if b.size and jnp.issubdtype(b.dtype, jnp.floating):
            scale = max(1e-3, float(jnp.abs(b).max()))
            np.testing.assert_allclose(a, b, rtol=0, atol=1e-7 * scale, err_msg=jax.tree_util.keystr(path))


def test_actuators_damp_their_dofs() -> None:
    """With implicitfast: the step is MuJoCo's, and its gradient that of the matrices."""
    xml = BRANCHES.replace("</mujoco>", DRIVEN)
    m, d = settled(xml.format(jacobian="sparse", integrator="implicitfast"), 40)
    sparse, dense = (fphys.load(xml.format(jacobian=j, integrator="implicitfast")) for j in ("sparse", "dense"))
    assert sparse.structure.sparse and not dense.structure.sparse
    state, ctrl = state_of(sparse, d), jnp.array([[0.3, 0.7]])
    d.ctrl[:] = ctrl[0]

    def loss(model: fphys.Model, qvel: jax.Array, ctrl: jax.Array) -> jax.Array:
        return (fphys.step(model, state.replace(qvel=qvel), ctrl).qvel ** 2).sum()

    slopes = jax.jit(jax.grad(loss, (0, 1, 2), allow_int=True))
    found, wanted = (slopes(model, state.qvel, ctrl) for model in (sparse, dense))
    for a, b in zip((*found[1:], found[0].actuator.gainprm), (*wanted[1:], wanted[0].actuator.gainprm), strict=True):
        assert float(jnp.abs(b).max()) > 0
        close(a, b, 1e-8)
    mujoco.mj_step(m, d)
    close(STEP(sparse, state, ctrl).qvel[0], d.qvel, 1e-9)


def test_gradient_is_that_of_differences() -> None:
    sparse, _, state = pair("branches")

    def velocity(mass: jax.Array, qpos: jax.Array, qvel: jax.Array) -> jax.Array:
        model = sparse.replace(body=sparse.body.replace(mass=mass))
        return fphys.step(model, state.replace(qpos=qpos, qvel=qvel)).qvel

    check_grads(velocity, (sparse.body.mass, state.qpos, state.qvel))


@pytest.mark.parametrize("name", ["branches", "pile"])
def test_inverse_dynamics_undo_forward_ones(name: str) -> None:
    sparse, dense, state = pair(name)
    force = jnp.sin(jnp.arange(sparse.structure.nv, dtype=float))[None]
    qacc, _ = FORWARD(sparse, state, force=force)
    found = INVERSE(sparse, state, qacc)
    close(found, force, 1e-7)
    close(found, INVERSE(dense, state, qacc), 1e-9)


def test_transforms(full: bool) -> None:
    """In reduced size, nested vmap alone maps one argument without the other."""
    sparse, _, state = pair("pile")
    state = jax.tree.map(lambda x: jnp.concatenate([x, x]), state)
    slippery = sparse.geom.friction.at[:, 1:].mul(0.5)
    model = sparse.replace(geom=sparse.geom.replace(friction=jnp.concatenate([sparse.geom.friction, slippery])))
    given = {"perturb": 1e-3, "batches": (2,), "max_patterns": 3 if full else 1}
    check_transforms(lambda m, s: fphys.step(m, s).qvel, (model, state), **given)


def test_single_precision(full: bool) -> None:
    for name in SCENES if full else ("branches", "rope", "bonded", "elliptic"):
        m, d = settled(SCENES[name]("sparse"), 60)
        single = fphys.load(m, dtype="float32")
        wanted, found = (STEP(model, state_of(model, d)) for model in (exact(name), single))
        close(found.qvel, wanted.qvel, 1e-4)


def test_contact_sets_are_those_of_all_pairs() -> None:
    """Wherever the bodies are: the broad phase loses no pair, and orders them as a walk through all pairs does."""
    sparse, dense = (fphys.load(pile((3, 2, 2), j)) for j in ("sparse", "dense"))
    rng = np.random.default_rng(3)
    worlds = 40
    state = fphys.init(sparse, worlds, max_contacts=200, max_constraints=2000)
    spread = np.geomspace(0.05, 3.0, worlds)[:, None]
    qpos = np.array(state.qpos)
    for k in range(sparse.structure.njnt):
        qpos[:, 7 * k : 7 * k + 3] = spread * rng.normal(size=(worlds, 3)) + rng.normal(size=(worlds, 1)) * 5
        turn = rng.normal(size=(worlds, 4))
        qpos[:, 7 * k + 3 : 7 * k + 7] = turn / np.linalg.norm(turn, axis=1, keepdims=True)
    state = state.replace(qpos=jnp.array(qpos))
    found, wanted = CONTACTS(sparse, state), CONTACTS(dense, state)
    for a, b in zip(found[1:], wanted[1:], strict=True):
        np.testing.assert_array_equal(a, b)
    a, b = (geoms_of(m.structure, contacts.pair) for m, contacts in ((sparse, found), (dense, wanted)))
    there = np.asarray(wanted.pair) >= 0
    np.testing.assert_array_equal(np.asarray(a)[there], np.asarray(b)[there])
    np.testing.assert_array_equal(there, np.asarray(found.pair) >= 0)
    seen = int((wanted.pair >= 0).sum())
    assert seen > 200
    candidate, status = _near_op(sparse, state)
    pairs = np.asarray(candidate)
    assert not np.asarray(status).any()
    assert all((np.diff(row[row >= 0]) > 0).all() and (row[np.argmax(row < 0) :] < 0).all() for row in pairs)
    near, every = int((pairs[-1] >= 0).sum()), len(dense.structure.geom.pair)
    assert near < every / 2  # where bodies are spread, most pairs are never looked at


def test_broad_phase_finds_every_pair_of_boxes_that_overlap_and_no_other() -> None:
    """Balls at random, so dense that they meet across every face, edge and corner of the cells, on both sides of 0."""
    model, dense = (fphys.load(pile((4, 3, 3), j, ("sphere",))) for j in ("sparse", "dense"))
    s, worlds = model.structure, 20
    state = fphys.init(model, worlds, max_contacts=1000, max_constraints=10)
    ball = np.random.default_rng(0).uniform(-0.4, 0.4, (worlds, s.njnt, 3))
    qpos = np.array(state.qpos).reshape(worlds, s.njnt, 7)
    qpos[:, :, :3] = ball
    candidate, status = _near_op(model, state.replace(qpos=jnp.array(qpos.reshape(worlds, -1))))
    assert not np.asarray(status).any()
    place = np.concatenate([np.zeros((worlds, 1, 3)), np.tile([0, -0.14, 0.5], (worlds, 1, 1)), ball], 1)
    half = np.concatenate([[[1e9] * 3, [1, 0.05, 1]], np.full((s.njnt, 3), 0.1)])
    low, high = np.sort(dense.structure.geom.pair, axis=1).T
    overlap = np.asarray(np.all(np.abs(place[:, low] - place[:, high]) <= half[low] + half[high], axis=2))
    for found, wanted in zip(np.asarray(candidate), overlap, strict=True):
        np.testing.assert_array_equal(found[found >= 0], np.sort((low * s.ngeom + high)[wanted]))


def test_broad_phase_that_overflows_is_reported() -> None:
    model = fphys.load(pile((3, 3, 2), "sparse"))
    state = fphys.init(model, 1, max_contacts=1)
    assert int(STEP(model, state).status[0]) & fphys.Status.CONTACT_OVERFLOW


def test_a_given_contact_set_is_kept() -> None:
    sparse, dense, state = pair("pile")
    _, info = FORWARD(sparse, state)
    moved = state.replace(qpos=state.qpos.at[:, 2].add(0.001))
    found, info_found = FORWARD(sparse, moved, contacts=info.contacts)
    np.testing.assert_array_equal(info_found.contacts.pair, info.contacts.pair)
    listed = {tuple(geoms): p for p, geoms in enumerate(dense.structure.geom.pair.tolist())}
    pair_of = [
        listed.get(tuple(geoms), 0) for geoms in np.asarray(geoms_of(sparse.structure, info.contacts.pair[0])).tolist()
    ]
    same = jnp.where(info.contacts.pair >= 0, jnp.array([pair_of], jnp.int32), -1)
    close(found, FORWARD(dense, moved, contacts=info.contacts._replace(pair=same))[0], 1e-8)


def test_large_mechanisms_are_sparse_and_the_file_may_say_otherwise() -> None:
    assert fphys.load(pile((2, 5, 1), "auto")).structure.sparse
    assert not fphys.load(pile((3, 3, 1), "auto")).structure.sparse
    assert fphys.load(rope(110, "auto")).structure.sparse  # of one mechanism
    assert not fphys.load(rope(109, "auto")).structure.sparse
    assert not fphys.load(rope(60, "dense")).structure.sparse
    noslip = pile((2, 1, 1), "sparse").replace("timestep", "noslip_iterations='3' timestep")
    assert not fphys.load(noslip).structure.sparse
    fast = BONDED.format(jacobian="sparse").replace("timestep", "integrator='implicitfast' timestep")
    assert not fphys.load(fast).structure.sparse


def test_one_bad_world_leaves_the_others_alone() -> None:
    sparse, _, state = pair("pile")
    alone = STEP(sparse, state)
    slope = jax.jit(jax.grad(lambda q, s: fphys.step(sparse, s.replace(qpos=q)).qvel[fine].sum()))
    three = jax.tree.map(lambda x: jnp.concatenate([x, x, x]), state)
    fine = jnp.array([0, 2])
    for bad in (jnp.nan, 1e9):
        broken = three.replace(qpos=three.qpos.at[1, 0].set(bad), qvel=three.qvel.at[1, 3].set(bad))
        after = STEP(sparse, broken)
        for world in (0, 2):
            np.testing.assert_array_equal(after.qpos[world], alone.qpos[0])
        gradient = slope(broken.qpos, broken)
        assert bool(jnp.isfinite(gradient[fine]).all())
