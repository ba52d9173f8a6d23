"""Gradients through Genesis inside ``jax.grad``, where Genesis has them; and an error where it would return zero.

Genesis (https://genesis-world.readthedocs.io) differentiates its rigid bodies and its MPM through torch's autograd,
with one backward pass per rollout. ``as_jax`` turns a rollout that begins with ``scene.reset()`` into a pure function
of JAX arrays.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ..errors import BridgeError, MissingDependencyError, PrecisionError, UnsupportedError, install
from .dlpack import import_torch
from .torch import TorchFunction

_SOLVERS = ("RigidSolver", "MPMSolver")
"""Solvers whose gradients agree with finite differences; SPH, PBD and smoke have none, and those of FEM are wrong."""

_TAPED = {"set_pos": "pos", "set_quat": "quat", "set_dofs_velocity": "velocity", "control_dofs_force": "force"}
"""Rigid setters that Genesis differentiates, and the name of their argument."""

_UNTAPED = ("set_dofs_position", "set_qpos")


def as_jax(scene: Any, run: Callable[..., Any], outputs: Callable[..., Any] | None = None) -> TorchFunction:
    """A rollout of a Genesis scene as a function of JAX arrays, under ``jit``, ``grad`` and ``vmap``.

    Every call resets the scene and runs ``run`` from there; the backward pass does this once more and then runs
    Genesis's tape backwards. Compiled code calls Genesis on the host as described in
    :func:`fphys.bridge.torch.as_jax`; nothing else may use the scene meanwhile.

    Inputs must reach the simulation through setters that Genesis differentiates: ``control_dofs_force`` [N, N·m]; and,
    before the first step, ``set_dofs_velocity`` [m/s, rad/s], ``set_pos`` [m] and ``set_quat`` of rigid bodies,
    ``set_velocity`` [m/s] and ``set_position`` [m] of MPM. Results must come from ``get_state()`` of a solver or
    entity.

    Args:
        scene: a built ``genesis.Scene`` with ``SimOptions(requires_grad=True)``, of rigid bodies or of MPM.
        run: takes torch tensors, sets, steps and reads the scene, and returns a pytree of tensors.
        outputs: as in :func:`fphys.bridge.torch.as_jax`; by default, a rollout on arbitrary numbers finds the shapes.

    Returns:
        The function. Gradients flow, in reverse mode and once, from every floating-point result to every
        floating-point argument. They are Genesis's own: within 1e-4 of finite differences if its precision is "64".

    Raises:
        MissingDependencyError: Genesis is not installed.
        UnsupportedError: the scene is not built or not differentiable, or has a solver without a correct gradient.
        BridgeError: (when it is differentiated) a tensor is broadcast over worlds or joints, a state is set between
            steps, an argument does not reach the simulation, a result does not come from it, or is ``dofs_acc``:
            Genesis's gradient is zero or wrong for these.
        PrecisionError: (when it is differentiated) a tensor does not have the scene's precision: the gradient would be
            zero as well.

    Example:
        >>> def run(forces):  # (T, num_worlds, num_joints)
        ...     for force in forces:
        ...         arm.control_dofs_force(force)
        ...         scene.step()
        ...     return scene.rigid_solver.get_state().qpos
        >>> qpos = as_jax(scene, run)  # doctest: +SKIP
        >>> jax.grad(lambda forces: jnp.sum(qpos(forces) ** 2))(forces)  # doctest: +SKIP
    """
    _refuse(scene)

    @functools.wraps(run)
    def rollout(*args: Any) -> Any:
        scene.reset()
        with _guarded(scene):
            return run(*args)

    return TorchFunction(rollout, outputs, strict=True)


def _refuse(scene: Any) -> None:
    """Raise if the scene has no gradient, or a wrong one."""
    gs: Any = _genesis()
    if not isinstance(scene, gs.Scene):
        raise TypeError(f"scene is {type(scene).__qualname__}, wanted is genesis.Scene")
    if not scene.is_built:
        raise UnsupportedError("the scene is not built: scene.build(n_envs=...) first")
    if not scene.requires_grad:
        raise UnsupportedError(
            "the scene was built without a tape: it needs genesis.options.SimOptions(requires_grad=True) as sim_options"
        )
    active = {type(solver).__name__: solver for solver in scene.sim.active_solvers}
    if others := [name for name in active if name not in _SOLVERS]:
        raise UnsupportedError(
            f"the scene has {', '.join(others)}: Genesis differentiates rigid bodies and MPM; the others have no "
            "gradient or a wrong one. fphys.particles differentiates SPH"
        )
    if len(active) > 1 and active["RigidSolver"].n_dofs:
        raise UnsupportedError(
            "the scene has both MPM and rigid bodies that move, of whose coupling no gradient was compared with "
            "differences: fixed bodies may stay"
        )


@contextlib.contextmanager
def _guarded(scene: Any) -> Iterator[None]:
    """A context that raises where Genesis would silently return a gradient of zero."""
    rigid = scene.rigid_solver
    patches: list[tuple[Any, str, Callable[..., Any]]] = [(rigid, "get_state", _watched)]
    patches += [(rigid, setter, functools.partial(_no_setter, setter)) for setter in _UNTAPED]
    for entity in scene.entities:
        if hasattr(entity, "_update_tgt"):
            patches.append((entity, "_update_tgt", functools.partial(_checked, scene, entity)))
        if hasattr(entity, "_set_particles_target_state"):
            patches.append((entity, "_set_particles_target_state", functools.partial(_first, scene)))
    for owner, name, guard in patches:
        setattr(owner, name, functools.partial(guard, getattr(owner, name)))
    try:
        yield
    finally:
        for owner, name, _ in patches:
            delattr(owner, name)


def _checked(
    scene: Any, entity: Any, update: Callable[..., None], key: tuple[Any, ...], values: dict[str, Any]
) -> None:
    """Record a setter's call on Genesis's tape, if its tensor is exactly what is set: a copy's gradient is lost."""
    setter, joints, worlds = key
    argument = _TAPED.get(setter, "")
    if argument and setter != "control_dofs_force":
        _refuse_between_steps(scene, setter)
    value: Any = values.get(argument)
    if getattr(value, "requires_grad", False):
        width = {"set_pos": 3, "set_quat": 4}.get(setter) or _count(entity.n_dofs, joints)
        wanted = (_count(scene.n_envs, worlds), width) if scene.n_envs else (width,)
        if tuple(value.shape) != wanted:
            raise BridgeError(
                f"{setter}: {argument} has shape {tuple(value.shape)}, needs {wanted}, worlds first: Genesis would "
                f"broadcast it and return a gradient of zero, where {argument}.expand{wanted} has the right one"
            )
        if value.dtype != (real := _genesis().tc_float):
            raise PrecisionError(
                f"{setter}: {argument} is {value.dtype}, the scene computes in {real}: Genesis would cast it and "
                f"return a gradient of zero, where {argument}.to({real}) has the right one"
            )
    update(key, values)


def _no_setter(setter: str, *_: Any, **__: Any) -> None:
    """Refuse to set joint positions: in a scene with a tape, the process may crash."""
    raise BridgeError(
        f"{setter}: Genesis has no gradient by joint positions, and may crash when they are set in such a scene: "
        "begin where the scene was built, and move the base by set_pos and set_quat"
    )


def _first(scene: Any, set_state: Callable[..., None], key: str, *args: Any, **kwargs: Any) -> None:
    """Set particles, unless a step came before."""
    if key in ("pos", "vel"):
        _refuse_between_steps(scene, {"pos": "set_position", "vel": "set_velocity"}[key])
    set_state(key, *args, **kwargs)


def _refuse_between_steps(scene: Any, setter: str) -> None:
    """Measured error of the gradient: 1e-4 for the velocities of joints, 5e-2 for those of particles."""
    if scene.sim.cur_step_global > 0 and import_torch().is_grad_enabled():
        raise BridgeError(
            f"{setter}: called between steps, where Genesis's gradient is wrong, for it drops some of what came "
            "before: set states before the first step of run, and use forces or actuation after it"
        )


def _count(size: int, chosen: Any) -> int:
    """How many of ``size`` are chosen."""
    return size if chosen is None else len(np.arange(size)[chosen if isinstance(chosen, slice) else list(chosen)])


def _watched(get_state: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """A state that refuses a gradient through its accelerations, which Genesis does not differentiate."""
    state = get_state(*args, **kwargs)
    if state.dofs_acc.requires_grad:
        state.dofs_acc.register_hook(_refuse_acceleration)
    return state


def _refuse_acceleration(gradient: Any | None) -> None:
    if gradient is not None and bool(gradient.any()):
        raise BridgeError(
            "the result depends on dofs_acc, through which Genesis returns a gradient of zero: take the difference of "
            "dofs_vel of two steps"
        )


def _genesis() -> Any:
    try:
        import genesis
    except ImportError as cause:
        raise MissingDependencyError(f"Genesis is not installed: {install('genesis')}") from cause
    return genesis
