"""Mechanisms with many bodies as benchmark cases: how a step's time grows with their number."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

import fphys

from ..model.load import read_spec
from .case import Case, Workload

Array = jax.Array

SIZES = (100, 300, 1000)
PILES = (*SIZES, 3000)
EXPONENT = 1.2
"""Target: n bodies take at most (n / 100) to this power times as long as a hundred."""

_HINGE, _CAPSULE = 3, 3  # mjJNT_HINGE, mjGEOM_CAPSULE
_KINDS = {"sphere": "0.1", "box": "0.09 0.1 0.08", "capsule": "0.07 0.05"}


def crowd_cases() -> list[Case]:
    """A step of a chain and of a pile, and the step's gradient with respect to the state, for every size."""
    return [*_cases("chain", SIZES, chain), *_cases("pile", PILES, pile)]


def _cases(name: str, sizes: tuple[int, ...], start: Callable[[int], tuple[fphys.Model, fphys.State]]) -> list[Case]:
    def case(bodies: int, suffix: str, work: Callable[[fphys.Model, fphys.State], Workload]) -> Case:
        relative = {"relative_to": f"rigid.{name}.{SIZES[0]}.{suffix}", "target": (bodies / SIZES[0]) ** EXPONENT}
        return Case(
            f"rigid.{name}.{bodies}.{suffix}",
            lambda worlds: work(*start(bodies)),
            worlds=(1,),
            tags=("rigid", name),
            **({} if bodies == SIZES[0] else relative),
        )

    return [case(n, suffix, work) for n in sizes for suffix, work in (("step", _step), ("step_grad", _gradient))]


def chain(bodies: int) -> tuple[fphys.Model, fphys.State]:
    """A moving chain that hangs, its hinges turned against each other."""
    spec = read_spec('<mujoco><option timestep="0.002"><flag contact="disable"/></option></mujoco>')
    body = spec.worldbody
    for k in range(bodies):
        body = body.add_body(pos=[0.1 if k else 0.0, 0.0, 0.0])
        body.add_joint(type=_HINGE, axis=[0, k % 2, 1 - k % 2], damping=[0.01, 0, 0])
        body.add_geom(type=_CAPSULE, fromto=[0, 0, 0, 0.1, 0, 0], size=[0.02, 0, 0], mass=0.1)
    model = fphys.load(spec)
    rng = np.random.default_rng(0)
    qpos, qvel = 0.2 * rng.standard_normal((1, bodies)), 0.5 * rng.standard_normal((1, bodies))
    real = model.qpos0.dtype
    return model, fphys.init(model, 1, qpos=jnp.asarray(qpos, real), qvel=jnp.asarray(qvel, real))


def pile(bodies: int, layers: int = 4, steps: int = 60) -> tuple[fphys.Model, fphys.State]:
    """Balls, boxes and capsules that have fallen onto each other in layers."""
    rng, side, text = np.random.default_rng(0), int(np.ceil(np.sqrt(bodies / layers))), ""
    for k in range(bodies):
        layer, rest = k % layers, k // layers
        place = np.array([0.21, 0.21, 0.2]) * (rest % side, rest // side, layer) + rng.normal(size=3) * 0.01
        x, y, z = place + 0.05 * (layer % 2)
        kind = tuple(_KINDS)[(layer + rest) % 3]
        text += f'<body pos="{x:.4f} {y:.4f} {z + 0.1:.4f}"><freejoint/>'
        text += f'<geom type="{kind}" size="{_KINDS[kind]}" mass="0.5"/></body>'
    ground = '<geom type="plane" size="99 99 1"/>'
    model = fphys.load(f'<mujoco><option timestep="0.002"/><worldbody>{ground}{text}</worldbody></mujoco>')

    @jax.jit
    def fall(model: fphys.Model, state: fphys.State) -> fphys.State:
        return jax.lax.scan(lambda s, _: (fphys.step(model, s), None), state, None, length=steps)[0]

    state = fall(model, fphys.init(model, 1, max_contacts=12 * bodies, max_constraints=48 * bodies))
    fphys.check(state)
    return model, state


def _step(model: fphys.Model, state: fphys.State) -> Workload:
    def validate(after: fphys.State) -> None:
        fphys.check(after)
        pushed, _ = jax.jit(fphys.forward)(model, state, force=jnp.ones_like(state.qvel))
        inverse = jax.jit(fphys.inverse)
        left = jnp.abs(inverse(model, state, pushed) - 1.0).max()
        size = jnp.abs(inverse(model, state, pushed) - inverse(model, state, jnp.zeros_like(pushed))).max()
        if not left < 1e-3 * size:
            raise ValueError(
                f"inverse(forward(force)) differs from force by {float(left / size):.1e} of the inertial forces"
            )

    return Workload(fphys.step, (model, state), validate)


def _gradient(model: fphys.Model, state: fphys.State) -> Workload:
    def energy(model: fphys.Model, state: fphys.State, qvel: Array) -> Array:
        return 0.5 * jnp.sum(fphys.step(model, state.replace(qvel=qvel)).qvel ** 2)

    def validate(grad: Array) -> None:
        if not bool(jnp.isfinite(grad).all()) or not float(jnp.abs(grad).max()) > 0:
            raise ValueError("the gradient is not finite, or zero")

    return Workload(jax.grad(energy, 2), (model, state, state.qvel), validate)
