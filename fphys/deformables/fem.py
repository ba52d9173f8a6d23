"""Finite elements: elastic bodies of tetrahedra in space or triangles in the plane, by implicit Euler.

A step finds the positions x' that minimise the incremental potential

    W = sum_v m_v |x' - x - h v - h^2 g|^2 / (2 h^2) - f . x' + sum_e V psi(F(x'))

(Newton's method, its Hessian projected where it is not positive, a line search on W, conjugate gradients), and
v' = (x' - x) / h. With an infinite time step it is the equilibrium under the loads. Masses are lumped. The gradient is
one linear solve with the Hessian at x', which is not projected; no iteration is differentiated.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .. import units, worlds
from ..bridge import reverse_only
from ..particles.arguments import expect_kinds, load
from ..tree import Tree, pytree, static
from ..worlds import Status, flag, freeze, is_nonfinite, sound
from .arguments import anywhere, motion, places, vertex_numbers
from .fem_arguments import expect_mesh, gathered, is_solid, refuse, simulable
from .fem_solve import Layout, Setting, displacement, elastic_power
from .materials import Corotated, Law, NeoHookean, StVenantKirchhoff
from .mesh import Mesh, measures

__all__ = [
    "Corotated",
    "Law",
    "NeoHookean",
    "Params",
    "StVenantKirchhoff",
    "State",
    "Status",
    "check",
    "elastic_force",
    "init",
    "reset",
    "step",
]

Array = jax.Array


@pytree
class Params(Tree):
    """A body, what it is made of, and the time step.

    Leaves may be numbers, arrays with or without a world axis, or quantities of either (:mod:`fphys.units`).
    """

    mesh: Mesh  # tetrahedra in space, or triangles in the plane; its vertices are the shape at rest
    material: Law  # numbers for all elements, or for each: see :mod:`fphys.deformables.materials`
    timestep: Any  # h [s], shape () or (1 | world,); infinite: the equilibrium
    gravity: Any = 0.0  # [m/s^2], shape (), (dim,) or (1 | world, dim)
    damping: Any = 0.0  # a [1/s], Rayleigh's, by mass: a force -a m v', shape () or (1 | world,)
    pinned: Any = static(default=())  # numbers of the vertices whose positions are given; kept as a sorted tuple
    iterations: int = static(default=50)  # of Newton's method, at most

    def __post_init__(self) -> None:
        object.__setattr__(self, "pinned", vertex_numbers(self.pinned))
        expect_mesh(self)


@pytree
class State(Tree):
    """A body in motion. Make it with :func:`init`."""

    x: Array  # Position [m], shape (world, vertex, dim).
    v: Array  # Velocity [m/s], shape (world, vertex, dim).
    residual: Array  # The last step's forces that are left over, relative to those that cancel, (world,); no gradient.
    status: Array  # Fault bits (Status), uint32, shape (world,); no gradient.


def init(params: Params, positions: Any = None, velocities: Any = None, num_worlds: int = 1) -> State:
    """A body at rest in its shape at rest, unless positions or velocities are given.

    Args:
        positions: [m], shape (world, vertex, dim); their dtype decides the precision. By default the mesh's vertices in
            ``num_worlds`` worlds, in JAX's default precision if they are NumPy's.
        velocities: [m/s], the same shape.
        num_worlds: if no positions are given, and the mesh's vertices have no world axis of their own.

    Returns:
        A state. Gradients flow to positions and velocities, and to the mesh's vertices if no positions are given.

    Raises:
        ValueError: a shape does not fit; or, if known on the host, a position is not finite, or a number of ``params``
            cannot be simulated, or an element is inside out at rest: the message names vertex or element.
        TypeError: dtypes differ. UnitError: a quantity is of another kind.
    """
    params = _bare(params)
    x, v = motion(params.mesh, positions, velocities, num_worlds)
    refuse(params)
    return State(x, v, jnp.zeros(len(x), x.dtype), jnp.zeros(len(x), jnp.uint32))


@reverse_only
def step(params: Params, state: State, force: Any = None, pins: Any = None) -> State:
    """Advance every world by one time step. Pure; composes with jit, grad, vmap, scan and checkpoint.

    Args:
        force: on every vertex [N], shape (world, vertex, dim); axes 0 and 1 may have size 1. In the plane it is that
            of each metre of thickness.
        pins: where the vertices ``params.pinned`` are at the end of the step [m], shape (pinned, dim) or (1 | world,
            pinned, dim), in the order of their numbers; by default where they are now.

    Returns:
        The next state. Its status says UNCONVERGED if Newton's method stopped before it was done, and INVERTED if an
        element is inside out, which the laws allow. A world whose state, loads or parameters cannot be simulated keeps
        its last state, its status says so, and it passes no gradient; other worlds are not affected.
        Gradients flow to all of params (the mesh's vertices, too), positions, velocities, force and pins, exact for a
        step that converged.

    Raises:
        ValueError: a shape does not fit, before anything runs. TypeError: dtypes differ. UnitError: a quantity is of
            another kind.
    """
    expect_kinds("fem.step", params, state, Params, State)
    params = _bare(params)
    layout, setting, start, bits = _screened(params, state, force, pins)
    found = displacement(layout, setting, start)
    dim = state.x.shape[-1]
    u, residual = found.u[..., :dim], jax.lax.stop_gradient(found.residual)
    v = u / setting.timestep[:, None, None]
    new = State(setting.x[..., :dim] + u, v, residual, jax.lax.stop_gradient(found.status))
    return freeze(state, new, bits, ~sound([new.x, new.v, residual], len(state.status)))[0]


def elastic_force(params: Params, state: State) -> Array:
    """Force [N] of the elements on every vertex, shape (world, vertex, dim): minus the elastic energy's derivative.

    At a pinned vertex of a body at rest it is what the pin, force and weight there balance. No gradient flows: it is
    zero.

    Raises:
        ValueError: a shape does not fit. TypeError: dtypes differ. UnitError: a quantity is of another kind.
    """
    expect_kinds("fem.elastic_force", params, state, Params, State)
    layout, setting, *_ = _screened(_bare(params), jax.lax.stop_gradient(state), None, None)
    return -elastic_power(layout, setting)[..., : state.x.shape[-1]]


def check(params: Params, state: State) -> None:
    """Raise an error on the host if the status reports a fault.

    Raises:
        StateError: names world, fault, the vertices that are not finite now or the elements that are inside out, and
            what to change.
    """
    expect_kinds("fem.check", params, state, Params, State)

    def cause(world: int, bit: Status) -> str:
        x, v = (np.asarray(a[world], float) for a in (state.x, state.v))
        if bit == Status.NONFINITE:
            return _CAUSES[bit].format(_some("vertex", ~(np.isfinite(x) & np.isfinite(v)).all(-1)))
        if bit == Status.INVERTED:
            return _CAUSES[bit].format(_some("element", ~(measures(x, params.mesh.elements) > 0)))
        if bit == Status.UNCONVERGED:
            return _CAUSES[bit].format(params.iterations)
        return _CAUSES.get(bit, "")

    worlds.report(state.status, cause, "fem.reset")


def reset(params: Params, state: State, mask: Array, start: State) -> State:
    """Reset the worlds of ``mask`` to those of ``start``, and clear their fault bits.

    Args:
        mask: the worlds to reset, bool, shape (num_worlds,).
        start: a state with as many worlds, positions in [m], for example from :func:`init`.

    Gradients flow to ``start`` in the worlds that are reset, and to ``state`` in the others.

    Raises:
        ValueError: the mask or ``start`` has another shape. TypeError: not parameters and state of this solver.
    """
    expect_kinds("fem.reset", params, state, Params, State)
    return worlds.reset(state, mask, start)


_CAUSES = {
    Status.NONFINITE: "positions or velocities became NaN, infinite or huge{}; lower params.timestep or the loads",
    Status.BADCTRL: "force or pins were not finite; the world skipped that step",
    Status.BADPARAM: (
        "a number is not one to simulate: time step, density and Young's modulus must be positive, Poisson's ratio "
        "between -1 and 0.5, damping not negative, gravity finite, and every element's volume at rest positive"
    ),
    Status.UNCONVERGED: (
        "Newton's method stopped before the forces balanced, after {} iterations or where no step lowered the "
        "potential; lower params.timestep or the loads, hold the body by pins if it is to be at rest, or raise "
        "params.iterations; state.residual says how far it was"
    ),
    Status.INVERTED: "an element was inside out{}; lower params.timestep or the loads, or refine the mesh there",
}


def _some(what: str, which: Any) -> str:
    found = np.flatnonzero(which)
    return f" ({len(found)} now, the first is {what} {found[0]})" if len(found) else ""


def _bare(params: Params) -> Params:
    """Params without quantities."""
    material = units.bare(params.material, params.material.kinds, type(params.material).__name__)
    body = units.bare(params.mesh, {"vertices": units.length}, "mesh")
    kinds = {"timestep": units.duration, "gravity": units.acceleration, "damping": units.frequency}
    return units.bare(params, kinds, "params").replace(material=material, mesh=body)


def _screened(params: Params, state: State, force: Any, pins: Any) -> tuple[Layout, Setting, Array, Array]:
    """What the solve takes, harmless in faulty worlds, with vectors of three numbers; and fault bits, (world,)."""
    given = gathered(params, state)
    (count, n, dim), dtype, held = state.x.shape, state.x.dtype, list(params.pinned)
    force = load("force", units.si(force, units.force, "force"), (count, n, dim), dtype)
    at = places(units.si(pins, units.length, "pins"), state.x[:, held])

    still = ~sound([state.x, state.v]) | is_nonfinite(state.status)
    bad, solid = ~(sound([force]) & sound([at])), is_solid(given.rest, params.mesh.elements)
    fine = solid & simulable(given)
    bits = flag(Status.NONFINITE, still) | flag(Status.BADCTRL, bad) | flag(Status.BADPARAM, ~fine)
    stop = worlds.idle(bits)

    def calm(value: Array, instead: Any) -> Array:
        """Another value in worlds that do not take the step: one that cannot overflow."""
        rows = stop if len(value) == count else stop.all()[None]
        return jnp.where(rows.reshape(-1, *[1] * (value.ndim - 1)), instead, value)

    def space(value: Array) -> Array:
        return jnp.pad(value, ((0, 0),) * (value.ndim - 1) + ((0, 3 - dim),))

    rest = jnp.where(solid[:, None, None], given.rest, jnp.asarray(anywhere(n, dim), dtype)[None])
    young, poisson = calm(given.young, 1), calm(given.poisson, 0)
    start = jnp.zeros_like(state.x)
    if held:
        start = start.at[:, held].set(calm(at - state.x[:, held], 0))
    setting = Setting(
        space(rest),
        calm(given.density, 1),
        *params.material.lame(young, poisson),
        calm(given.timestep, 1),
        space(calm(given.gravity, 0)),
        calm(given.damping, 0),
        space(calm(state.x, rest)),
        space(calm(state.v, 0)),
        space(jnp.broadcast_to(calm(force, 0), (len(force), n, dim))),
    )
    layout = Layout(params.material.number, params.mesh.topology, params.pinned, params.iterations)
    return layout, setting, space(start), bits
