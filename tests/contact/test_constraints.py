"""Limits, dry friction, equalities and both cones: against MuJoCo, and their gradients against finite differences."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import fphys
from fphys.rigid.solve import constraint
from fphys.testing import check_grads, check_transforms

from ..rigid.mechanisms import in_own_units
from .mechanism import EQUALITIES, data, scene

CASES = [("none", "pyramidal", condim, False) for condim in (1, 3, 4, 6)]
CASES += [("none", "elliptic", condim, False) for condim in (1, 3, 4, 6)]
CASES += [(name, cone, 3, False) for name in EQUALITIES if name != "none" for cone in ("pyramidal", "elliptic")]
CASES += [("none", cone, 3, True) for cone in ("pyramidal", "elliptic")]
FORWARD = jax.jit(fphys.forward)

LEAVES = {
    "opt": ("timestep", "gravity", "impratio"),
    "body": ("mass", "inertia", "ipos", "pos", "quat", "invweight0"),
    "joint": ("pos", "range", "margin", "solref", "solimp"),
    "dof": ("damping", "armature", "frictionloss", "solref", "solimp", "invweight0"),
    "geom": ("friction", "solref", "solimp", "margin", "size", "pos", "quat"),
    "pair": ("friction", "solref", "solreffriction", "solimp", "margin"),
    "site": ("pos", "quat"),
    "tendon": (
        "coef",
        "armature",
        "range",
        "margin",
        "solref_lim",
        "solimp_lim",
        "frictionloss",
        "solref_fri",
        "solimp_fri",
    )
    + ("length0", "invweight0"),
    "equality": ("data", "solref", "solimp"),
}


@pytest.mark.parametrize(("equality", "cone", "condim", "pair"), CASES)
def test_accelerations_equal_mujocos(equality: str, cone: str, condim: int, pair: bool):
    """Both solve one strictly convex problem to rounding."""
    given = scene(equality, cone, condim, pair)
    qacc, info = FORWARD(given.model, given.state)
    kinds = set()
    for w in range(len(qacc)):
        d = data(given, w)
        np.testing.assert_allclose(qacc[w], d.qacc, rtol=0, atol=1e-11 * np.abs(d.qacc).max())
        kinds |= {int(kind) for kind, state in zip(d.efc_type, d.efc_state, strict=True) if state}
        friction = d.efc_state[d.efc_type == mujoco.mjtConstraint.mjCNSTR_FRICTION_DOF]
        kinds |= {
            "stick" if state == mujoco.mjtConstraintState.mjCNSTRSTATE_QUADRATIC else "slip" for state in friction
        }
        if cone == "elliptic" and condim > 1:
            kinds |= {f"zone {int(s)}" for s, kind in zip(d.efc_state, d.efc_type, strict=True) if kind == 7}
    assert kinds >= {1, 2, 3, 4, "stick", "slip"}, "dry friction and limits of joints and of tendons must act"
    assert (0 in kinds) == (equality != "none")
    assert kinds & {5, 6, 7}, "contacts must act"
    if cone == "elliptic" and condim > 1:
        assert kinds >= {"zone 1", "zone 4"}, "contacts must stick and slide"
    assert (info.status == 0).all() and (info.iterations <= 20).all()


def qacc_of(equality: str, cone: str, condim: int, pair: bool) -> tuple[Any, tuple[Any, ...]]:
    """Accelerations as a function of the model's leaves, state and loads, the contact set frozen."""
    given = scene(equality, cone, condim, pair, worlds=4)
    model, state = given
    contacts = FORWARD(model, state)[1].contacts
    rng = np.random.default_rng(1)
    loads = [jnp.asarray(rng.normal(size=shape)) for shape in ((4, model.structure.nbody, 6), state.qvel.shape)]

    def f(leaves: Any, qpos: Any, qvel: Any, wrench: Any, force: Any) -> Any:
        changed = {g: dataclasses.replace(getattr(model, g), **new) for g, new in leaves.items()}
        moved = state.replace(qpos=qpos, qvel=qvel)
        found = fphys.forward(dataclasses.replace(model, **changed), moved, None, wrench, force, contacts=contacts)[0]
        return 1e-2 * found  # accelerations of some hundreds, so that finite differences are not lost in rounding

    leaves = {
        g: {name: value for name in names if (value := getattr(getattr(model, g), name)).size}
        for g, names in LEAVES.items()
    }
    return jax.jit(f), (leaves, state.qpos, state.qvel, *loads)


GRADIENTS = [("sites", "pyramidal", 6, False), ("weld", "elliptic", 6, True)]
GRADIENTS += [("joints", "elliptic", 4, False), ("tendons", "elliptic", 3, False)]


@pytest.mark.parametrize(("equality", "cone", "condim", "pair"), GRADIENTS)
def test_gradients(equality: str, cone: str, condim: int, pair: bool, full: bool):
    """By state, loads and every continuous leaf of the model."""
    f, args = qacc_of(equality, cone, condim, pair)
    check_grads(*in_own_units(f, args), tol=1e-5, directions=16 if full else 3)


@pytest.mark.parametrize("equality", ["connect", "weld"])
def test_a_mass_that_worlds_share_beside_what_each_has(equality: str):
    """In whatever order they are given, and back from a mass for each world."""
    model, _ = scene(equality, "elliptic", 3, worlds=1)
    mass = 2 * model.body.mass
    each = {"geom.friction": jnp.repeat(model.geom.friction, 3, 0), "opt.gravity": jnp.repeat(model.opt.gravity, 3, 0)}
    heavy = model.replace({"body.mass": mass})
    wanted = heavy.replace(each)
    for changed in (
        model.replace(each).replace({"body.mass": mass}),
        model.replace(each | {"body.mass": mass}),
        model.replace({"body.mass": jnp.repeat(model.body.mass, 3, 0)}).replace({"body.mass": mass}),
    ):
        for group, name in (
            ("body", "invweight0"),
            ("dof", "invweight0"),
            ("opt", "meaninertia"),
            ("equality", "data"),
        ):
            found, expected = (getattr(getattr(m, group), name) for m in (changed, heavy))
            np.testing.assert_allclose(found, jnp.broadcast_to(expected, found.shape), rtol=1e-12, atol=1e-15)
    slopes = [
        jax.grad(lambda mass, change=change: change(mass).body.invweight0.mean(0).sum())(mass)
        for change in (
            lambda m: model.replace(each).replace({"body.mass": m}),
            lambda m: wanted.replace({"body.mass": m}),
        )
    ]
    np.testing.assert_allclose(slopes[0], slopes[1], rtol=1e-12)


def test_gradients_through_the_derived_constants():
    """Masses and geometry by ``mj_setConst``: the whole of MuJoCo, differenced, against one gradient."""
    given = scene("connect", "elliptic", 3, worlds=2)
    model, state = given
    contacts = FORWARD(model, state)[1].contacts
    weights = jnp.asarray(np.random.default_rng(3).normal(size=state.qvel.shape))

    def loss(mass: Any, pos: Any) -> Any:
        changed = model.replace({"body.mass": mass, "body.pos": pos})
        return jnp.vdot(weights, fphys.forward(changed, state, contacts=contacts)[0])

    slopes = jax.jit(jax.grad(loss, (0, 1)))(model.body.mass, model.body.pos)
    rng = np.random.default_rng(4)
    for leaf, slope in zip(("mass", "pos"), slopes, strict=True):
        direction = rng.normal(size=slope.shape[1:])
        direction[0] = 0  # the world's body

        def value(h: float, leaf: str = leaf, direction: Any = direction) -> float:
            m = mujoco.MjModel.from_xml_string(_xml("connect"))
            getattr(m, f"body_{leaf}")[:] += h * direction
            mujoco.mj_setConst(m, mujoco.MjData(m))
            total = 0.0
            for w in range(2):
                d = mujoco.MjData(m)
                d.qpos[:], d.qvel[:] = state.qpos[w], state.qvel[w]
                mujoco.mj_forward(m, d)
                total += float(weights[w] @ d.qacc)
            return total

        expected = min(
            ((value(h) - value(-h)) / (2 * h) for h in (1e-5, 1e-6, 1e-7)),
            key=lambda fd: abs(fd - float(jnp.vdot(slope[0], direction))),
        )
        np.testing.assert_allclose(jnp.vdot(slope[0], direction), expected, rtol=1e-5)


def test_a_second_anchor_that_is_given():
    """It stays, has a gradient, and acts as in MuJoCo; a later replace closes the connection, as ``mj_setConst``."""
    model, state = scene("connect", worlds=1)
    moved = {"body.pos": model.body.pos * 1.01}
    data = model.equality.data.at[0, 0, 3:6].add(jnp.array([0.02, 0.01, -0.03]))
    changed = model.replace({**moved, "equality.data": data})
    np.testing.assert_array_equal(changed.equality.data, data)
    qacc, _ = fphys.forward(changed, state)
    expected = fphys.to_mujoco(changed, state)[1].qacc
    np.testing.assert_allclose(qacc[0], expected, rtol=0, atol=1e-11 * np.abs(expected).max())

    def anchor(data: Any) -> Any:
        return model.replace({**moved, "equality.data": data}).equality.data[0, 0, 3:6].sum()

    np.testing.assert_array_equal(jax.grad(anchor)(data), jnp.zeros_like(data).at[0, 0, 3:6].set(1))
    later, m = changed.replace({"body.mass": model.body.mass}), fphys.to_mujoco(changed, state)[0]
    mujoco.mj_setConst(m, mujoco.MjData(m))
    np.testing.assert_allclose(later.equality.data[0], m.eq_data, atol=1e-12)
    assert abs(later.equality.data - data).max() > 0.01


def _xml(equality: str) -> str:
    from .mechanism import XML

    return XML.format(equality=EQUALITIES[equality], cone="elliptic", impratio=3, condim=3, pair="")


def test_transforms(full: bool):
    """Different worlds hold different data, and different sets of active constraints.

    In reduced size, nested vmap alone maps one argument without the other."""
    model, state = scene("weld", "elliptic", 4, worlds=3)

    def of_worlds(qpos: Any, qvel: Any) -> Any:
        worlds = fphys.init(model, qpos.shape[0]).replace(qpos=qpos, qvel=qvel)
        return fphys.forward(model, worlds)[0]

    check_transforms(of_worlds, (state.qpos, state.qvel), batches=(3,), max_patterns=2 if full else 1)


def test_the_solver_starts_anywhere():
    """The problem has one solution: a far warm start costs iterations, not accuracy."""
    model, state = scene("sites", "elliptic", 6)
    expected, _ = FORWARD(model, state)
    far = state.replace(warmstart=1e3 * jax.random.normal(jax.random.key(0), state.qvel.shape, state.qvel.dtype))
    found, info = FORWARD(model, far)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9 * float(jnp.abs(expected).max()))
    assert (info.status == 0).all()


WHOLE = ("weld", "elliptic", 3, False)


@functools.cache
def sound() -> float:
    return check_grads(*qacc_of(*WHOLE), tol=1e-5, directions=2, argnums=(2,))


@pytest.mark.parametrize("family", ["equality", "friction", "limit", "contact"])
def test_a_family_left_out_of_the_backward_pass_is_noticed(family: str, monkeypatch: pytest.MonkeyPatch):
    sound()
    vjp, outputs = constraint._power_op.vjp, constraint._power_op.outputs

    class Mutant:
        def __init__(self) -> None:
            self.outputs = outputs

        def vjp(self, args: Any, seeds: Any, wanted: Any) -> Any:
            left_out = jax.tree.map(jnp.zeros_like, getattr(seeds, family))
            return vjp(args, seeds._replace(**{family: left_out}), wanted)

    monkeypatch.setattr(constraint, "_power_op", Mutant())
    mutant, args = qacc_of(*WHOLE)
    with pytest.raises(AssertionError):
        check_grads(mutant, args, tol=1e-5, directions=2, argnums=(2,))


@pytest.mark.parametrize("cone", ["pyramidal", "elliptic"])
def test_inverse(cone: str):
    """As MuJoCo's ``mj_inverse`` at any acceleration, nothing at that of the forward problem; and its gradient."""
    model, state = given = scene("weld", cone, 4)
    rng = np.random.default_rng(5)
    qacc = jnp.asarray(3.0 * rng.normal(size=state.qvel.shape))
    inverse = jax.jit(fphys.inverse)
    force = inverse(model, state, qacc)
    for w in range(len(qacc)):
        d = data(given, w)
        d.qacc[:] = qacc[w]
        mujoco.mj_inverse(model.structure.source, d)
        np.testing.assert_allclose(force[w], d.qfrc_inverse, rtol=0, atol=1e-12 * np.abs(d.qfrc_inverse).max())
    rest = inverse(model, state, FORWARD(model, state)[0])
    assert float(jnp.abs(rest).max()) < 1e-9 * float(jnp.abs(force).max())

    def scaled(qvel: Any, qacc: Any) -> Any:
        return 1e-3 * fphys.inverse(model, state.replace(qvel=qvel), qacc)

    check_grads(jax.jit(scaled), (state.qvel, qacc), tol=1e-5, directions=2)
