"""A mesh as JAX makes it by default, whose types say where arrays lie: steps and gradients are those of one device."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import fphys
from fphys.particles import mpm

from .solvers import GRAVITY, WORLDS, of_fem, of_mpm, of_pbd, of_rigid, of_sph, same

EXPLICIT = jax.make_mesh((2,), ("rows",))
BODY = "<worldbody><body name='a'><joint type='slide'/><geom size='0.1'/></body></worldbody>"


@pytest.mark.parametrize("make", [of_rigid, of_mpm, of_sph, of_fem, of_pbd])
def test_explicit_axes_give_the_same_step_and_gradient(make: Any):
    """Eager, compiled, in a scan and a vmap; the world axis of results is spread as that of the state."""
    step, state = make(jnp.float64)

    def cost(gravity: Any, state: Any) -> Any:
        after = jax.lax.scan(lambda s, _: (step(gravity, s), None), state, None, 2)[0]
        return sum((x**2).sum() for x in jax.tree.leaves(after) if jnp.issubdtype(x.dtype, jnp.floating)), after

    run = jax.value_and_grad(cost, argnums=(0, 1), has_aux=True, allow_int=True)
    floats = lambda tree: [x for x in jax.tree.leaves(tree) if x.dtype != jax.dtypes.float0]  # noqa: E731
    value = lambda g, s: floats(run(g, s))  # noqa: E731
    gravity = jnp.asarray(GRAVITY)
    expected, one = jax.jit(value)(gravity, state), step(gravity, state)
    with jax.set_mesh(EXPLICIT):
        placed = jax.device_put(state, NamedSharding(EXPLICIT, P("rows")))
        same(jax.jit(value)(gravity, placed), expected, 1e-12)
        found = step(gravity, placed)
        same(found, one, 1e-12)
        assert all(jax.typeof(x).sharding.spec[0] == "rows" for x in jax.tree.leaves(found) if x.size)
        several = jax.vmap(step, (0, None))(jnp.stack([gravity, 2 * gravity]), placed)
        same([x[0] for x in jax.tree.leaves(several) if x.size], [x for x in jax.tree.leaves(one) if x.size], 1e-12)
    same(step(gravity, placed), one, 1e-12)  # without a mesh that is set


def test_explicit_axes_for_what_reads_and_resets_worlds():
    model = fphys.load(f"<mujoco>{BODY}<sensor><framepos objtype='body' objname='a'/></sensor></mujoco>")
    state = fphys.init(model, WORLDS, qpos=np.arange(1.0, 5.0)[:, None])
    mask = np.array([True, False, False, True])

    def read(state: Any, mask: Any) -> Any:
        state = fphys.reset(model, state, mask)
        soft = fphys.contacts_from_distance(0.01)(model, state)
        return (
            soft,
            state.qpos,
            fphys.sensors(model, state),
            fphys.mass_matrix(model, state),
            fphys.kinematics(model, state),
        )

    expected = read(state, mask)
    with jax.set_mesh(EXPLICIT):
        placed = jax.device_put((state, jnp.asarray(mask)), NamedSharding(EXPLICIT, P("rows")))
        for found in (read(*placed), jax.jit(read)(*placed), read(placed[0], mask)):
            same(found, expected, 1e-14)


def test_a_fault_in_explicit_axes_is_named():
    """What is read on the host: checks, and one world for MuJoCo."""
    model = fphys.load(f"<mujoco>{BODY}</mujoco>")
    step, state = of_mpm(jnp.float64)
    params = mpm.Params(mpm.Corotated(1000.0, 1e4, 0.3), 1e-3, GRAVITY, cell=0.1, shape=(10, 10))
    with jax.set_mesh(EXPLICIT):
        put = lambda tree: jax.device_put(tree, NamedSharding(EXPLICIT, P("rows")))  # noqa: E731
        bad = put(
            fphys.init(model, WORLDS, qpos=np.arange(1.0, 5.0)[:, None]).replace(qvel=jnp.full((WORLDS, 1), jnp.nan))
        )
        with pytest.raises(fphys.errors.StateError, match="world 3: NONFINITE"):
            fphys.check(fphys.step(model, bad))
        assert fphys.to_mujoco(model, put(fphys.init(model, WORLDS)), world=2)[1].qpos == 0
        wrong = put(state.replace(v=state.v.at[1].set(jnp.nan)))
        with pytest.raises(fphys.errors.StateError, match="world 1: NONFINITE"):
            mpm.check(params, step(jnp.asarray(GRAVITY), wrong))
