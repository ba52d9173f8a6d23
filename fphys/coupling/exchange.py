"""One step of rigid bodies and of the matter that they push and that pushes them.

What crosses the border is pose and twist one way, impulse the other. Matter takes many substeps in a rigid step H. A
substep moves the touched bodies with it: their twists change by their free motion, which a rigid step without the
matter finds, and by the impulses that they take,

    nu' = nu + h (nu_free - nu_0) / H + Y I,   Y = J M^-1 J^T

with the mobility Y of the mechanism at the start of the rigid step, joints and armature included, and the constraints
that act in the free motion; so light and stiffly held links are stable. Grids, constraints and finite elements find
the impulse and both velocities at once (:mod:`fphys.particles.response`, :mod:`fphys.deformables.fem_exchange`), also
where several media push the same bodies (:mod:`.together`); SPH's forces are explicit, as are those between its
particles, from walls that move as at the start of the substep: the free motion of a light vessel, which does not know
what is in it yet, would be felt as a push. The rigid step that follows gets the mean wrench of its substeps.
Momentum given is momentum taken, to rounding.
"""

import functools
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple, Protocol, Self

import jax
import jax.numpy as jnp
import numpy as np

from .. import units
from ..bridge import custom_vjp, worldwise
from ..errors import ModelError
from ..math import matmul, quat_turned, quat_unit, rotate
from ..model import Model, State
from ..model.arguments import whole_number
from ..model.structure import JointType
from ..particles.arguments import known, several
from ..particles.response import Response, through
from ..rigid.forward import at_rest, check_inputs
from ..rigid.inverse import mass_matrix
from ..rigid.solve.constraint import constrained
from ..rigid.stages import Loads
from ..rigid.step import step as rigid_step
from ..rigid.tree.kinematics import ancestry, motions
from ..worlds import Status, choose, flag, idle
from .surfaces import Surface, prepared, pushes
from .together import Along, exchange

Array = jax.Array

APART = 1e-3
"""Change of velocity [m/s, rad/s] over which constraints count as linear; in float32 its root."""


class Pose(NamedTuple):
    """Where bodies are, and how they move there."""

    pos: Array  # of their origins [m], shape (world, body, 3)
    quat: Array  # orientation (w, x, y, z), shape (world, body, 4)
    twist: Array  # velocity of the origin [m/s], angular velocity [rad/s], shape (world, body, 6)

    @classmethod
    def resting(cls, pos: Array, quat: Array) -> "Pose":
        """Of bodies that do not move."""
        return cls(pos, quat, jnp.zeros((*pos.shape[:2], 6), pos.dtype))


class Medium(Protocol):
    """Matter of one solver, and the bodies that it touches."""

    solver: ClassVar[Any]  # the solver's module, which has its State
    stops: ClassVar[Status]  # faults that hold a world; in MPM others hold particles

    symmetric: ClassVar[bool]  # whether the mobility of bodies must be

    @property
    def explicit(self) -> bool:
        """Whether it meets the bodies as they would move without it."""
        ...

    @property
    def params(self) -> Any:
        """Parameters of its solver."""
        ...

    def replace(self, **changes: Any) -> Self:
        """A copy with some fields changed."""
        ...

    def prepared(self, name: str, model: Model, matter: Any) -> Self:
        """The medium with arrays for what it carries and numbers for its bodies, checked as far as the host knows.

        Args:
            name: of the medium, for errors.
            model: the bodies' model.
            matter: its state, of which shapes, types and kinds matter.

        Raises:
            ValueError: what it carries does not fit the matter. ModelError: there is no such body. UnitError: a
                quantity of another kind.
        """
        ...

    def bodies(self, model: Model) -> set[int]:
        """Numbers of the bodies that touch it.

        Raises:
            ModelError: there is no such body or geom. TypeError: one is neither a name nor a whole number.
        """
        ...

    def exchange(
        self,
        model: Model,
        matter: Any,
        pose: Pose,
        response: Response,
        numbers: tuple[int, ...],
        force: Array | None,
        near: Array | None = None,
    ) -> tuple[Any, Array, Along | None]:
        """A substep of the matter.

        Args:
            model: the bodies' model.
            matter: its state.
            pose: of the bodies ``numbers``, and their twist, at the start of the substep.
            response: of the same bodies, its twist that of the free motion at the end of the substep.
            force: of surfaces on the matter [N], shape (world, n, dim).
            near: where the matter is about to be [m], shape (world, n, dim), for a solver that begins there.

        Returns:
            The matter; the impulses that the bodies took, about their origins [N s, N m s], shape (world, body, 6);
            and, unless the medium is explicit or touches none, their tangent. Gradients flow as in the solver's
            own ``exchange``.

        Raises:
            UnsupportedError, ValueError: a geom's shape or an option of the solver does not suit it.
        """
        ...

    def thin(self, model: Model) -> tuple[int, ...]:
        """Numbers of the geoms that are too thin to hold it."""
        ...

    def through(
        self,
        model: Model,
        geoms: tuple[int, ...],
        numbers: tuple[int, ...],
        poses: tuple[Pose, Pose],
        matter: tuple[Any, Any],
    ) -> Array:
        """Worlds in which a particle passed through a geom that is too thin, bool, shape (world,).

        Args:
            model: the bodies' model.
            geoms: those of :meth:`thin`, one at least.
            poses: of the bodies ``numbers``, before and after a step.
            matter: before and after it.
        """
        ...


class Held:
    """A medium that bodies of any thickness hold: nothing is reported of what passes through one."""

    def thin(self, model: Model) -> tuple[int, ...]:
        """None: every geom holds it."""
        return ()

    def through(
        self,
        model: Model,
        geoms: tuple[int, ...],
        numbers: tuple[int, ...],
        poses: tuple[Pose, Pose],
        matter: tuple[Any, Any],
    ) -> Array:
        """False in every world, shape (world,)."""
        return jnp.zeros(len(matter[0].status), bool)


@worldwise
def step(
    model: Model,
    state: State,
    media: tuple[Medium, ...],
    matter: tuple[Any, ...],
    *,
    substeps: int,
    ctrl: Array | None = None,
    wrench: Array | None = None,
    force: Array | None = None,
    unmoved: str | int | Sequence[str | int] = (),
    surfaces: Surface | Sequence[Surface] | None = (),
) -> tuple[State, tuple[Any, ...]]:
    """Advance bodies and matter by one time step of the model. Pure; composes with jit, grad, vmap, scan, checkpoint.

    Args:
        model, state, ctrl, wrench, force: as in :func:`fphys.step`; wrenches [N, N m] about the centres of mass.
        media: what the bodies push; each solver's ``timestep`` is the model's divided by ``substeps``.
        matter: the state of each medium.
        substeps: how many steps the matter takes.
        unmoved: names or numbers, or one alone, of bodies that push the matter but are not pushed by it.
        surfaces: meshes among the media that hold particles of others (:class:`Surface`), one or several.

    Returns:
        The next states. A world in which a solver stands still is held as a whole. Gradients flow to everything that
        the solvers differentiate, on both sides; the mobility and the wrench are part of the trace.

    Raises:
        ValueError: media and matter are not as many, or not of as many worlds as the state, a surface is of no mesh or
            holds no particles, a shape does not fit; or, if known on the host, a medium has another time step, the
            model's gravity pulls a free body out of a planar medium that has another gravity, fluid is where the walls
            of :class:`SPH` are, or a surface's number cannot be. TypeError: dtypes differ, a state is of another solver
            than its medium, or media and matter are no tuples. ModelError: there is no such body or geom.
    """
    return held_step(model, state, media, matter, substeps, Loads(ctrl, wrench, force), unmoved, surfaces)[:2]


def held_step(
    model: Model,
    state: State,
    media: Sequence[Medium],
    matter: Sequence[Any],
    substeps: int,
    loads: Loads,
    unmoved: str | int | Sequence[str | int] = (),
    surfaces: Surface | Sequence[Surface] | None = (),
) -> tuple[State, tuple[Any, ...], Array, Array]:
    """:func:`step`, the worlds that it held, bool, shape (world,), and the matter's mean wrench on all bodies.

    The wrench [N, N m] is about the centres of mass, shape (world, nbody, 6); that on bodies which matter does not
    push is there, too.
    """
    _expect_states(state, media, matter)
    if isinstance(substeps, bool) or not isinstance(substeps, int | np.integer) or substeps < 1:
        raise ValueError(f"substeps is {substeps!r}: give a whole number, one at least")
    still = frozenset(number_of(model, "body", b, "unmoved") for b in several(unmoved))
    media = _bare(media)
    _expect_timesteps(model, media, substeps)
    media = tuple(medium.prepared(f"media[{i}]", model, matter[i]) for i, medium in enumerate(media))
    _expect_gravity(model, media, matter, still)
    borders = prepared(surfaces, media, matter)
    loads = check_inputs(model, state, loads)
    thin = tuple(medium.thin(model) for medium in media)
    return _step(model, state, media, tuple(matter), loads, borders, int(substeps), still, thin)


@functools.partial(jax.jit, static_argnames=("substeps", "still", "thin"))
def _step(
    model: Model,
    state: State,
    media: tuple[Any, ...],
    matter: tuple[Any, ...],
    loads: Loads,
    surfaces: tuple[tuple[Surface, ...], list[Array]],
    substeps: int,
    still: frozenset[int],
    thin: tuple[tuple[int, ...], ...],
) -> tuple[State, tuple[Any, ...], Array, Array]:
    """:func:`held_step`, with surfaces and the worlds in which they cannot be; ``still`` are the unmoved bodies."""
    (borders, faults), (ctrl, wrench, force) = surfaces, loads
    before, given = state, model
    state = state.replace(status=state.status & jnp.uint32(Status.NONFINITE))  # the bits of this step say who is idle
    free = rigid_step(model, state, ctrl, wrench, force)
    numbers = tuple(sorted(set[int]().union(*(m.bodies(model) for m in media))))
    out = idle(free.status)
    calm = lambda tree, value: jax.tree.map(lambda a: choose(out, value, a), tree)  # noqa: E731
    model, rested, loads = at_rest(out, given, state, loads)  # what is not finite must not meet the gradient of others
    start, mobility = _motion(model, rested, loads, numbers, still)
    start, mobility = calm(start, 1), calm(mobility, 0)
    fixed = tuple(i for i, b in enumerate(numbers) if b in still or not ancestry(model)[b].any())
    drift = (calm(_twists(model, at_rest(out, model, free, loads)[1], numbers), 1) - start.twist) / substeps
    h = model.opt.timestep[:, None, None] / substeps

    def substep(carry: tuple[Pose, Array, tuple[Any, ...]], _: None) -> tuple[Any, None]:
        pose, total, matter = carry
        response = Response(pose.pos, pose.twist + drift, mobility, fixed=fixed)
        forces = pushes(borders, media, matter)
        after, took = exchange(numbers, model, media, matter, pose, response, forces)
        twist = response.twist + through(mobility, took)
        arm = pose.pos - start.pos
        total = total + took.at[..., 3:].add(jnp.cross(arm, took[..., :3]))
        return (_moved(pose, twist, h), total, tuple(after)), None

    begun = tuple(m.replace(status=m.status & jnp.uint32(Status.NONFINITE | Status.UNCONVERGED)) for m in matter)
    (end, total, after), _ = jax.lax.scan(substep, (start, jnp.zeros_like(drift), begun), length=substeps)
    after = tuple(
        _reported(new, medium.through(model, geoms, numbers, (start, end), (m, new))) if geoms else new
        for medium, geoms, m, new in zip(media, thin, matter, after, strict=True)
    )
    new, mean = free, calm(_wrench(model, start, total / (substeps * h), numbers), 0)
    if len(fixed) < len(numbers):
        push = mean.at[:, np.array([numbers[i] for i in fixed], int)].set(0)
        new = rigid_step(given, state, ctrl, push if wrench is None else wrench + push, force)
    stop = jnp.zeros(len(state.status), bool)
    for border, fault in zip(borders, faults, strict=True):
        stop, bits, both = stop | fault, flag(Status.BADPARAM, fault), (border.flow, border.mesh)
        after = tuple(m.replace(status=m.status | bits) if i in both else m for i, m in enumerate(after))
    return *_held(media, (before, matter), (new, after), stop), mean


def _expect_states(state: State, media: Sequence[Medium], matter: Sequence[Any]) -> None:
    """Refuse states that are not those of the media, or of other worlds; TypeError, ValueError."""
    for name, given in (("media", media), ("matter", matter)):
        if not isinstance(given, Sequence):
            raise TypeError(f"{name} is one {type(given).__name__}, must be a tuple: give ({name},), also for one")
    if len(media) != len(matter):
        raise ValueError(f"{len(media)} media have {len(matter)} states: give one for each")
    for i, (medium, m) in enumerate(zip(media, matter, strict=True)):
        if not isinstance(m, medium.solver.State):
            raise TypeError(
                f"matter[{i}] is {_named(type(m))}, but media[{i}], a coupling.{type(medium).__name__}, takes "
                f"{_named(medium.solver.State)}: give the states in the order of the media"
            )
        if len(m.status) != len(state.status):
            raise ValueError(
                f"matter[{i}] has {len(m.status)} worlds, the bodies' state has {len(state.status)}: give as many"
            )


def number_of(model: Model, kind: str, given: str | int, name: str) -> int:
    """Number of a body or geom.

    Args:
        kind: "body" or "geom".
        given: its name or number.
        name: of the argument, for errors.

    Raises:
        ModelError: there is none. TypeError: neither a name nor a whole number.
    """
    if isinstance(given, str):
        return model.id(kind, given)
    number, count = whole_number(name, given), len(model.names(kind))
    if not 0 <= number < count:
        raise ModelError(f"{name}: the model has no {kind} {number}: it has {count}, numbered from 0")
    return number


def _named(kind: type) -> str:
    return f"{kind.__module__.rpartition('.')[2].removesuffix('_state')}.{kind.__name__}"


def _bare(media: Sequence[Medium]) -> tuple[Medium, ...]:
    """Media whose time steps are no quantities."""
    steps = [units.si(medium.params.timestep, units.duration, "timestep") for medium in media]
    return tuple(m.replace(params=m.params.replace(timestep=h)) for m, h in zip(media, steps, strict=True))


def _expect_timesteps(model: Model, media: Sequence[Medium], substeps: int) -> None:
    """Refuse media whose steps do not add up to the bodies'; ValueError."""
    for i, medium in enumerate(media):
        given = known(medium.params.timestep, model.opt.timestep)
        if given is not None and not np.allclose(substeps * given[0], given[1], rtol=1e-5, atol=0):
            h, step = (float(np.ravel(value)[0]) for value in given)
            why = f"and {substeps} of them are not the model's step of {step:.6g} s"
            why = why if np.isfinite(h) else "but bodies move in time, and matter beside them finds no equilibrium"
            raise ValueError(f"media[{i}].params.timestep is {h:.6g} s, {why}: give {step / substeps:.6g} s")


def _expect_gravity(model: Model, media: Sequence[Medium], matter: Sequence[Any], still: frozenset[int]) -> None:
    """Refuse gravity that pulls free bodies out of a planar medium, unless its part in the plane is the medium's, as
    in a scene seen from above; ValueError. The first world is looked at."""
    s = model.structure
    free = ancestry(model) & (s.joint.type[s.dof.joint] == JointType.FREE)
    for i, (medium, m) in enumerate(zip(media, matter, strict=True)):
        pulled = [b for b in sorted(medium.bodies(model) - still) if free[b].any()]
        if m.x.shape[-1] != 2 or not pulled:
            continue
        name = f"media[{i}].params.gravity"
        seen = known(units.si(medium.params.gravity, units.acceleration, name), model.opt.gravity)
        if seen is None:
            continue
        own, given = np.resize(seen[0], 2), seen[1][0]  # one number, which is zero, is both
        if given[2] != 0 and not np.allclose(own, given[:2], rtol=1e-5, atol=0):
            raise ValueError(
                f"{name} is {own.tolist()}, in the plane, but the model's gravity, {given.tolist()}, pulls the free "
                f"body {pulled[0]} out of it: give the model {[*own.tolist(), 0.0]}"
            )


def _reported(new: Any, through: Array) -> Any:
    """The matter; its status says in which worlds a particle passed through a body, unless they stand still."""
    return new.replace(status=new.status | flag(Status.THROUGH, through & ~idle(new.status)))


def _motion(
    model: Model, state: State, loads: Loads, numbers: tuple[int, ...], still: frozenset[int]
) -> tuple[Pose, Array]:
    """Poses and mobility of bodies; those that nothing moves have no mobility."""
    m, of = motions(model, state), list(numbers)
    angular, linear = m.axes[:, None, :, :3], m.axes[:, None, :, 3:]
    linear = linear + jnp.cross(angular, (m.pos - m.origin)[:, of, None])
    moved = ancestry(model)[of] & ~np.isin(numbers, list(still))[:, None]
    axes = jnp.concatenate(jnp.broadcast_arrays(linear, angular), -1)
    axes = axes * jnp.asarray(moved, axes.dtype)[None, :, :, None]
    worlds, nv = axes.shape[0], axes.shape[2]
    columns = axes.swapaxes(2, 3).reshape(worlds, 6 * len(of), nv)  # J, (world, 6 body, nv)
    damping = (model.opt.timestep[:, None] * model.dof.damping)[..., None] * jnp.eye(nv, dtype=columns.dtype)[None]
    inertia = mass_matrix(model, state) + damping
    across = columns.swapaxes(1, 2)
    if nv and constrained(model, state):
        answer = matmul(_yielding(model, state, loads, inertia), across)
    else:
        answer = jnp.linalg.solve(inertia, across) if nv else across
    mobility = matmul(columns, answer)
    return Pose(m.pos[:, of], m.quat[:, of], _twists(model, state, numbers)), mobility


@custom_vjp
def _yielding(model: Model, state: State, loads: Loads, inertia: Array) -> Array:
    """Change of the joints' velocities by generalised impulses, among the constraints that act now, (world, nv, nv).

    It is a derivative of the rigid step. So its gradient is by differences of that step's gradients, at impulses that
    would change velocities by ``APART``, each by itself; constraints are nearly linear in them.
    """
    worlds, nv = state.qvel.shape
    _, pull = jax.vjp(lambda force: _pushed(model, state, loads, force), jnp.zeros_like(state.qvel))
    rows = jnp.broadcast_to(jnp.eye(nv, dtype=inertia.dtype)[:, None], (nv, worlds, nv))
    return jax.vmap(lambda row: pull(row)[0])(rows).swapaxes(0, 1) / model.opt.timestep[:, None, None]


def _pushed(model: Model, state: State, loads: Loads, force: Array) -> Array:
    """Velocities of the joints after a step with a further force."""
    given = force if loads.force is None else loads.force + force
    return rigid_step(model, state, loads.ctrl, loads.wrench, given).qvel


def _differences(model: Model, state: State, loads: Loads, inertia: Array) -> Array:
    """:func:`_yielding`, by centred differences."""
    h, nv = model.opt.timestep[:, None, None], inertia.shape[-1]
    apart = APART if inertia.dtype == jnp.float64 else APART**0.5
    push = jax.lax.stop_gradient(apart * inertia / h) * jnp.eye(nv, dtype=inertia.dtype)[None]  # (world, nv, nv)
    push = jnp.broadcast_to(push, (len(state.qvel), nv, nv)).swapaxes(0, 1)
    move = jax.vmap(lambda force: _pushed(model, state, loads, force))
    change = (move(push) - move(-push)).transpose(1, 2, 0)  # (world, joint, push)
    return change / (2 * h * push.sum(-1).T[:, None])


def _yielding_fwd(*given: Any) -> Any:
    return _yielding(*given), given


def _yielding_bwd(given: Any, cotangent: Array) -> Any:
    _, pull = jax.vjp(_differences, *given)
    return pull(cotangent)


_yielding.defvjp(_yielding_fwd, _yielding_bwd)


def _twists(model: Model, state: State, numbers: tuple[int, ...]) -> Array:
    """Velocity of the origin [m/s] and angular velocity [rad/s] of bodies, shape (world, body, 6)."""
    m = motions(model, state)
    angular, linear = m.velocity[..., :3], m.velocity[..., 3:]
    linear = linear + jnp.cross(angular, m.pos - m.origin)
    return jnp.concatenate([linear, angular], -1)[:, list(numbers)]


def _moved(pose: Pose, twist: Array, h: Array) -> Pose:
    """Poses after a time h at constant twists."""
    quat = quat_unit(quat_turned(pose.quat, h * twist[..., 3:]))
    return Pose(pose.pos + h * twist[..., :3], quat, twist)


def _wrench(model: Model, start: Pose, mean: Array, numbers: tuple[int, ...]) -> Array:
    """Wrenches about the centres of mass, shape (world, nbody, 6), from those about the origins of some bodies."""
    of, force, torque = np.array(numbers, int), mean[..., :3], mean[..., 3:]
    centre = rotate(start.quat, jnp.broadcast_to(model.body.ipos[:, of], force.shape))
    wrench = jnp.concatenate([force, torque - jnp.cross(centre, force)], -1)
    return jnp.zeros((len(mean), model.structure.nbody, 6), mean.dtype).at[:, of].set(wrench)


def _held(media: Sequence[Medium], before: tuple[Any, ...], after: tuple[Any, ...], stop: Array) -> tuple[Any, ...]:
    """Worlds of ``stop``, and those in which a solver stands still, keep all of their last state: it, and which.

    Where the bodies stand still they have no places, so that nothing is reported of the matter.
    """
    rigid, matter = after
    out = idle(rigid.status)
    stop, matter = stop | out, tuple(m.replace(status=jnp.where(out, 0, m.status)) for m in matter)
    for medium, m in zip(media, matter, strict=True):
        stop = stop | ((m.status & jnp.uint32(medium.stops)) != 0)

    def keep(stop: Array, old: Array, new: Array) -> Array:
        if jnp.issubdtype(new.dtype, jnp.floating):
            return choose(stop, old, new)
        return jnp.where(stop.reshape(-1, *[1] * (new.ndim - 1)), old, new)

    def kept(old: Any, new: Any) -> Any:
        return jax.tree.map(lambda o, n: keep(stop, o, n), jax.lax.stop_gradient(old), new).replace(
            status=old.status | new.status
        )

    return kept(before[0], rigid), tuple(kept(o, n) for o, n in zip(before[1], matter, strict=True)), stop
