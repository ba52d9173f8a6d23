"""Faults 1, 2, 12, 13 and 40 with every kind of constraint active: one bad world, too little room, an early stop, and
bitwise repeatability."""

import copy
import functools
import hashlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fphys
from fphys import Status
from fphys.bridge import workers

from ..contact.mechanism import scene
from ..parity.corpus import case
from ..rigid.test_threads import threads  # noqa: F401  (a fixture)

WORLDS, WORLD = 8, 3
NAN, INF = float("nan"), float("inf")
LEAVES = (
    "opt.impratio", "body.mass", "body.pos", "joint.range", "joint.solref", "dof.frictionloss", "dof.solref",
    "geom.friction", "geom.size", "geom.pos", "geom.solref", "geom.solimp", "geom.margin", "pair.friction",
    "pair.solreffriction", "tendon.range", "tendon.frictionloss", "equality.data", "equality.solref",
)  # fmt: skip
ODD = [
    ("geom.size", 0.0), ("geom.size", -1.0), ("geom.size", 1e30), ("geom.friction", -1.0), ("geom.friction", 1e30),
    ("geom.solref", 0.0), ("geom.solimp", 2.0), ("geom.solimp", -1.0), ("opt.impratio", 0.0),
    ("dof.frictionloss", -1.0), ("joint.range", 1e30), ("equality.data", 1e30),
]  # fmt: skip
"""Finite values that no mechanism has. They may spoil their own world, but no other."""


def leaf(model: Any, path: str) -> Any:
    return functools.reduce(getattr, path.split("."), model)


@functools.cache
def run() -> Any:
    """Two steps of the mechanism with all constraints, and the gradient by every world's state and parameters."""
    model, start = scene("weld", "elliptic", 4, True)

    def loss(leaves: Any, qpos: Any, qvel: Any, wrench: Any, bad: Any) -> Any:
        changed = model.replace(leaves, derived="frozen")
        state = start.replace(qpos=qpos, qvel=jnp.where(jnp.isnan(bad)[:, None], bad[:, None], qvel))
        for _ in range(2):
            state = fphys.step(changed, state, None, wrench)
        return state.qpos.sum() + 0.1 * state.qvel.sum(), state

    return jax.jit(jax.grad(loss, (0, 1, 2, 3), has_aux=True))


@functools.cache
def clean() -> tuple[Any, ...]:
    model, start = scene("weld", "elliptic", 4, True)
    leaves = {path: jnp.repeat(leaf(model, path), WORLDS, 0) for path in LEAVES}
    wrench = 0.1 * np.random.default_rng(0).standard_normal((WORLDS, model.structure.nbody, 6))
    return leaves, start.qpos, start.qvel, jnp.asarray(wrench), jnp.zeros(WORLDS)


def compare(found: Any, expected: Any) -> None:
    """The other seven worlds must agree bit for bit, and gradients be finite and independent of the bad world."""
    for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_array_equal(np.delete(x, WORLD, 0), np.delete(y, WORLD, 0))


@functools.cache
def expected() -> Any:
    return run()(*clean())


def test_every_constraint_acts_in_the_clean_run():
    grads, _ = expected()
    for path, g in grads[0].items():
        assert np.isfinite(g).all() and g.any(), path


@pytest.mark.parametrize("value", [NAN, INF, -INF])
@pytest.mark.parametrize("path", LEAVES)
def test_a_bad_parameter_stops_its_world_only(path: str, value: float):
    leaves, *rest = clean()
    index = (WORLD, *(n - 1 for n in leaves[path].shape[1:]))
    grads, after = run()(leaves | {path: leaves[path].at[index].set(value)}, *rest)
    compare((grads, after), expected())
    assert int(after.status[WORLD]) == Status.BADPARAM
    np.testing.assert_array_equal(after.qpos[WORLD], clean()[1][WORLD])
    assert all(np.isfinite(g).all() and not np.any(g[WORLD]) for g in jax.tree.leaves(grads)), "it passes zero"


@pytest.mark.parametrize(("path", "value"), ODD)
def test_an_odd_parameter_spoils_no_other_world(path: str, value: float):
    leaves, *rest = clean()
    grads, after = run()(leaves | {path: leaves[path].at[WORLD].set(value)}, *rest)
    compare((grads, after), expected())
    assert np.isfinite(after.qpos).all() and np.isfinite(after.qvel).all()


@pytest.mark.parametrize(("which", "index"), [(1, (WORLD, 2)), (2, (WORLD, 9)), (3, (WORLD, 1, 2))])
@pytest.mark.parametrize("value", [NAN, INF, 1e11])
def test_a_bad_state_or_load_stops_its_world_only(which: int, index: Any, value: float):
    args = list(clean())
    args[which] = args[which].at[index].set(value)
    grads, after = run()(*args)
    compare((grads, after), expected())
    assert int(after.status[WORLD]) == (Status.BADCTRL if which == 3 else Status.NONFINITE)
    assert all(np.isfinite(g).all() and not np.any(g[WORLD]) for g in jax.tree.leaves(grads))


BOXES = (
    '<mujoco><worldbody><geom type="plane" size="9 9 1"/>'
    + "".join(
        f'<body pos="{0.15 * (i % 4)} {0.15 * (i // 4)} 0.099"><freejoint/><geom type="box" size="0.1 0.1 0.1"/></body>'
        for i in range(12)
    )
    + "</worldbody></mujoco>"
)
"""Twelve boxes on a plane, side by side and overlapping."""


@pytest.mark.parametrize(
    ("given", "bit", "name"),
    [
        ({"max_contacts": 7}, Status.CONTACT_OVERFLOW, "max_contacts=7"),
        ({"max_constraints": 30}, Status.CONSTRAINT_OVERFLOW, "max_constraints=30"),
    ],
)
def test_overflow_is_dropped_in_a_fixed_order(given: Any, bit: Status, name: str, capfd: Any):
    model = fphys.load(BOXES)
    forward = jax.jit(fphys.forward)
    whole = forward(model, fphys.init(model, 3))[1].contacts
    assert int((whole.pair[0] >= 0).sum()) > 40
    small = fphys.init(model, 3, **given)
    first, again = (forward(model, small) for _ in range(2))
    jax.tree.map(np.testing.assert_array_equal, first, again)
    pair = np.asarray(first[1].contacts.pair)
    kept = int((pair[0] >= 0).sum())
    assert 0 < kept <= 7
    np.testing.assert_array_equal(pair[:, :kept], np.asarray(whole.pair)[:, :kept])
    assert np.isfinite(first[0]).all()
    after = fphys.step(model, small)
    assert after.status.tolist() == [int(bit)] * 3
    with pytest.raises(fphys.errors.StateError, match=name):
        fphys.check(after)
    assert capfd.readouterr().out == ""


def test_too_few_iterations_are_reported():
    """The residual is the norm of the remaining gradient, scaled as in MuJoCo. Above it, the world is reported."""
    model, state = scene("none", "elliptic", 3)
    early = fphys.load(_early(model.structure.source))
    qacc, info = jax.jit(fphys.forward)(early, state)
    stopped = np.asarray(info.status) == Status.UNCONVERGED
    assert stopped.all() and (info.residual > 1e-6).all() and (info.iterations == 1).all()
    enough = fphys.forward(model, state)[1]
    assert (enough.status == 0).all() and float(enough.residual.max()) < 1e-9
    assert np.isfinite(qacc).all()
    with pytest.raises(fphys.errors.StateError, match=r"UNCONVERGED.*iterations"):
        fphys.check(fphys.step(early, state))


def _early(m: Any) -> Any:
    changed = copy.copy(m)
    changed.opt.iterations = 1
    return changed


def test_ten_runs_give_the_same_bits(threads: Any):  # noqa: F811
    """Some steps of an ant in contact and their gradient, the worlds split over threads."""
    threads(2)
    worlds = 200
    assert len(workers.shares(worlds, workers.num_blocks(worlds, 1, 1))) == 2
    model = case("ant")
    rng = np.random.default_rng(0)
    qpos = np.repeat(np.asarray(model.qpos0), worlds, 0)
    qpos[:, 2] = rng.uniform(0.1, 0.3, worlds)
    state = fphys.init(model, worlds, qpos=qpos, qvel=0.3 * rng.standard_normal((worlds, model.structure.nv)))
    ctrls = jnp.asarray(rng.uniform(-1, 1, (5, worlds, model.structure.nu)))
    assert (fphys.forward(model, state, ctrls[0])[1].force[:, :, 0] > 0).any(1).mean() > 0.5

    def loss(mass: Any, state: fphys.State, ctrls: Any) -> Any:
        heavier = model.replace({"body.mass": mass}, derived="frozen")
        states = fphys.rollout(heavier, state, ctrls)
        return states.qpos.sum(), states

    gradient = jax.jit(jax.grad(loss, (0, 1, 2), has_aux=True, allow_int=True))
    digests = set()
    for _ in range(10):
        out = gradient(model.body.mass, state, ctrls)
        values = [np.asarray(x) for x in jax.tree.leaves(out) if x.dtype != jax.dtypes.float0]
        digests.add(hashlib.sha256(b"".join(x.tobytes() for x in values)).hexdigest())
    assert len(digests) == 1


@pytest.mark.parametrize("speed", [1e2, 1e4, 1e8])
def test_a_world_that_overflows_in_a_rollout_spoils_no_gradient(speed: float):
    """A world that overflows in float32 does not change the gradient of shared parameters."""
    model = fphys.load(fphys.asset("quadruped"), dtype="float32")
    state = fphys.init(model, 3)
    wild = state.replace(qvel=state.qvel.at[1].set(speed))
    ctrls = jnp.zeros((40, 3, model.structure.nu), jnp.float32)

    @jax.jit
    def slopes(state: fphys.State) -> Any:
        def loss(mass: Any, ctrls: Any) -> Any:
            states = fphys.rollout(model.replace({"body.mass": mass}, derived="frozen"), state, ctrls)
            return (states.qpos[-1, ::2] ** 2).sum()

        return jax.grad(loss, (0, 1))(model.body.mass, ctrls)

    calm, found = slopes(state), slopes(wild)
    for a, b in zip(calm, found, strict=True):
        np.testing.assert_array_equal(a, b)
    assert fphys.rollout(model, wild, ctrls).status[-1].tolist() == [0, Status.NONFINITE, 0]
