"""The gradient through contact: against finite differences at a frozen contact set, and mutations of it."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fphys
from fphys.bridge import warp_op
from fphys.rigid import team
from fphys.rigid.solve import constraint
from fphys.testing import check_grads, check_transforms

from .scenes import VARIANTS, scene

LEAVES = {
    "opt": ("timestep", "gravity", "impratio"),
    "body": ("mass", "inertia", "ipos", "pos", "invweight0"),
    "joint": ("pos",),
    "dof": ("damping", "armature"),
    "geom": ("friction", "solref", "solimp", "solmix", "margin", "size", "pos", "quat"),
    "actuator": ("gear", "gainprm"),
}
FORWARD = jax.jit(fphys.forward)


def with_leaves(model: Any, leaves: dict[str, dict[str, Any]]) -> Any:
    return dataclasses.replace(
        model, **{group: dataclasses.replace(getattr(model, group), **changes) for group, changes in leaves.items()}
    )


def leaves_of(model: Any) -> dict[str, dict[str, Any]]:
    return {group: {name: getattr(getattr(model, group), name) for name in names} for group, names in LEAVES.items()}


def qacc_of(variant: str) -> tuple[Any, tuple[Any, ...]]:
    """Accelerations as a function of state, control and the model's leaves, the contact set frozen."""
    s = scene(variant, worlds=4)
    contacts = FORWARD(s.model, s.state, s.ctrl)[1].contacts
    scale = 1e-2  # accelerations of some hundreds, so that finite differences are not lost in rounding

    def f(leaves: Any, qpos: Any, qvel: Any, ctrl: Any, wrench: Any, force: Any) -> Any:
        state = s.state.replace(qpos=qpos, qvel=qvel)
        return scale * fphys.forward(with_leaves(s.model, leaves), state, ctrl, wrench, force, contacts=contacts)[0]

    worlds, nv = s.state.qvel.shape
    rng = np.random.default_rng(1)
    wrench = jnp.asarray(rng.normal(size=(worlds, s.model.structure.nbody, 6)))
    force = jnp.asarray(rng.normal(size=(worlds, nv)))
    return jax.jit(f), (leaves_of(s.model), s.state.qpos, s.state.qvel, s.ctrl, wrench, force)


@pytest.mark.parametrize("variant", VARIANTS)
def test_accelerations(variant: str, full: bool):
    f, args = qacc_of(variant)
    check_grads(f, args, tol=1e-5, directions=16 if full else 3)


@pytest.mark.parametrize("variant", VARIANTS)
def test_rollout(variant: str):
    """Five steps, all in contact, by initial state and controls."""
    s = scene(variant, worlds=4)
    ctrls = jnp.asarray(np.random.default_rng(2).uniform(-1, 1, (5, *s.ctrl.shape)))

    def final(qpos: Any, qvel: Any, ctrls: Any) -> Any:
        states = fphys.rollout(s.model, s.state.replace(qpos=qpos, qvel=qvel), ctrls)
        return states.qpos[-1], 0.1 * states.qvel[-1]

    check_grads(jax.jit(final), (s.state.qpos, s.state.qvel, ctrls), tol=1e-5, directions=4)


def test_a_ball_at_rest_does_not_accelerate_when_its_mass_changes():
    """dqacc/dmass is 0 when the derived constants follow, and MuJoCo's raw field edit when they do not."""
    model = fphys.load(
        '<mujoco><worldbody><geom type="plane" size="5 5 1"/><body pos="0 0 0.1"><freejoint/>'
        '<geom type="sphere" size="0.101" mass="1"/></body></worldbody></mujoco>'
    )
    state = fphys.init(model, 1, qvel=np.array([0, 0, -0.1, 0, 0, 0.0]))

    @functools.partial(jax.jit, static_argnums=1)
    def up(mass: Any, derived: str) -> Any:
        heavier = model.replace({"body.mass": model.body.mass.at[0, 1].set(mass)}, derived=derived)
        return fphys.forward(heavier, state)[0][0, 2]

    slope = jax.jit(jax.grad(up), static_argnums=1)
    assert abs(slope(1.0, "recomputed")) < 1e-12
    h = 1e-5
    frozen = (up(1.0 + h, "frozen") - up(1.0 - h, "frozen")) / (2 * h)
    assert abs(frozen) > 0.1
    np.testing.assert_allclose(slope(1.0, "frozen"), frozen, rtol=1e-7)


@functools.cache
def sound() -> float:
    return check_grads(*qacc_of("euler"), tol=1e-5, directions=2, argnums=(1,))


@pytest.mark.parametrize("mutation", ["no contact power", "mass matrix for the Hessian", "moving tangents frozen"])
def test_mutations_are_noticed(mutation: str, monkeypatch: pytest.MonkeyPatch):
    """Take one term out of the backward pass: the error must jump above the gate."""
    sound()
    if mutation == "no contact power":
        _leave_out_contacts(monkeypatch)
    elif mutation == "mass matrix for the Hessian":
        solve, less = constraint._back_solve_op, lambda found: jax.tree.map(lambda x: 0.9 * x, found)
        monkeypatch.setattr(constraint, "_back_solve_op", lambda damping: lambda *args: less(solve(damping)(*args)))
    else:
        _stop_tangents(monkeypatch)
    mutant, args = qacc_of("euler")
    with pytest.raises(AssertionError):
        check_grads(mutant, args, tol=1e-5, directions=2, argnums=(1,))


def _leave_out_contacts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The power without that of the contact forces."""
    vjp = constraint._power_op.vjp

    class Mutant:
        outputs = staticmethod(constraint._power_op.outputs)

        def vjp(self, args: Any, seeds: Any, wanted: Any) -> Any:
            return vjp(args, seeds._replace(contact=jnp.zeros_like(seeds.contact)), wanted)

    monkeypatch.setattr(constraint, "_power_op", Mutant())


def _stop_tangents(monkeypatch: pytest.MonkeyPatch) -> None:
    """The adjoint of the contact's geometry left out."""
    from fphys.bridge import op

    plan_backward = op.plan_backward

    def mutant(*args: Any) -> Any:
        plan, scratch = plan_backward(*args)
        plan.launches = [(x, adj) for x, adj in plan.launches if not (adj and x.kernel.key == "contact_geometry")]
        return plan, scratch

    monkeypatch.setattr(op, "plan_backward", mutant)
    fresh = op.warp_op(constraint._power, constraint._power_shapes, name="mutant")
    monkeypatch.setattr(constraint, "_power_op", fresh)


@pytest.mark.parametrize("lanes", [3, None])
def test_threads_of_a_world_share_its_contacts(lanes: int | None, monkeypatch: pytest.MonkeyPatch):
    """What a CPU gives one thread a GPU deals to many: the same step bit by bit, its gradient but for sums' order."""

    def results() -> list[Any]:
        s = scene("euler", worlds=2)

        def loss(model: Any, state: Any, ctrl: Any) -> Any:
            after = fphys.step(model, state, ctrl)
            return (after.qpos**2).sum() + (after.qvel**2).sum()

        leaves, tree = jax.tree.flatten((s.model, s.state, s.ctrl))
        floats = [x for x in leaves if jnp.issubdtype(x.dtype, jnp.floating)]

        def of_floats(floats: list[Any]) -> Any:
            given = iter(floats)
            return loss(*tree.unflatten([next(given) if jnp.issubdtype(x.dtype, jnp.floating) else x for x in leaves]))

        value, grads = jax.jit(jax.value_and_grad(of_floats))(floats)
        return [np.asarray(x) for x in (value, *grads)]  # compared without a program for each shape

    alone = results()
    asked = []
    monkeypatch.setattr(team, "lanes", lambda _, count: asked.append(count) or lanes or count)
    for name in ("_solve_op", "_back_solve_op"):
        monkeypatch.setattr(constraint, name, functools.cache(getattr(constraint, name).__wrapped__))
    fresh = warp_op(constraint._power, constraint._power_shapes, name="constraint's power")
    monkeypatch.setattr(constraint, "_power_op", fresh)
    jax.clear_caches()  # a checkpointed function is traced once
    many = results()
    assert alone[0] == many[0]
    for one, other in zip(alone[1:], many[1:], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-14 * float(np.abs(one).max(initial=0.0)))
    assert max(asked) > 3, asked
    jax.clear_caches()


def test_transforms(full: bool):
    """In reduced size, nested vmap alone maps one argument without the others."""
    s = scene("euler", worlds=3)

    def of_worlds(qpos: Any, qvel: Any, ctrl: Any) -> Any:
        n = qpos.shape[0]
        state = fphys.init(s.model, n).replace(qpos=qpos, qvel=qvel)
        return fphys.forward(s.model, state, ctrl)[0]

    check_transforms(of_worlds, (s.state.qpos, s.state.qvel, s.ctrl), batches=(3,), max_patterns=2 if full else 1)
