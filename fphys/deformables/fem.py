"""Finite elements: elastic bodies of tetrahedra, or triangles in the plane, and sheets, by implicit or explicit steps.

A step finds the positions x' that minimise the incremental potential

    W = sum_v m_v |x' - x - h v - h^2 g|^2 / (2 h^2) - f . x' + sum_e V psi(F(x')) + hinges + contact

(Newton's method, its Hessian projected where it is not positive, a line search on W, conjugate gradients), and
v' = (x' - x) / h. With an infinite time step it is the equilibrium under the loads. Masses are lumped. The gradient is
one linear solve with the Hessian at x', which is not projected; no iteration is differentiated.

Triangles in space are a sheet, cloth or a shell: a membrane in plane stress of the same laws, and hinges at its edges
that bend (Grinspun et al. 2003). Solids that touch nothing may take many short explicit steps instead
(``fem_explicit``).
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .. import units, worlds
from ..bridge import worldwise
from ..errors import UnsupportedError
from ..math import matmul
from ..particles.arguments import expect_kinds, known, load
from ..particles.boundary import Collider
from ..particles.response import DISAGREED
from ..tree import Tree, pytree, static
from ..worlds import Status, flag, freeze, is_nonfinite, sound
from .arguments import anywhere, motion, places, vertex_numbers
from .constraints import hinge_stiffness
from .fem_arguments import (
    Contact,
    Given,
    Shapes,
    areas,
    bare,
    expect_mesh,
    gathered,
    is_sheet,
    is_solid,
    refuse,
    side_by_side,
    simulable,
)
from .fem_explicit import courant, leap
from .fem_solve import Layout, Setting, displacement, elastic_power, no_bodies, pushed
from .materials import Corotated, Law, NeoHookean, StVenantKirchhoff
from .mesh import Mesh, measures
from .pairs import Shares, shares

__all__ = [
    "Contact",
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
    "limit",
    "reactions",
    "reset",
    "step",
]

Array = jax.Array


EARLY = 1 - 0.5**0.5
"""Of a step of second order: the length of each of its two solves, as a part of the step."""


@pytree
class Params(Tree):
    """A body, what it is made of, and the time step.

    Leaves may be numbers, arrays with or without a world axis, or quantities of either (:mod:`fphys.units`).
    """

    mesh: Mesh  # tetrahedra, triangles in the plane, or a sheet of triangles in space; its vertices: the shape at rest
    material: Law  # numbers for all elements, or for each: see :mod:`fphys.deformables.materials`
    timestep: Any  # h [s], shape () or (1 | world,); infinite: the equilibrium
    gravity: Any = 0.0  # [m/s^2], shape (), (dim,) or (1 | world, dim)
    damping: Any = 0.0  # a [1/s], Rayleigh's, by mass: a force -a m v', shape () or (1 | world,)
    pinned: Any = static(default=())  # numbers of the vertices whose positions are given; kept as a sorted tuple
    iterations: int = static(default=50)  # of Newton's method, at most
    stiffness_damping: Any = 0.0  # b [s], Rayleigh's, by stiffness: b times the stress of the strain's rate
    contact: Contact = Contact()  # with colliders, and with itself
    mean_dilatation: bool = static(default=False)  # volumes change by means around vertices: no locking as nu nears 0.5
    order: int = static(default=1)  # of the integrator: 1, implicit Euler; 2, two solves a step, hardly any damping
    thickness: Any = None  # of a sheet [m], a number for all elements, or for each as the material's; sheets need it
    bending: Any = None  # B of a sheet [N m], the same; by default that of a plate, E t^3 / (12 (1 - nu^2))
    explicit: bool = static(default=False)  # leapfrog, for solids that touch nothing; time steps below ``limit``

    def __post_init__(self) -> None:
        object.__setattr__(self, "pinned", vertex_numbers(self.pinned))
        expect_mesh(self)


@pytree
class State(Tree):
    """A body in motion. Make it with :func:`init`."""

    x: Array  # Position [m], shape (world, vertex, dim).
    v: Array  # Velocity [m/s], shape (world, vertex, dim).
    residual: Array  # Last step's forces left over by those that cancel; the largest since UNCONVERGED; no gradient.
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
    params = bare(params)
    x, v = motion(params.mesh, positions, velocities, num_worlds)
    refuse(params)
    state = State(x, v, jnp.zeros(len(x), x.dtype), jnp.zeros(len(x), jnp.uint32))
    if params.explicit and (step := known(params.timestep)) is not None:
        if (most := known(limit(params, state))) is not None and (step[0] > most[0]).any():
            raise ValueError(
                f"params.timestep is {step[0].max():.3g} s: explicit steps of this body are stable below "
                f"{most[0].min():.3g} s (fem.limit); make it shorter, or leave params.explicit out"
            )
    return state


def limit(params: Params, state: State) -> Array:
    """The longest time step [s] with which explicit steps are stable at small strain, shape (1 | world,).

    It is that of the element with the fastest waves; muscles, whose pull makes them faster, are left out. Gradients
    flow to the material and the shape at rest.
    """
    given = gathered(bare(params), state)
    mu, lam = params.material.lame(given.young, given.poisson)
    return courant(space(given.rest, 3), params.mesh.elements, mu, lam, given.density)


@worldwise
def step(
    params: Params,
    state: State,
    force: Any = None,
    actuation: Any = None,
    pins: Any = None,
    colliders: Collider | tuple[Collider, ...] = (),
) -> State:
    """Advance every world by one time step. Pure; composes with jit, grad, vmap, scan and checkpoint.

    Args:
        force: on every vertex [N], shape (world, vertex, dim); axes 0 and 1 may have size 1. In the plane it is that
            of each metre of thickness.
        actuation: stress S of muscles in the material's own axes [Pa], shape (world, element, 3, 3); axes 0 and 1 may
            have size 1. Its symmetric part adds F S F^T to the Kirchhoff stress: a d d^T is a muscle along a fibre d.
        pins: where the vertices ``params.pinned`` are at the end of the step [m], shape (pinned, dim) or (1 | world,
            pinned, dim), in the order of their numbers; by default where they are now.
        colliders: shapes that keep vertices out (:mod:`fphys.particles.boundary`), where they are at the step's start;
            during it they move with their velocity and spin. Contact "separate", with friction, or "sticky": what
            touches it does not slide. Pinned vertices feel none. An equilibrium has no friction, and takes no sticky
            collider.

    Returns:
        The next state. Its status says UNCONVERGED if Newton's method stopped before it was done, INVERTED if an
        element is inside out, which the laws allow, CONTACT_OVERFLOW if the body met itself in more pairs than
        ``params.contact`` has room for, and CFL if an explicit step is too long to be stable. A world whose state,
        loads or parameters cannot be simulated keeps its last state, its status says so, and it passes no gradient;
        other worlds are not affected.
        Gradients flow to all of params (the mesh's vertices, too), positions, velocities, force, pins, actuation and
        colliders, exact for a step that converged.

    Raises:
        ValueError: a shape does not fit, before anything runs. TypeError: dtypes differ. UnsupportedError: a collider
            that fem does not have, or a sticky one at an equilibrium. UnitError: a quantity is of another kind.
    """
    expect_kinds("fem.step", params, state, Params, State)
    params = bare(params)
    return advanced(params, state, *screened(params, state, force, pins, colliders, actuation))


@jax.jit
def advanced(
    params: Params, state: State, layout: Layout, setting: Setting, shapes: Shapes, start: Array, bits: Array
) -> State:
    if params.explicit:
        return _explicit(params, state, layout, setting, start, bits)
    dim, part = state.x.shape[-1], EARLY if params.order == 2 else 1.0
    stage = first_solve(setting, shapes, part)
    found = displacement(layout, stage, part * start)
    residual, status = found.residual, found.status
    if params.order == 2:
        stage = _second(setting, shapes, stage, found.u)
        found = displacement(layout, stage, part * start)
        residual, status = jnp.maximum(residual, found.residual), status | found.status
    x, v = stage.x + found.u, found.u / stage.timestep[:, None, None]
    missed = (state.status & jnp.uint32(Status.UNCONVERGED)) != 0
    residual = jax.lax.stop_gradient(jnp.where(missed, jnp.maximum(state.residual, residual), residual))
    new = State(x[..., :dim], v[..., :dim], residual, jax.lax.stop_gradient(status))
    return freeze(state, new, bits, ~sound([new.x, new.v, residual], len(state.status)))[0]


def _explicit(params: Params, state: State, layout: Layout, setting: Setting, start: Array, bits: Array) -> State:
    """A step by ``fem_explicit``."""
    dim, (x, v), elements = state.x.shape[-1], leap(layout, setting, start), params.mesh.elements
    now = jax.lax.stop_gradient(setting)
    flat = ~(measures(jax.lax.stop_gradient(x[..., :dim]), elements) > 0).all(1)
    above = now.timestep > courant(now.rest, elements, now.mu, now.lam, now.density)
    status = flag(Status.CFL, above) | flag(Status.INVERTED, flat)
    new = State(x[..., :dim], v[..., :dim], jnp.zeros_like(state.residual), status)
    return freeze(state, new, bits, ~sound([new.x, new.v], len(bits)))[0]


@worldwise
def reactions(params: Params, state: State, after: State, colliders: Collider | tuple[Collider, ...]) -> Array:
    """What a step did to its colliders: the mean force [N] and torque [N m] on each, (world, collider, 6).

    Args:
        state, after: before the step, and what it returned.
        colliders: those that it got.

    Returns:
        Force, then torque about the collider's origin; in a plane, of each metre of thickness. Times the time step it
        is the momentum that the body lost to them. Zero in worlds that did not take the step. Gradients flow to all
        arguments.

    Raises:
        ValueError: a shape does not fit. TypeError: dtypes differ. UnitError: a quantity is of another kind.
    """
    expect_kinds("fem.reactions", params, state, Params, State)
    layout, setting, shapes, _, bits = screened(bare(params), state, None, None, colliders, None)
    bits = bits | (after.status & jnp.uint32(Status.NONFINITE | Status.BADCTRL | Status.BADPARAM))
    still = worlds.idle(bits)
    move = worlds.choose(still, 0, space(after.x, 3) - setting.x)
    if params.order == 1:
        wrench = _wrench(layout, first_solve(setting, shapes, 1.0), move)
    else:
        late = EARLY * setting.timestep[:, None, None] * worlds.choose(still, 0, space(after.v, 3))
        early = EARLY / (1 - EARLY) * (move - late)
        first = first_solve(setting, shapes, EARLY)
        second = _second(setting, shapes, first, early)
        wrench = (1 - EARLY) * _wrench(layout, first, early) + EARLY * _wrench(layout, second, late)
    return worlds.choose(still, 0, wrench)


def elastic_force(params: Params, state: State) -> Array:
    """Force [N] of the elements on every vertex, shape (world, vertex, dim): minus the elastic energy's derivative.

    At a pinned vertex of a body at rest it is what the pin, force and weight there balance. No gradient flows: it is
    zero.

    Raises:
        ValueError: a shape does not fit. TypeError: dtypes differ. UnitError: a quantity is of another kind.
    """
    expect_kinds("fem.elastic_force", params, state, Params, State)
    layout, setting, *_ = screened(bare(params), jax.lax.stop_gradient(state), None, None, (), None)
    return -elastic_power(layout, setting)[..., : state.x.shape[-1]]


def check(params: Params, state: State) -> None:
    """Raise an error on the host if the status reports a fault.

    Raises:
        StateError: names world, fault, the vertices that are not finite now or the elements that are inside out, and
            what to change.
    """
    expect_kinds("fem.check", params, state, Params, State)

    def cause(world: int, bit: Status) -> str:
        x, v = (np.asarray(a, float)[world] for a in (state.x, state.v))
        if bit == Status.NONFINITE:
            return _CAUSES[bit].format(_some("vertex", ~(np.isfinite(x) & np.isfinite(v)).all(-1)))
        if bit == Status.INVERTED:
            return _CAUSES[bit].format(_some("element", ~(measures(x, params.mesh.elements) > 0)))
        if bit == Status.UNCONVERGED:
            return _CAUSES[bit].format(params.iterations)
        if bit == Status.CFL:
            most = np.asarray(limit(params, state))
            return _CAUSES[bit].format(most[world % len(most)])
        if bit == Status.CONTACT_OVERFLOW:
            return _CAUSES[bit].format(params.contact.pairs, 2 * params.contact.pairs)
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
    Status.BADCTRL: "force, pins, actuation or a collider were not finite; the world skipped that step",
    Status.BADPARAM: (
        "a number is not one to simulate: time step (with a sticky collider finite), density, Young's modulus and the "
        "numbers of contact must be positive, Poisson's ratio between -1 (of a Neo-Hookean sheet -5/7) and 0.5, "
        "damping not negative (explicit steps: by mass only), gravity finite, and every element's volume at rest "
        "positive; of a sheet, its thickness and areas positive, and its bending not negative"
    ),
    Status.UNCONVERGED: (
        "Newton's method stopped before the forces balanced, after {} iterations or where no step lowered the "
        "potential; lower params.timestep or the loads, hold the body by pins if it is to be at rest, or raise "
        "params.iterations; state.residual says how far it was at worst; or " + DISAGREED
    ),
    Status.CONTACT_OVERFLOW: (
        "the body met itself in more than {} pairs, and those without room did not act: give params.contact.pairs={}, "
        "or a smaller params.contact.thickness"
    ),
    Status.CFL: (
        "params.timestep is above {:.3g} s, below which explicit steps are stable (fem.limit): make it shorter, or "
        "leave params.explicit out"
    ),
    Status.INVERTED: (
        "an element was inside out, or had no area{}; lower params.timestep or the loads, or refine the mesh there"
    ),
}


def _some(what: str, which: Any) -> str:
    found = np.flatnonzero(which)
    return f" ({len(found)} now, the first is {what} {found[0]})" if len(found) else ""


def space(value: Array, size: int) -> Array:
    """Vectors of so many numbers, from shorter ones."""
    return jnp.pad(value, ((0, 0),) * (value.ndim - 1) + ((0, size - value.shape[-1]),))


def screened(
    params: Params, state: State, force: Any, pins: Any, colliders: Collider | tuple[Collider, ...], actuation: Any
) -> tuple[Layout, Setting, Shapes, Array, Array]:
    """What the solve takes, harmless in faulty worlds, with vectors of three numbers; and fault bits, (world,).

    Colliders are where the step begins, and do not move: see ``first_solve``.
    """
    colliders = (colliders,) if isinstance(colliders, Collider) else colliders
    given = gathered(params, state)
    (count, n, dim), dtype = state.x.shape, state.x.dtype
    force = load("force", units.si(force, units.force, "force"), (count, n, dim), dtype)
    muscles = actuation is not None
    actuation = units.si(actuation, units.pressure, "actuation")
    actuation = load("actuation", actuation, (count, len(params.mesh.elements), 3, 3), dtype)
    at = places(units.si(pins, units.length, "pins"), state.x[:, np.array(params.pinned, int)])
    if params.explicit and colliders:
        raise UnsupportedError("explicit steps do not meet colliders: leave params.explicit out, or the colliders")
    numbers, shapes = side_by_side(colliders, dtype, dim, count)
    sticks = "sticky" in [c.contact for c in colliders]
    if sticks and (h := known(params.timestep)) is not None and not np.isfinite(h[0]).all():
        raise UnsupportedError(
            "params.timestep is infinite and a collider sticky: an equilibrium has no friction, pin its vertices"
        )
    return _calmed(params, state, given, (force, at, actuation), shapes, numbers, muscles, sticks)


@functools.partial(jax.jit, static_argnames=("numbers", "muscles", "sticks"))
def _calmed(
    params: Params,
    state: State,
    given: Given,
    loads: tuple[Array, Array, Array],
    shapes: Shapes,
    numbers: tuple[Any, ...],
    muscles: bool,
    sticks: bool,
) -> tuple[Layout, Setting, Shapes, Array, Array]:
    (count, n, dim), dtype, held = state.x.shape, state.x.dtype, list(params.pinned)
    elements, (force, at, actuation) = params.mesh.elements, loads
    still = ~sound([state.x, state.v]) | is_nonfinite(state.status)
    bad = ~(sound([force]) & sound([at]) & sound([actuation]) & sound(shapes))
    solid = is_solid(given.rest, elements)
    fine = solid & simulable(params, given)
    if params.order == 2 or params.explicit or sticks:
        fine = fine & jnp.isfinite(given.timestep)
    if params.explicit:
        fine = fine & (given.stiffness_damping == 0)
    bits = flag(Status.NONFINITE, still) | flag(Status.BADCTRL, bad) | flag(Status.BADPARAM, ~fine)
    stop = worlds.idle(bits)

    def calm(value: Array, instead: Any) -> Array:
        """Another value in worlds that do not take the step: one that cannot overflow."""
        rows = stop if len(value) == count else stop.all()[None]
        return jnp.where(rows.reshape(-1, *[1] * (value.ndim - 1)), instead, value)

    rest = jnp.where(solid[:, None, None], given.rest, jnp.asarray(anywhere(n, dim), dtype)[None])
    young, poisson, thick = calm(given.young, 1), calm(given.poisson, 0), calm(given.thick, 1)
    mu, lam = params.material.lame(young, poisson)
    start = jnp.zeros_like(state.x)
    if held:
        start = start.at[:, held].set(calm(at - state.x[:, held], 0))
    shapes = Shapes(*(calm(value, 1) for value in shapes))
    x, actuation = space(calm(state.x, rest), 3), calm(actuation, 0)
    muscle = 0.5 * jnp.broadcast_to(actuation + actuation.swapaxes(2, 3), (len(actuation), len(elements), 3, 3))
    bend, sheet = jnp.zeros((1, 0), dtype), is_sheet(params.mesh)
    if sheet:
        lam = young * poisson / (1 - poisson**2)
        bend = hinge_stiffness(rest, params.mesh.topology, calm(given.bending, 0))
        keep = _planes(rest, elements)
        muscle = matmul(matmul(keep, muscle), keep)
    none = jnp.zeros((1, 1), dtype)
    itself = shares(rest, params.mesh.topology) if params.contact.pairs else Shares(none, none, none)
    setting = Setting(
        rest=space(rest, 3),
        density=calm(given.density, 1),
        mu=mu,
        lam=lam,
        timestep=calm(given.timestep, 1),
        gravity=space(calm(given.gravity, 0), 3),
        damping=calm(given.damping, 0),
        x=x,
        v=space(calm(state.v, 0), 3),
        force=space(jnp.broadcast_to(calm(force, 0), (len(force), n, dim)), 3),
        viscous=calm(given.stiffness_damping, 0),
        muscle=muscle,
        thick=thick,
        bend=bend,
        area=areas(rest, params.mesh.topology, params.pinned),
        stiffness=calm(given.stiffness, 1),
        thickness=calm(given.thickness, 1e-6),
        slip=calm(given.slip, 1),
        before=x,
        **itself._asdict(),
        rub=calm(given.friction, 0),
        size=shapes.size,
        friction=shapes.friction,
        field=shapes.samples,
        begin=shapes.pos,
        begin_turn=shapes.quat,
        end=shapes.pos,
        end_turn=shapes.quat,
        velocity=shapes.velocity,
        spin=shapes.spin,
        **no_bodies(dtype),
    )
    kinds = {"law": params.material.number, "mean": params.mean_dilatation, "muscles": muscles, "shapes": numbers}
    kinds |= {"room": params.contact.pairs, "sheet": sheet}
    layout = Layout(topology=params.mesh.topology, pinned=params.pinned, iterations=params.iterations, **kinds)
    return layout, setting, shapes, space(start, 3), bits


def _planes(rest: Array, elements: np.ndarray) -> Array:
    """Of a sheet's triangles at rest: what takes the part of a vector across the sheet away, (world, element, 3, 3)."""
    a, b, c = (rest[:, elements[:, k]] for k in range(3))
    n = jnp.cross(b - a, c - a)
    return jnp.eye(3, dtype=rest.dtype)[None, None] - n[..., None] * n[..., None, :] / (n**2).sum(-1)[..., None, None]


def first_solve(setting: Setting, shapes: Shapes, part: float) -> Setting:
    """The first solve of a step, over this part of it; colliders move for that time, at an equilibrium not at all."""
    h = part * setting.timestep
    end, turn = shapes.after(jnp.where(jnp.isfinite(h), h, 0))
    return setting._replace(timestep=h, end=end, end_turn=turn)


def _second(setting: Setting, shapes: Shapes, first: Setting, u: Array) -> Setting:
    """The second solve of a step of second order, after the displacement of the first.

    Alexander's L-stable method (1977): implicit Euler over a part c of the step, from x + (1 - c) h v1 and v + (1 - c)
    h a1, v1 and a1 being those of the first solve, which is implicit Euler over c h, too; c = 1 - 1 / sqrt(2).
    """
    ratio = (1 - EARLY) / EARLY
    v = setting.v + ratio * (u / first.timestep[:, None, None] - setting.v)
    end, turn = shapes.after(setting.timestep)
    moved = {"x": setting.x + ratio * u, "v": v, "before": setting.x + u}
    turned = {"begin": first.end, "begin_turn": first.end_turn, "end": end, "end_turn": turn}
    return setting._replace(timestep=first.timestep, **moved, **turned)


def _wrench(layout: Layout, setting: Setting, u: Array) -> Array:
    """Of a solve: force and torque on each collider, (world, collider, 6)."""
    force = -pushed(layout, setting, u)
    arm = (setting.x + u)[:, :, None] - setting.end[:, None]
    return jnp.concatenate([force, jnp.cross(arm, force)], -1).sum(1)
