"""The no-slip pass: after the solver, friction forces move to where they would be without their regularisation.

``<option noslip_iterations>`` switches it on, as in MuJoCo; without it nothing of this file runs. Normal forces, limits
and equalities keep the solver's forces. The gradient is that of the sweeps as taken, whether they converge or not.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ...bridge import custom_vjp, kernels, warp_op
from ...implicit import dense, flags, power_gradient, primal_values
from ...model import Model, State
from ...model.pairs import pair_kinds
from .. import stages, team
from ..collide.collision import Contacts, geometry
from ..dynamics import mass_matrix_launch
from ..forces import tendon
from ..forces.armature import count
from ..tree import topology
from .constraint import Ids, Parameters, cones, set_up, working_memory
from .contact import mix_pairs, of_pairs
from .equality import bonds
from .friction import friction_sizes, of_dofs, of_tendons
from .limit import limit_sizes

Array = jax.Array


class Gripped(NamedTuple):
    """What the pass finds."""

    qacc: Any  # (world, nv)
    force: Any  # of dry frictions, then of each contact's tangents, (world, slip)


class Pulled(NamedTuple):
    """Cotangents of what goes into the pass."""

    direction: Any  # of the rows of friction, (world, slip, nv)
    reference: Any  # this and the next three are (world, slip)
    force: Any
    limit: Any
    friction: Any
    acceleration: Any  # of those at the start, at given forces, (world, nv)
    matrix: Any  # minus that of M, (world, nv, nv)


class Power(NamedTuple):
    """What the cotangents belong to, times them; None for what the model lacks."""

    dof: Any
    tendon: Any
    contact: Any
    body: Any
    armature: Any  # of dofs
    tendon_armature: Any


def grips(model: Model) -> bool:
    """Whether the model has a no-slip pass and something that it may move."""
    s = model.structure
    return s.noslip_iterations > 0 and sum(friction_sizes(model)) + _width(model) > 0


def _width(model: Model) -> int:
    """Most tangents of a contact."""
    return max(1, pair_kinds(model.structure).most_dim) - 1


def _slips(model: Model) -> dict[str, int]:
    dry = sum(friction_sizes(model))
    first = model.structure.nrow - sum(limit_sizes(model)) - dry
    return {"first": first, "dry": dry, "width": _width(model)}


def _count(model: Model, ids: Ids) -> int:
    return _slips(model)["dry"] + _width(model) * ids.pair.shape[1]


def _trees(model: Model) -> np.ndarray:
    """The first dof of every dof's tree; all in one, if MuJoCo is told not to look for islands."""
    parent = model.structure.dof.parent
    tree = np.arange(len(parent), dtype=np.int32)
    if "island" in model.structure.disabled:
        return np.zeros_like(tree)
    for d, p in enumerate(parent):
        tree[d] = d if p < 0 else tree[p]
    return tree


def _swept(
    launch: Any, model: Model, state: State, given: Parameters, ids: Ids, qacc: Any, out: Gripped
) -> tuple[dict[str, Any], ...]:
    """Launch the sweeps; returns cones, rows of friction, what the sweeps did, and the factor of M."""
    s, t, w = model.structure, stages.types(qacc), launch.worlds
    k, n = kernels(qacc.dtype, "rigid.solve.noslip"), s.nv
    copies = Ids(*(launch.scratch(i.shape, t.integer) for i in ids))
    setting = set_up(launch, model, state, given, ids, copies, launch.scratch((w,), t.bits))
    conic, work = cones(model, given.pairs, setting), working_memory(launch, model, setting)
    matrix, factor = (launch.scratch((w, topology.packed_size(n)), t.real, zeroed=True) for _ in range(2))
    launch(
        kernels(qacc.dtype, "rigid.solve.newton").restoring_forces,
        dim=w,
        inputs=[qacc, setting.rows, conic],
        outputs=[launch.scratch((w, n), t.real), matrix, work],
    )
    frames = setting.motions.frames
    both = setting.motions.axes, stages.dof_axes(launch, model, frames, own=True)
    matrix = launch.scratch(matrix.shape, t.real, zeroed=True)
    mass_matrix_launch(launch, model, state, frames, both, model.dof.armature, matrix)
    team.shared(launch, stages.modules(qacc).dense.factor_dense, [n, matrix], [factor])
    size = (w, _count(model, ids))
    tangents = {name: launch.scratch((*size, n), t.real) for name in ("direction", "response")}
    tangents |= {name: launch.scratch(size, t.real) for name in ("reference", "force", "limit")}
    inputs = [_slips(model), setting.rows, conic, work["force"], factor]
    launch(k.tangents, dim=size, inputs=inputs, outputs=[tangents])
    most = s.noslip_iterations
    sweeps = {
        "force": launch.scratch((w, most + 1, size[1]), t.real),
        "mark": launch.scratch((w, most, size[1]), t.real),
        "count": launch.scratch((w,), t.integer),
        "island": launch.scratch((w, n), t.integer),
        "inertia": launch.scratch((w, n), t.real),
        "improvement": launch.scratch((w, n), t.real),
        "ended": launch.scratch((w, n), t.integer),
    }
    launch(
        k.sweep,
        dim=w,
        inputs=[_slips(model), most, s.noslip_tolerance, _trees(model), matrix]
        + [setting.rows, conic, tangents, work["force"], qacc],
        outputs=[*out, sweeps],
    )
    return conic, tangents, sweeps, factor


def _sweep(launch: Any, model: Model, state: State, given: Parameters, ids: Ids, qacc: Any, out: Gripped) -> None:
    _swept(launch, model, state, given, ids, qacc, out)


def _shapes(model: Model, state: State, given: Parameters, ids: Ids, qacc: Any) -> Gripped:
    return Gripped(qacc, stages.numbers(state, _count(model, ids)))


_sweep_op = warp_op(_sweep, _shapes, differentiable=False, zeroed=False, name="no-slip")


def _pull(
    launch: Any,
    model: Model,
    state: State,
    given: Parameters,
    ids: Ids,
    qacc: Any,
    cotangent: Gripped,
    out: Pulled,
) -> None:
    """Launch the sweeps, and undo them."""
    t, w, n = stages.types(qacc), launch.worlds, model.structure.nv
    k, size = kernels(qacc.dtype, "rigid.solve.noslip_pull"), _count(model, ids)
    found = Gripped(launch.scratch((w, n), t.real), launch.scratch((w, size), t.real))
    conic, tangents, sweeps, factor = _swept(launch, model, state, given, ids, qacc, found)
    pulls = out._asdict()
    matrix = pulls.pop("matrix")
    pulls["response"] = launch.scratch((w, size, n), t.real, zeroed=True)
    launch(
        k.pull,
        dim=w,
        inputs=[_slips(model), conic, tangents, sweeps, found.qacc, cotangent.qacc, cotangent.force],
        outputs=[launch.scratch((w, n), t.real), pulls],
    )
    launch(k.pull_response, dim=(w, size), inputs=[factor, tangents], outputs=[pulls])
    launch(k.pull_mass, dim=(w, n, n), inputs=[tangents, pulls["response"]], outputs=[matrix])


def _pull_shapes(model: Model, state: State, given: Parameters, ids: Ids, qacc: Any, cotangent: Gripped) -> Pulled:
    size, nv = _count(model, ids), model.structure.nv
    row = stages.numbers(state, size)
    return Pulled(stages.numbers(state, size, nv), row, row, row, row, qacc, stages.numbers(state, nv, nv))


_pull_op = warp_op(_pull, _pull_shapes, differentiable=False, name="no-slip's cotangents")


def _chains(model: Model) -> dict[str, np.ndarray]:
    """The dofs that move each body."""
    pattern = topology.make_pattern(topology.ancestry(model.structure))
    return {"adr": pattern.adr, "dof": pattern.dof}


def _power(
    launch: Any, model: Model, state: State, given: Parameters, qacc: Any, ids: Ids, pulled: Pulled, out: Power
) -> None:
    """What the cotangents belong to, times them."""
    s, w = model.structure, launch.worlds
    k = kernels(state.qpos.dtype, "rigid.solve.noslip_power")
    frames = stages.frame_poses(launch, model, state)
    axes = stages.dof_axes(launch, model, frames)
    chains = _chains(model)
    rows = pulled._asdict()
    matrix = rows.pop("matrix")
    rows.pop("acceleration")
    dofs, ends = friction_sizes(model)
    if out.dof is not None:
        inputs = [0, *of_dofs(model), state.qvel, qacc, rows]
        launch(k.dof_power, dim=(w, dofs), inputs=inputs, outputs=[out.dof])
    ten, pattern = tendon.tendons(launch, model, state, frames, axes), tendon.pattern(s)
    if out.tendon is not None:
        rate = tendon.rates(launch, model, ten, qacc)
        inputs = [dofs, pattern.adr, pattern.dof, *of_tendons(model), ten.velocity, ten.jacobian, rate, rows]
        launch(k.tendon_power, dim=(w, ends), inputs=inputs, outputs=[out.tendon])
    if out.contact is not None:
        velocity, linear = (stages.frame_motion(launch, model, axes, rate) for rate in (state.qvel, qacc))
        contacts = geometry(launch, model, state, ids, frames)
        listed, *parameters = of_pairs(model, given.pairs)
        launch(
            k.contact_power,
            dim=out.contact.shape,
            inputs=[_slips(model), chains, listed, *parameters, contacts, frames.pos, axes, velocity, linear, rows],
            outputs=[out.contact],
        )
    inputs = [chains, stages.masses(model), frames, axes, matrix]
    launch(k.mass_power, dim=(w, s.nbody), inputs=inputs, outputs=[out.body])
    launch(k.armature_power, dim=(w, s.nv), inputs=[model.dof.armature, matrix], outputs=[out.armature])
    if out.tendon_armature is not None:
        inputs = [pattern.adr, pattern.dof, model.tendon.armature, ten.jacobian, matrix]
        launch(k.tendon_armature_power, dim=(w, s.ntendon), inputs=inputs, outputs=[out.tendon_armature])


def _power_shapes(model: Model, state: State, given: Parameters, qacc: Any, ids: Ids, pulled: Pulled) -> Power:
    s, (dofs, ends) = model.structure, friction_sizes(model)
    contacts = 0 if ids.pair is None else ids.pair.shape[1]  # the record leaves out inputs that no launch uses
    dof, ten, contact = (stages.part(state, n) for n in (dofs, ends, contacts * _width(model)))
    bodies, armature = stages.numbers(state, s.nbody), stages.numbers(state, s.nv)
    return Power(dof, ten, contact, bodies, armature, stages.part(state, s.ntendon * (count(s) > 0)))


_power_op = warp_op(_power, _power_shapes, name="no-slip's power")


@custom_vjp
def _grip(model: Model, state: State, given: Parameters, ids: Ids, qacc: Array) -> Gripped:
    return _sweep_op(model, state, given, ids, qacc)


def _grip_fwd(*primals: Any) -> Any:
    (model, state, given, ids, qacc), wanted = primal_values(primals)
    return _grip(model, state, given, ids, qacc), (model, state, given, ids, qacc, wanted)


def _grip_bwd(saved: Any, cotangent: Gripped) -> Any:
    model, state, given, ids, qacc, wanted = saved
    cotangent = Gripped(*(dense(c) for c in cotangent))
    pulled: Pulled = _pull_op(model, state, given, ids, qacc, cotangent)
    wish = flags.load(wanted)
    wish = [*wish[: len(jax.tree.leaves((model, state, given)))], True]
    both = jnp.concatenate(list(cotangent), 1)
    *grads, direct = power_gradient(_power_op, (model, state, given, qacc), (ids, pulled), wish, both)
    return (*grads, None, pulled.acceleration + direct)


_grip.defvjp(_grip_fwd, _grip_bwd, symbolic_zeros=True)


def without_slip(model: Model, state: State, ids: Ids, qacc: Array) -> Gripped:
    """Accelerations after MuJoCo's no-slip pass, ``mj_solNoSlip``.

    Args:
        ids: the contact set of the solve.
        qacc: accelerations that the solve found, (world, nv).

    Returns:
        Gripped; gradients flow from both to model, state and qacc.
    """
    return _grip(model, state, Parameters(mix_pairs(model), bonds(model)), ids, qacc)


def gripped_forces(model: Model, forces: Array, touching: Contacts, gripped: Array) -> Array:
    """Forces of contacts, (world, contact, 6), with the tangential ones of the pass in place of the solver's."""
    width, dry = _width(model), _slips(model)["dry"]
    tangential = gripped[:, dry:].reshape(*touching.pair.shape, width)
    condim = pair_kinds(model.structure).dim
    has = jnp.asarray(np.arange(width) < condim[:, None] - 1)  # (pair, width)
    there = (touching.pair >= 0)[..., None] & has[jnp.maximum(touching.pair, 0)]
    kept = forces[..., 1 : 1 + width]
    return forces.at[..., 1 : 1 + width].set(jnp.where(there, tangential, kept))
