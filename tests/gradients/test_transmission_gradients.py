"""Gradients through spatial tendons, sites, muscles and ranges of forces, by every leaf."""

from typing import Any

import jax.numpy as jnp
import pytest

import fphys
from fphys.rigid.forces.actuation import actuator_force, transmissions
from fphys.testing import check_grads, check_transforms

from ..parity.test_transmissions import CROSSING
from ..rigid.mechanisms import INTEGRATORS, UNCONSTRAINED, case, random_inputs, to_state, with_leaves
from .test_operations import arguments, check

OPERATIONS = {
    "forward": lambda model, state, *given: fphys.forward(model, state, *given)[0],
    "transmissions": lambda model, state, *_: transmissions(model, state),
    "actuator_force": lambda model, state, ctrl, *_: actuator_force(model, state, ctrl),
    "energy": lambda model, state, *_: fphys.energy(model, state),
}
MODELS = ("spatial", "muscle")


@pytest.mark.parametrize(
    "operation", [o if o == "forward" else pytest.param(o, marks=pytest.mark.slow) for o in OPERATIONS]
)
@pytest.mark.parametrize("name", MODELS)
def test_gradient_by_every_leaf(name: str, operation: str, full: bool):
    check(OPERATIONS[operation], arguments(case(name)), directions=16 if full else 3)


def steps(count: int) -> Any:
    def advance(model: Any, state: Any, *given: Any) -> Any:
        for _ in range(count):
            state = fphys.step(model, state, *given)
        return state.qpos, state.qvel, state.act

    return advance


@pytest.mark.parametrize(
    "integrator", [i if i == "implicitfast" else pytest.param(i, marks=pytest.mark.slow) for i in INTEGRATORS]
)
@pytest.mark.parametrize("name", MODELS)
def test_gradient_of_steps_by_every_leaf(name: str, integrator: str, full: bool):
    """The one rod of a slider-crank by its column: directions that hardly move it are lost in rounding."""
    sizes = (1e-5, 1e-6, 1e-7, 2e-8)  # some directions by a muscle's biasprm are so curved: error 1e8 h^2
    model, *rest = arguments(case(name, integrator), worlds=1)
    rods = model.actuator.cranklength

    def by_rods(rods: Any, model: Any, *rest: Any) -> Any:
        return steps(2)(with_leaves(model, {"actuator.cranklength": rods}), *rest)

    check(lambda *args: by_rods(rods, *args), (model, *rest), directions=16 if full else 3, steps=sizes)
    check_grads(lambda rods: by_rods(rods, model, *rest), (rods,), tol=1e-6, elementwise=True, steps=sizes[:3])


@pytest.mark.parametrize("shape", ["sphere", pytest.param("cylinder", marks=pytest.mark.slow)])
def test_gradient_of_a_tendon_through_a_ring(shape: str):
    """The touching point is the root of an equation, its gradient that of the implicit function."""
    model = fphys.load(CROSSING.format(shape=shape), disable=UNCONSTRAINED)
    state = to_state(model, random_inputs(model.structure.source, 4, size=0.3))
    paths = ("site.pos", "geom.size", "geom.pos", "tendon.stiffness", "tendon.damping")
    leaves = {path: getattr(getattr(model, path.split(".")[0]), path.split(".")[1]) for path in paths}

    def loss(leaves: Any, state: Any) -> Any:
        moved = with_leaves(model, leaves)
        return transmissions(moved, state)[:2], steps(2)(moved, state)[:2]

    check_grads(loss, (leaves, state), tol=1e-6, directions=4)


def test_gradients_flow_through_derived_constants():
    """Of muscles' strength and rest lengths by what they follow from."""
    model = case("muscle").model

    def derived(mass: Any, site: Any, size: Any) -> Any:
        changed = model.replace({"body.mass": mass, "site.pos": site, "geom.size": size})
        return changed.actuator.acc0, changed.tendon.lengthspring, changed.tendon.invweight0

    check_grads(derived, (model.body.mass, model.site.pos, model.geom.size), tol=1e-6, directions=4)


@pytest.mark.slow
def test_transforms():
    """Sites and coefficients differ between worlds, gains and radii are shared by all."""
    model, m = case("muscle")
    state = to_state(model, random_inputs(m, 3, seed=10))
    leaves = {
        "site.pos": jnp.broadcast_to(model.site.pos, (3, *model.site.pos.shape[1:]))
        * jnp.array([[[0.9]], [[1.0]], [[1.1]]]),
        "actuator.gainprm": model.actuator.gainprm,
        "geom.size": model.geom.size,
    }

    def operation(leaves: Any, start: Any) -> Any:
        worlds = max(x.shape[0] for x in (*leaves.values(), start["qpos"]))
        changed = with_leaves(model, leaves)
        moved = fphys.init(model, worlds).replace(**start)
        after = fphys.step(changed, moved, jnp.zeros((worlds, m.nu)))
        return after.qvel, after.act, *transmissions(changed, moved)

    start = {name: getattr(state, name) for name in ("qpos", "qvel", "act")}
    check_transforms(operation, (leaves, start), rtol=1e-10, batches=(2,), max_patterns=1)
