"""First-order models of a step, for LQR, iLQR, MPC and estimation."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..bridge import kernels, warp_op, worldwise
from ..model import Model, State
from ..model.arguments import expect, expect_array, expect_model
from ..model.kinds import bare_ctrl
from .step import step
from .tree.integrate import integrate_positions

Array = jax.Array


def _difference(launch: Any, model: Model, base: Any, qpos: Any, out: Any) -> None:
    joint = model.structure.joint
    k = kernels(qpos.dtype, "rigid.tree.integrate")
    launch(
        k.position_differences,
        dim=(launch.worlds, joint.type.size),
        inputs=[joint.type, joint.qpos, joint.dof, base, qpos],
        outputs=[out],
    )


_difference_op = jax.jit(
    warp_op(
        _difference,
        lambda model, base, qpos: jax.ShapeDtypeStruct((qpos.shape[0], model.structure.nv), qpos.dtype),
        zeroed=False,
        name="difference",
    )
)


@worldwise
def difference(model: Model, base: Array, qpos: Array) -> Array:
    """The velocity that leads from ``base`` to ``qpos`` in unit time: dx of :func:`linearize`; MuJoCo's
    ``mj_differentiatePos``.

    Args:
        base: positions as ``state.qpos``, shape (1 | world, nq) [m or rad].
        qpos: shape (world, nq).

    Returns:
        Shape (world, nv) [m or rad]. A free or ball joint gives its rotation vector in its own axes. Gradients flow to
        both positions.

    Raises:
        ValueError: an argument has a different shape.
    """
    expect_model(model)
    worlds, nq = jnp.shape(qpos)[:1], model.structure.nq
    expect_array("qpos", qpos, (*worlds, nq), "nq")
    expect_array("base", base, (*((1,) if jnp.shape(base)[:1] == (1,) else worlds), nq), "nq")
    return _difference_op(model, base, qpos)


@worldwise
def linearize(model: Model, state: State, ctrl: Array | None = None) -> tuple[Array, Array]:
    """The derivatives A, B of one step: dx' = A dx + B du, x = (position, velocity, activation).

    Positions are differentiated in tangent space, so a free or ball joint counts its degrees of
    freedom, not its quaternion. The step is computed and factorised only once; each row of A and B is one
    more right-hand side. MuJoCo's ``mjd_transitionFD`` approximates the same matrices.

    Args:
        ctrl: shape (world, nu) in the actuators' units; may be omitted only if the model has no actuators.

    Returns:
        A of shape (world, 2 nv + na, 2 nv + na) and B of shape (world, 2 nv + na, nu), in the units of x
        [m or rad, m/s or rad/s, -] over those of x and of the controls. They cannot be
        differentiated themselves (no gradients). Those of a faulty world are zero.

    Raises:
        ValueError, TypeError: as :func:`fphys.step`, and if the control is missing.
    """
    expect(model, state)
    ctrl = bare_ctrl(model, ctrl)
    if ctrl is None and model.structure.nu:
        raise ValueError(
            "linearize needs the control to linearise at, for None switches the actuators off: pass jnp.zeros of shape "
            f"(num_worlds, nu) = {(len(state.qpos), model.structure.nu)}"
        )
    ctrl = jnp.zeros((len(state.qpos), 0), state.qpos.dtype) if ctrl is None else ctrl
    ctrl = jnp.asarray(ctrl, state.qpos.dtype) if isinstance(ctrl, list | np.ndarray) else ctrl
    return _linearize(model, state, ctrl)


@jax.jit
def _linearize(model: Model, state: State, ctrl: Array) -> tuple[Array, Array]:
    nv, size = model.structure.nv, 2 * model.structure.nv + model.structure.na
    reached = step(model, state, ctrl)

    def move(dx: Array, u: Array) -> Array:
        moved = state.replace(
            qpos=integrate_positions(model, state.qpos, dx[:, :nv], jnp.ones(1, dx.dtype)),
            qvel=state.qvel + dx[:, nv : 2 * nv],
            act=state.act + dx[:, 2 * nv :],
        )
        after = step(model, moved, u)
        return jnp.concatenate(
            [difference(model, reached.qpos, after.qpos), after.qvel - reached.qvel, after.act - reached.act], 1
        )

    worlds = state.qpos.shape[0]
    _, pull = jax.vjp(move, jnp.zeros((worlds, size), state.qpos.dtype), ctrl)
    rows = jnp.broadcast_to(jnp.eye(size, dtype=state.qpos.dtype)[:, None], (size, worlds, size))
    a, b = jax.vmap(pull)(rows)
    return jnp.moveaxis(a, 0, 1), jnp.moveaxis(b, 0, 1)
