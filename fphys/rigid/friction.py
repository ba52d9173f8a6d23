"""Dry friction of dofs and tendons: the rows of the solve, and their virtual power."""

from typing import Any

from ..bridge import kernels
from ..model import Model, State
from . import launches as L


def friction_sizes(model: Model) -> list[int]:
    """Numbers of dofs and of tendons with friction."""
    return [model.structure.friction.dof.size, model.structure.friction.tendon.size]


def _dof_arguments(model: Model) -> tuple[list[Any], list[Any]]:
    d = model.dof
    structure = [model.structure.friction.dof, L.refsafe(model)]
    return structure, [d.frictionloss, d.solref, d.solimp, d.invweight0, model.opt.timestep]


def _tendon_arguments(model: Model) -> tuple[list[Any], list[Any]]:
    t = model.tendon
    structure = [model.structure.friction.tendon, L.refsafe(model)]
    return structure, [t.frictionloss, t.solref_fri, t.solimp_fri, t.invweight0, model.opt.timestep]


def friction_rows(
    launch: Any, model: Model, state: State, tendons: L.Tendons, moment: Any, first: int, out: L.Rows
) -> None:
    """Write one row for each dof with friction, then one for each tendon with friction, from row ``first``."""
    k = kernels(state.qpos.dtype, "rigid.friction")
    dofs, ends = friction_sizes(model)
    if dofs:
        structure, parameters = _dof_arguments(model)
        structure.insert(-1, L.columns(model, structure[0]))
        inputs = [*structure, first, *parameters, state.qvel]
        launch(k.dof_friction_rows, dim=(launch.worlds, dofs), inputs=inputs, outputs=list(out))
    if ends:
        structure, parameters = _tendon_arguments(model)
        inputs = [*structure, first + dofs, *parameters, tendons.velocity, moment]
        launch(k.tendon_friction_rows, dim=(launch.worlds, ends), inputs=inputs, outputs=list(out))


def friction_power(
    launch: Any, model: Model, state: State, motion: tuple[Any, Any], tendons: L.Tendons, rates: Any, outs: list[Any]
) -> None:
    """Virtual power of the friction; ``motion`` is (qacc, trial), ``rates`` the same for the tendons."""
    k = kernels(state.qpos.dtype, "rigid.friction")
    dofs, ends = friction_sizes(model)
    if dofs:
        structure, parameters = _dof_arguments(model)
        inputs = [*structure, *parameters, state.qvel, *motion]
        launch(k.dof_friction_power, dim=(launch.worlds, dofs), inputs=inputs, outputs=[outs.pop(0)])
    if ends:
        structure, parameters = _tendon_arguments(model)
        inputs = [*structure, *parameters, tendons.velocity, *rates]
        launch(k.tendon_friction_power, dim=(launch.worlds, ends), inputs=inputs, outputs=[outs.pop(0)])
