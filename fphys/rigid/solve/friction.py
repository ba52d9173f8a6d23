"""Dry friction of dofs and tendons: the rows of the solve, and their virtual power."""

from typing import Any, NamedTuple

from ...bridge import kernels
from ...model import Model, State
from .. import stages
from ..forces import tendon
from ..tree import topology


class Power(NamedTuple):
    """Virtual power of the friction of dofs and of tendons; None where none has friction."""

    dof: Any
    tendon: Any


def friction_sizes(model: Model) -> list[int]:
    """Numbers of dofs and of tendons with friction."""
    return [model.structure.friction.dof.size, model.structure.friction.tendon.size]


def of_dofs(model: Model) -> list[Any]:
    d = model.dof
    friction = {"index": model.structure.friction.dof, "frictionloss": d.frictionloss, "invweight0": d.invweight0}
    return [friction, stages.soft(model, d.solref, d.solimp)]


def of_tendons(model: Model) -> list[Any]:
    t = model.tendon
    friction = {"index": model.structure.friction.tendon, "frictionloss": t.frictionloss, "invweight0": t.invweight0}
    return [friction, stages.soft(model, t.solref_fri, t.solimp_fri)]


def friction_rows(
    launch: Any, model: Model, state: State, ten: tendon.Tendons, moment: Any, first: int, out: stages.Rows
) -> None:
    """Write one row for each dof with friction, then one for each tendon with friction, from row ``first``."""
    k = kernels(state.qpos.dtype, "rigid.solve.friction")
    dofs, ends = friction_sizes(model)
    if dofs:
        column = topology.columns(model, model.structure.friction.dof)
        inputs = [first, column, *of_dofs(model), state.qvel]
        launch(k.dof_friction_rows, dim=(launch.worlds, dofs), inputs=inputs, outputs=[out])
    if ends:
        inputs = [first + dofs, *of_tendons(model), ten.velocity, moment]
        launch(k.tendon_friction_rows, dim=(launch.worlds, ends), inputs=inputs, outputs=[out])


def friction_power(
    launch: Any,
    model: Model,
    state: State,
    rates: stages.Rates,
    ten: tendon.Tendons,
    ten_rates: stages.Rates | None,
    out: Power,
) -> None:
    """Virtual power of the friction."""
    k = kernels(state.qpos.dtype, "rigid.solve.friction")
    if out.dof is not None:
        launch(k.dof_friction_power, dim=out.dof.shape, inputs=[*of_dofs(model), state.qvel, *rates], outputs=[out.dof])
    if out.tendon is not None and ten_rates is not None:
        inputs = [*of_tendons(model), ten.velocity, *ten_rates]
        launch(k.tendon_friction_power, dim=out.tendon.shape, inputs=inputs, outputs=[out.tendon])


def friction_parts(model: Model, state: State) -> Power:
    """What :func:`friction_power` writes."""
    return Power(*(stages.part(state, n) for n in friction_sizes(model)))
