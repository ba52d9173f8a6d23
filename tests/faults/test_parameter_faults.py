"""Impossible parameters are refused if their values are known; otherwise only their world is held."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fphys
from fphys import Status
from fphys.errors import ModelError

WORLD, WORLDS = 1, 3
NAN, INF = float("nan"), float("inf")


def leaf(model: Any, path: str) -> Any:
    return functools.reduce(getattr, path.split("."), model)


# Values known on the host


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("body.mass", [0.0, -1.0, 0.5], r'body "upper": mass -1, inertia \[.*\]: neither may be negative'),
        ("body.mass", [0.0, 0.0, 0.5], r'body "upper": mass 0, .*: a moving body needs both'),
        ("body.mass", [[0.0, 0.5, 0.5], [0.0, NAN, 0.5]], 'world 1: body "upper": mass is nan, must be finite'),
        ("body.inertia", np.zeros((3, 3)), 'body "lower": mass 0.5, .*: a moving body needs both'),
        ("opt.timestep", [-0.01], r"option timestep is -0\.01, must be positive"),
        ("opt.timestep", [0.01, 0.0], r"world 1: option timestep is 0\.0, must be positive"),
        ("opt.gravity", [0.0, 0.0, -INF], "option gravity is -inf, must be finite"),
        ("dof.damping", [0.1, NAN], 'joint "elbow": damping is nan, must be finite'),
        ("qpos0", [NAN, 0.0], 'joint "shoulder": qpos0 is nan'),
    ],
)
def test_known_values_are_refused(path: str, value: Any, message: str):
    model = fphys.load(fphys.asset("double-pendulum"))
    with pytest.raises(ModelError, match=message):
        model.replace({path: value})
    if path == "body.mass":
        with pytest.raises(ModelError, match=message):
            model.replace(body=dataclasses.replace(model.body, mass=jnp.atleast_2d(jnp.asarray(value))))


def test_a_body_of_a_rigid_piece_may_be_massless():
    """A payload without mass; the arm that carries it has mass."""
    model = fphys.load("""<mujoco><worldbody><body name="arm"><joint/><geom size=".1"/>
        <body name="payload" pos="0 0 1"><geom size=".1"/></body></body></worldbody></mujoco>""")
    empty = {"body.mass": model.body.mass.at[0, 2].set(0.0), "body.inertia": model.body.inertia.at[0, 2].set(0.0)}
    step = jax.jit(lambda values: fphys.step(model.replace(values), fphys.init(model, 1)).status)
    assert step(empty).tolist() == [0] and model.replace(empty).body.mass[0, 2] == 0.0


# Traced values

CASES = {
    "body.mass": [NAN, -INF, 0.0, -1.0],
    "body.inertia": [-1.0],
    "opt.timestep": [0.0, INF],
    "dof.armature": [NAN],
    "geom.friction": [NAN],
}


@functools.cache
def ball() -> Any:
    """A ball on a plane in three worlds, and its step's value and gradient as a function of leaves."""
    model = fphys.load(fphys.asset("ball"), dtype="float64")
    rng = np.random.default_rng(0)
    state = fphys.init(model, WORLDS, qvel=0.1 * rng.normal(size=(WORLDS, model.structure.nv)))
    state = state.replace(qpos=state.qpos.at[:, 2].set(0.099))
    leaves = {path: leaf(model, path) for path in ("opt.gravity", *CASES)}

    @functools.partial(jax.value_and_grad, argnums=(0, 1), has_aux=True)
    def loss(leaves: Any, qpos: Any) -> Any:
        changed = model.replace(leaves, derived="recomputed")
        qacc, info = fphys.forward(changed, state.replace(qpos=qpos))
        after = fphys.step(changed, fphys.step(changed, state.replace(qpos=qpos)))
        return jnp.sum(after.qpos[:, 2] + 0.3 * after.qvel[:, 0]) + 1e-3 * jnp.sum(qacc), (after, qacc, info.status)

    return state, leaves, jax.jit(loss)


def apart(leaves: Any) -> Any:
    """The leaves with one row per world."""
    return {path: jnp.repeat(x, WORLDS, 0) if path in CASES else x for path, x in leaves.items()}


@pytest.mark.parametrize("path", CASES)
def test_an_unsound_parameter_holds_its_world_only(path: str):
    state, leaves, evaluate = ball()
    own = apart(leaves)
    (_, (good, *_)), clean = evaluate(own, state.qpos)
    assert fphys.check(good) is None and all(np.any(g) for g in jax.tree.leaves(clean)), "everything matters"
    for value in CASES[path]:
        index = (WORLD, *[-1] * (own[path].ndim - 1))
        (_, (after, qacc, status)), grads = evaluate({**own, path: own[path].at[index].set(value)}, state.qpos)
        assert after.status.tolist() == status.tolist() == [0, int(Status.BADPARAM), 0]
        np.testing.assert_array_equal(after.qpos[WORLD], state.qpos[WORLD])
        assert not qacc[WORLD].any() and qacc[0].any(), "it adds nothing to a sum over worlds"
        for ours, alone in zip(jax.tree.leaves(after), jax.tree.leaves(good), strict=True):
            np.testing.assert_array_equal(np.delete(ours, WORLD, 0), np.delete(alone, WORLD, 0))
        shared = grads[0].pop("opt.gravity")
        assert np.isfinite(shared).all() and shared.any(), "what the worlds share keeps the others' gradient"
        expected = ({**clean[0], "opt.gravity": None}, clean[1])
        for ours, alone in zip(jax.tree.leaves(grads), jax.tree.leaves(expected), strict=True):
            assert not ours[WORLD].any(), "its own gradient is zero"
            np.testing.assert_array_equal(np.delete(ours, WORLD, 0), np.delete(alone, WORLD, 0))
    with pytest.raises(fphys.errors.StateError, match=f"world {WORLD}: BADPARAM: .* mass or time step not positive"):
        fphys.check(after)


@pytest.mark.parametrize("path", CASES)
def test_an_unsound_parameter_of_all_holds_all(path: str):
    state, leaves, evaluate = ball()
    for value in CASES[path]:
        index = (0, *[-1] * (leaves[path].ndim - 1))
        (_, (after, qacc, status)), grads = evaluate({**leaves, path: leaves[path].at[index].set(value)}, state.qpos)
        assert after.status.tolist() == status.tolist() == [int(Status.BADPARAM)] * WORLDS
        np.testing.assert_array_equal(after.qpos, state.qpos)
        assert not qacc.any() and not any(g.any() for g in jax.tree.leaves(grads)), "zero, and never NaN"


@pytest.mark.parametrize("path", ["geom.size", "opt.impratio"])
def test_what_must_be_positive(path: str):
    """A radius and impratio. A plane's size, and sizes that a sphere does not use, may be anything."""
    model = fphys.load(fphys.asset("ball"))
    x = jnp.repeat(leaf(model, path), WORLDS, 0)
    ball_size = (int(model.structure.source.geom("ball").id), 0) if path == "geom.size" else ()
    status = jax.jit(lambda x: fphys.step(model.replace({path: x}), fphys.init(model, WORLDS)).status)
    for value in (0.0, -0.1):
        wrong = x.at[(WORLD, *ball_size)].set(value)
        with pytest.raises(ModelError, match=f"world {WORLD}: .*(size|impratio) is .*, must be positive"):
            model.replace({path: wrong})
        assert status(wrong).tolist() == [0, int(Status.BADPARAM), 0]
    if path == "opt.impratio":
        with pytest.raises(ModelError, match=r"option impratio is 0\.0, must be positive"):
            fphys.load('<mujoco><option impratio="0"/></mujoco>')
    else:
        unused = x.at[:, ball_size[0], 2].set(-1.0)
        assert fphys.step(model.replace({path: unused}), fphys.init(model, WORLDS)).status.tolist() == [0, 0, 0]


def test_a_model_may_have_every_number_for_each_world():
    """Then there is nothing that all worlds share to look at."""
    model = fphys.load(fphys.asset("double-pendulum"))
    state = fphys.init(model, 2, qpos=np.array([0.3, -0.2]))
    each = jax.tree.map(lambda x: jnp.repeat(x, 2, axis=0), model)
    np.testing.assert_array_equal(fphys.step(each, state).qpos, fphys.step(model, state).qpos)
