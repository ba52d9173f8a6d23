"""Elimination of coupled bodies, island by island: trees that touch each other and themselves, and too little room."""

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import fphys
from fphys.rigid.solve import islands

from .test_sparse import FORWARD, close, pile, rope, settled, state_of

ARM = """
<body pos="{x} {y} {z}" euler="{turn} 20 {turn}"><freejoint/><geom type="box" size="0.1 0.06 0.04"/>
  <body pos="0.1 0 0"><joint axis="0 1 0" range="-60 60" limited="true" frictionloss="0.1"/>
    <geom type="capsule" fromto="0 0 0 0.2 0 0" size="0.04" condim="{dim}"/>
    <body pos="0.22 0 0"><joint type="ball"/><geom type="capsule" fromto="0 0 0 -0.25 0.1 0" size="0.04"/></body>
    <body pos="0.22 0 0.04"><geom size="0.05"/></body>
  </body>
  <body pos="-0.1 0 0"><joint type="slide" axis="1 0 0" range="-0.1 0.1" limited="true"/><joint axis="0 0 1"/>
    <geom type="capsule" fromto="0 0 0 0.1 0.13 0" size="0.04"/>
  </body>
</body>"""


def tangle(jacobian: str) -> str:
    """Arms in a heap, on the ground and on a shelf, a body that does not move, from which another body hangs."""
    arms = "".join(
        ARM.format(x=0.12 * (k % 2), y=0.1 * k, z=0.12 + 0.09 * k, turn=50 * k, dim=dim)
        for k, dim in enumerate((3, 6, 4, 1))
    )
    hung = '<joint type="ball"/><geom type="capsule" fromto="0 0 0 0 0 -0.2" size="0.05"/>'
    shelf = f'<geom type="box" size="0.2 0.2 0.05"/><body pos="-0.1 0.1 0.35">{hung}</body>'
    return f"""<mujoco><option timestep="0.002" jacobian="{jacobian}"/>
      <default><joint armature="0.01" damping="0.2"/></default><worldbody><geom type="plane" size="9 9 1"/>
      <body pos="0.3 0.3 0.05">{shelf}</body>{arms}</worldbody></mujoco>"""


def accelerations(xml: str, steps: int) -> tuple[fphys.Model, fphys.State, mujoco.MjData]:
    m, d = settled(xml, steps)
    model = fphys.load(m)
    contacts = d.ncon  # no room to spare
    state = fphys.init(model, 1, max_contacts=contacts, max_constraints=model.structure.nrow + 10 * contacts)
    start = state_of(model, d)
    return model, state.replace(qpos=start.qpos, qvel=start.qvel), d


def test_trees_that_touch_each_other_and_themselves() -> None:
    """The accelerations are MuJoCo's, and the solve with the Hessian that of the matrices."""
    for steps in (20, 80):
        model, state, d = accelerations(tangle("sparse"), steps)
        bodies = np.asarray(model.structure.geom.body)[d.contact.geom]
        root = islands.moving_root(model.structure)
        own, other = root[bodies].T
        assert ((own == other) & (own > 0)).any(), "no tree touches itself"
        assert ((own != other) & (own > 0) & (other > 0)).sum() >= 2, "few trees touch each other"
        qacc, info = FORWARD(model, state)
        assert int(info.status[0]) == 0
        close(qacc[0], d.qacc, 1e-8)
        dense = fphys.load(tangle("dense"))
        assert model.structure.sparse and not dense.structure.sparse
        weight = jnp.cos(1.7 * jnp.arange(model.structure.nv, dtype=float))

        def pulled(model: fphys.Model, state: fphys.State = state, weight: jax.Array = weight) -> jax.Array:
            force = jnp.zeros((1, model.structure.nv))
            return jax.grad(lambda f: (fphys.forward(model, state, force=f)[0] * weight[None]).sum())(force)

        close(*map(jax.jit(pulled), (model, dense)), 1e-8)


def test_bodies_that_do_not_move_connect_no_islands() -> None:
    structure = fphys.load(tangle("sparse")).structure
    root = islands.moving_root(structure)
    np.testing.assert_array_equal(root, [0, 0, 2, *np.repeat([3, 8, 13, 18], 5)])


def test_islands_too_dense_for_their_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are solved without the couplings: the same accelerations and gradients, up to the error that is allowed."""
    model, state, d = accelerations(pile((2, 2, 3), "sparse"), 60)

    def both(state: fphys.State) -> tuple[jax.Array, jax.Array, jax.Array]:
        force = jnp.sin(jnp.arange(model.structure.nv, dtype=float))[None]
        qacc, info = fphys.forward(model, state)
        gradient = jax.grad(lambda f: (fphys.forward(model, state, force=f)[0] * jnp.cos(force)).sum())(force)
        return qacc, gradient, info.status

    roomy = jax.jit(both)(state)
    asked = []
    monkeypatch.setattr(islands, "couplings", lambda *sizes: asked.append(sizes) or 0)
    tight = jax.jit(both)(state.replace(max_constraints=state.max_constraints - 1))  # a size not compiled yet
    assert asked, "the plan was not made again"
    assert not roomy[2].any() and not tight[2].any()
    close(roomy[0][0], d.qacc, 1e-8)
    for a, b in zip(tight[:2], roomy[:2], strict=True):
        close(a, b, 1e-8)
        assert bool((a != b).any()), "solved in the same way"


def test_limits_and_dry_friction_without_any_contact() -> None:
    """A chain at its limits: no contact is searched for, and nothing couples bodies."""
    stiff = 'damping="0.01" limited="true" range="-5 5" frictionloss="0.02"'
    sparse, dense = (fphys.load(rope(12, j).replace('damping="0.01"', stiff)) for j in ("sparse", "dense"))
    qpos = 0.12 * np.sin(np.arange(12.0))[None]
    state = fphys.init(sparse, 1, qpos=qpos, qvel=10 * qpos)
    assert sparse.structure.sparse and state.max_contacts == 0 and (np.abs(qpos) > np.deg2rad(5)).any()
    (found, info), (wanted, _) = (FORWARD(m, state) for m in (sparse, dense))
    assert int(info.status[0]) == 0
    close(found, wanted, 1e-9)
