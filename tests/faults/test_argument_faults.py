"""Invalid arguments: each public function says which argument, what it got and what it needs, before anything runs."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fphys
from fphys.errors import ModelError

BARE = '<mujoco><worldbody><body><joint type="hinge"/><geom size=".1"/></body></worldbody></mujoco>'

model = fphys.load(fphys.asset("double-pendulum"))
state = fphys.init(model, 3)
ctrl = jnp.zeros((3, 2))
bare = fphys.load(BARE)
PUBLIC: dict[str, Any] = {
    "step": fphys.step,
    "forward": fphys.forward,
    "sensors": fphys.sensors,
    "rollout": lambda m, s: fphys.rollout(m, s, ctrl[None]),
    "linearize": lambda m, s: fphys.linearize(m, s, ctrl),
    "inverse": lambda m, s: fphys.inverse(m, s, state.qvel),
    "bias": fphys.bias,
    "mass_matrix": fphys.mass_matrix,
    "energy": fphys.energy,
    "kinematics": fphys.kinematics,
    "jacobian": lambda m, s: fphys.jacobian(m, s, "body", 1),
    "reset": lambda m, s: fphys.reset(m, s, jnp.zeros(3, bool)),
    "to_mujoco": fphys.to_mujoco,
}


@pytest.mark.parametrize("name", PUBLIC)
def test_model_and_state(name: str):
    fn = PUBLIC[name]
    with pytest.raises(TypeError, match=r"model is of type State, must be a fphys\.Model, .* order is \(model, state"):
        fn(state, model)
    with pytest.raises(TypeError, match=r"model is '\w+\.xml', must be a fphys\.Model, as fphys\.load returns it$"):
        fn("ant.xml", state)
    with pytest.raises(TypeError, match=r"state is of type ArrayImpl, must be a fphys\.State, as fphys\.init"):
        fn(model, state.qpos)
    with pytest.raises(
        ValueError, match=r"state\.qpos has shape \(3, 1\), the model needs \(num_worlds, nq\) = \(3, 2"
    ):
        fn(model, fphys.init(bare, 3))
    stacked = jax.tree.map(lambda x: x[None], state)
    with pytest.raises(ValueError, match=r"a rollout's states have a time axis first: .* jax\.vmap"):
        fn(model, stacked)
    with pytest.raises(TypeError, match=r"state\.qvel is of type list, must be an array of shape \(num_worlds, nv\)"):
        fn(model, state.replace(qvel=[[0.0, 0.0]] * 3))


REFUSED: dict[str, tuple[Any, type[Exception], str]] = {
    "worlds as bool": (lambda: fphys.init(model, True), TypeError, "num_worlds is True, must be a whole number"),
    "substeps as bool": (
        lambda: fphys.step(model, state, substeps=True),
        TypeError,
        "substeps is True, must be a whole number",
    ),
    "a group that is none": (lambda: model.replace(opt=3), TypeError, "opt is 3, must be a Options as in the model"),
    "a leaf that is text": (lambda: model.replace({"opt.gravity": "moon"}), TypeError, "opt.gravity is 'moon': give"),
    "worlds as float": (lambda: fphys.init(model, 2.0), TypeError, r"num_worlds is 2\.0, must be a whole number"),
    "traced worlds": (lambda: jax.jit(lambda n: fphys.init(model, n))(2), TypeError, "num_worlds is traced, .* static"),
    "contacts": (lambda: fphys.init(model, 2, max_contacts=1.5), TypeError, r"max_contacts is 1\.5"),
    "init": (lambda: fphys.init(state, 2), TypeError, "model is of type State"),
    "check": (lambda: fphys.check(model), TypeError, r"state is of type fphys\.\S+\.Model, must be a fphys\.State"),
    "mask": (lambda: fphys.reset(model, state, None), ValueError, r"reset needs \(3,\) of bool"),
    "text as ctrl": (lambda: fphys.step(model, state, "fast"), TypeError, r"ctrl is 'fast', must be an array .*\(3, 2"),
    "ctrl": (lambda: fphys.step(model, state, 1.0), ValueError, r"ctrl has shape \(\), the model needs .* \(3, 2\)"),
    "no ctrls": (lambda: fphys.rollout(model, state, None), TypeError, r"ctrls is None, .*\(T, 3, 2\): .* jnp\.zeros"),
    "ctrls": (lambda: fphys.rollout(model, state, ctrl), ValueError, r"ctrls has shape \(3, 2\), needs .*\(T, 3, 2\)"),
    "mapped": (
        lambda: jax.vmap(lambda s, c: fphys.step(model, s, c))(state, ctrl),
        ValueError,
        r"state\.qpos has shape \(2,\), .* = \(1, 2\).*jax\.vmap over worlds, leave the vmap away",
    ),
    "other worlds": (
        lambda: fphys.step(model.replace({"body.mass": jnp.ones((5, 3))}), state, ctrl),
        ValueError,
        r"model\.body\.mass has 5 worlds, the state has 3",
    ),
    "worlds of two leaves": (
        lambda: model.replace({"body.mass": jnp.ones((5, 3)), "dof.damping": jnp.ones((6, 2))}),
        ValueError,
        r"body\.mass has 5 worlds and dof\.damping 6",
    ),
    "integrator": (
        lambda: model.replace({"opt.integrator": 1}),
        ModelError,
        r"opt\.integrator is static, .*in the file",
    ),
    "group": (lambda: model.replace(body_mass=1.0), ModelError, r"no group 'body_mass': .* \{'body\.mass': m\}"),
    "adjoint": (
        lambda: fphys.rollout(model, state, ctrl[None], adjoint=fphys.Full),
        TypeError,
        r"adjoint is <class .*Full'>, must be fphys\.Full\(\), Checkpoint\(every=\.\.\.\)",
    ),
    "lengths": (
        lambda: fphys.scan(lambda c, x: (c, x), 0.0, {"a": np.ones(3), "b": np.ones(4)}, fphys.Checkpoint(2)),
        ValueError,
        r"inputs\['a'\] has 3, inputs\['b'\] has 4",
    ),
    "a number": (lambda: fphys.scan(lambda c, x: (c, x), 0.0, (1.0,)), ValueError, r"inputs\[0\] has none"),
    "nothing": (lambda: fphys.scan(lambda c, x: (c, x), 0.0, None), ValueError, r"pass length=T"),
    "another length": (
        lambda: fphys.scan(lambda c, x: (c, x), 0.0, np.ones(3), length=4),
        ValueError,
        "inputs has 3, length has 4",
    ),
    "linearize": (lambda: fphys.linearize(model, state, None), ValueError, r"switches the .* off: .*= \(3, 2\)"),
    "no qacc": (lambda: fphys.inverse(model, state, None), TypeError, r"qacc is None, .*\(num_worlds, nv\) = \(3, 2\)"),
    "kind": (lambda: fphys.jacobian(model, state, "joint", 0), ValueError, "kind is 'joint'"),
    "name": (lambda: fphys.jacobian(model, state, "body", "uper"), ModelError, "no body 'uper': did you mean 'upper'"),
    "index": (lambda: fphys.jacobian(model, state, "body", 3), ModelError, "no body 3: it has 3, numbered from 0"),
    "below": (lambda: fphys.jacobian(model, state, "body", -1), ModelError, "no body -1"),
    "no index": (lambda: fphys.jacobian(model, state, "body", 1.0), TypeError, r"name is 1\.0, must be a whole number"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str):
    call, error, message = REFUSED[name]
    with pytest.raises(error, match=message):
        call()


def test_a_folder_is_not_a_model(tmp_path):
    with pytest.raises(ModelError, match="this is a folder: name the MJCF or URDF file in it"):
        fphys.load(tmp_path)


def test_unusual_but_valid_arguments():
    """Zero steps, zero actuators, NumPy integers."""
    for adjoint in (fphys.Full(), fphys.Checkpoint(3), fphys.Truncated(3)):
        assert fphys.rollout(model, state, ctrl[None][:0], adjoint).qpos.shape == (0, 3, 2)
    a, b = fphys.linearize(bare, fphys.init(bare, np.int64(2)))
    assert a.shape == (2, 2, 2) and b.shape == (2, 2, 0)
    assert fphys.jacobian(model, state, "body", np.int32(2)).shape == (3, 6, 2)


# Undefined derivatives


def end(ctrl: Any) -> Any:
    return fphys.step(model, state, ctrl).qpos.sum()


@pytest.mark.parametrize("transform", [jax.jacfwd, jax.hessian, lambda f: jax.grad(lambda u: jax.grad(f)(u).sum())])
@pytest.mark.parametrize("jitted", [False, True])
def test_reverse_mode_only(transform: Any, jitted: bool):
    with pytest.raises(TypeError, match=r"reverse mode only: jax\.grad, jax\.vjp or jax\.jacrev, and fphys\.linearize"):
        transform(jax.jit(end) if jitted else end)(ctrl)


@pytest.mark.parametrize("name", ["rollout", "mass_matrix", "inverse", "kinematics", "energy", "forward"])
def test_forward_mode_names_the_function(name: str):
    with pytest.raises(TypeError, match=f"{name} is differentiable once and in reverse mode only"):
        jax.jvp(lambda qpos: PUBLIC[name](model, state.replace(qpos=qpos)), (state.qpos,), (state.qpos,))


def test_numpy_numbers_are_cast_to_the_models_dtype():
    """In rollouts and linearisations as in steps, and for lists too."""
    single = fphys.load(fphys.asset("double-pendulum"), dtype="float32")
    start, wide = fphys.init(single, 3), 0.1 * np.arange(6.0).reshape(3, 2)
    after = fphys.step(single, start, wide)
    for ctrls in (wide[None], wide[None].tolist()):
        assert (fphys.rollout(single, start, ctrls).qvel[0] == after.qvel).all()
    assert fphys.linearize(single, start, wide)[0].dtype == jnp.float32
