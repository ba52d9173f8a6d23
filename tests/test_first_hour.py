"""What a newcomer types first works, or says what to type instead."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fphys
from fphys import cli
from fphys.errors import ModelError, StateError


@pytest.fixture(scope="module")
def cart():
    return fphys.load("cartpole")


def test_rooms_are_there_by_attribute():
    code = "import fphys; print(fphys.render.frames, fphys.deformables.fem, fphys.coupling.step)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_a_model_is_loaded_by_its_name(cart, tmp_path, monkeypatch):
    assert cart.names("joint") == fphys.load(fphys.asset("cartpole")).names("joint")
    with pytest.raises(
        ModelError, match=r"no file 'cartpol', and no model called 'cartpol'.*cartpole, double-pendulum"
    ):
        fphys.load("cartpol")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cartpole").write_text("<mujoco><worldbody><geom size='1'/></worldbody></mujoco>")
    assert fphys.load("cartpole").structure.nq == 0  # one's own file comes first


def test_a_number_fills_a_leaf(cart):
    every = cart.replace({"dof.damping": 0.25, "body.mass": jnp.asarray(2.0)}, derived="frozen")
    assert (every.dof.damping == 0.25).all() and every.dof.damping.shape == cart.dof.damping.shape
    assert (every.body.mass == 2.0).all() and every.body.mass.shape == cart.body.mass.shape
    filled = lambda m: cart.replace({"body.mass": m}, derived="frozen").body.mass.sum()  # noqa: E731
    summed = jax.jit(jax.grad(filled))(3.0)
    assert summed == cart.structure.nbody
    for path in ("opt.gravity", "body.pos", "geom.friction"):  # their numbers mean different things
        with pytest.raises(ValueError, match=f"{path} has shape"):
            cart.replace({path: 1.0})


def test_substeps_are_steps(cart):
    state, ctrl = fphys.init(cart, 2, qpos=[0.0, 0.1]), jnp.array([[1.0], [-1.0]])
    one = jax.jit(fphys.step)
    far = one(cart, one(cart, one(cart, state, ctrl), ctrl), ctrl)
    skip = jax.jit(lambda s, u: fphys.step(cart, s, u, substeps=3))
    np.testing.assert_allclose(skip(state, ctrl).qpos, far.qpos, rtol=1e-13)
    assert (skip(state, ctrl).time == far.time).all()
    slope = jax.jit(jax.grad(lambda u: fphys.step(cart, state, u, substeps=3).qpos[:, 0].sum()))(ctrl)
    moved = [float(skip(state, ctrl.at[0].add(d)).qpos[0, 0]) for d in (1e-4, -1e-4)]
    assert slope[0, 0] == pytest.approx((moved[0] - moved[1]) / 2e-4, rel=1e-6)
    with pytest.raises(ValueError, match="substeps is 0"):
        fphys.step(cart, state, ctrl, substeps=0)


def test_the_actuator_of_a_bad_control_is_named(cart):
    state, ctrl = fphys.init(cart, 2), jnp.array([[0.0], [jnp.nan]])
    force = jnp.zeros((2, 2)).at[1, 1].set(jnp.inf)
    bad = jax.jit(fphys.step)(cart, state, ctrl, None, force)
    with pytest.raises(StateError, match=r"world 1: BADCTRL.*fphys.check\(state, model, ctrl\)"):
        fphys.check(bad)
    actuator, joint = cart.names("actuator")[0], cart.names("joint")[1]
    with pytest.raises(StateError, match=rf"ctrl\[0\], of actuator '{actuator}', is nan"):
        fphys.check(bad, cart, ctrl)
    with pytest.raises(StateError, match=rf"force\[1\], of joint '{joint}', is inf"):
        fphys.check(bad, cart, force=force)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_world_begins_with_finite_numbers(cart, bad):
    for given in (np.array([0.0, bad]), jnp.array([[0.0, 0.0], [0.0, bad]])):
        with pytest.raises(ValueError, match=rf"qpos\[.*1\] is {bad}: a world begins with finite numbers"):
            fphys.init(cart, 2, qpos=given)
        with pytest.raises(ValueError, match="qvel"):
            fphys.init(cart, 2, qvel=given)
    traced = jax.jit(lambda q: fphys.step(cart, fphys.init(cart, 2, qpos=q)).status)(jnp.array([0.0, bad]))
    assert (traced == fphys.Status.NONFINITE).all()


@pytest.mark.parametrize(("typed", "meant"), [("swingup", "swing-up"), ("Push", "push"), ("soft_walk", "soft-walk")])
def test_an_experiment_that_is_misspelt_is_suggested(typed, meant, capsys):
    assert cli.main(["run", typed]) == 2
    assert f"there is no experiment {typed!r}: did you mean {meant!r}?" in capsys.readouterr().err
