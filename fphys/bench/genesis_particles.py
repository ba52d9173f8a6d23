"""The blocks of the SPH and MPM cases in Genesis, with our particles, substeps, material and number of threads."""

import functools
import importlib
import importlib.util
import os
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from ..bridge.workers import num_threads
from ..particles import mpm, sph
from .case import Workload

INSTALLED = importlib.util.find_spec("genesis") is not None


def sph_step(params: sph.Params, state: sph.State) -> Workload:
    """A step of the same particles, with our spacing, support 2 h = 2 spacings, time step, sound speed and exponent.

    Genesis sums the density instead of integrating it, and has no density diffusion and no gradient.
    """
    gs, dx, count = started(), params.spacing, state.x.shape[1]
    size = dx * round(count ** (1 / 3))
    scene = gs.Scene(
        sim_options=gs.options.SimOptions(dt=float(params.timestep), substeps=1, gravity=(0.0, 0.0, -9.81)),
        sph_options=gs.options.SPHOptions(particle_size=dx, lower_bound=(-1.0,) * 3, upper_bound=(size + 1.0,) * 3),
        show_viewer=False,
    )
    c, density = float(params.sound_speed), float(params.density)
    liquid = gs.materials.SPH.Liquid(
        rho=density, stiffness=density * c**2 / params.exponent, exponent=params.exponent, mu=5e-4, gamma=0.0
    )
    block = _filled(scene, gs.morphs.Box(pos=(size / 2,) * 3, size=(size,) * 3), liquid, count)
    block.set_position(np.array(state.x[0]))
    block.set_velocity(np.array(state.v[0]))

    def step() -> Any:
        scene.step()
        wait()
        return scene.sim.sph_solver

    def validate(solver: Any) -> None:
        moved = solver.particles.pos.to_numpy()[:, 0] - np.asarray(state.x[0])
        wanted = np.asarray(jax.jit(sph.step)(params, state).x - state.x)[0]
        error = np.linalg.norm(moved - wanted) / np.linalg.norm(wanted)
        if not error < 0.5:
            raise ValueError(f"Genesis's first step is off by {error:.0%} of the distance that particles move")

    return Workload(step, (), validate, jit=False)


def mpm_steps(params: mpm.Params, state: mpm.State, steps: int, wanted: Callable[[], Any]) -> Workload:
    """``steps`` substeps of a block in the unit cube. Velocities must be within 1e-5 m/s of ours, ``wanted()``."""
    scene, block = _mpm_block(params, state, steps, gradient=False)
    block.set_position(_mpm_positions(params, state))
    block.set_velocity(np.array(state.v[0]))

    def fn() -> Any:
        scene.step()
        wait()
        return block

    def validate(block: Any) -> None:
        error = np.abs(block.get_particles_vel().numpy().reshape(-1, 3) - np.asarray(wanted())[0]).max()
        if not error < 1e-5:
            raise ValueError(f"after {steps} steps a particle of Genesis differs from ours by {error:.1e} m/s")

    return Workload(fn, (), validate, jit=False)


def mpm_gradient(params: mpm.Params, state: mpm.State, steps: int, wanted: Callable[[], Any]) -> Workload:
    """The same with gradient: of the sum of positions with respect to initial positions and velocities."""
    scene, block = _mpm_block(params, state, steps, gradient=True)
    torch: Any = importlib.import_module("torch")
    start = [torch.tensor(a) for a in (_mpm_positions(params, state), np.array(state.v[0]))]

    def fn() -> Any:
        scene.reset()
        x, v = (a.clone().requires_grad_() for a in start)
        block.set_position(x)
        block.set_velocity(v)
        scene.step()
        block.get_state().pos.sum().backward()
        return x.grad, v.grad

    def validate(grads: Any) -> None:
        for found, ours in zip(grads, wanted(), strict=True):
            error = np.abs(found.numpy() - np.asarray(ours)[0]).max() / np.abs(ours).max()
            if not error < 1e-2:
                raise ValueError(f"a gradient of Genesis is off by {error:.1e} of our largest")

    return Workload(fn, (), validate, jit=False)


def _mpm_positions(params: mpm.Params, state: mpm.State) -> np.ndarray:
    """Positions for Genesis, whose grid nodes are at the corners of cells; ours are at their centres."""
    return np.array(state.x[0] + 0.5 * params.cell)


def _mpm_block(params: mpm.Params, state: mpm.State, steps: int, gradient: bool) -> tuple[Any, Any]:
    """A scene whose step is ``steps`` of ours, with a block of as many particles, each of the same mass."""
    gs, count = started(), state.x.shape[1]
    (material,) = params.materials
    assert isinstance(material, mpm.Corotated)
    edge = float(count * np.asarray(state.volume).flat[0]) ** (1 / 3)
    scene = gs.Scene(
        sim_options=gs.options.SimOptions(
            dt=steps * float(params.timestep), substeps=steps, gravity=tuple(params.gravity), requires_grad=gradient
        ),
        mpm_options=gs.options.MPMOptions(
            lower_bound=(0, 0, 0),
            upper_bound=(1, 1, 1),
            grid_density=params.shape[0],
            particle_size=edge / round(count ** (1 / 3)),
        ),
        show_viewer=False,
    )
    elastic = gs.materials.MPM.Elastic(
        E=material.young, nu=material.poisson, rho=material.density, sampler="regular", model="corotation"
    )
    return scene, _filled(scene, gs.morphs.Box(pos=(0.5,) * 3, size=(edge,) * 3), elastic, count)


def _filled(scene: Any, box: Any, material: Any, count: int) -> Any:
    block = scene.add_entity(morph=box, material=material)
    scene.build()
    if block.n_particles != count:
        raise ValueError(f"Genesis fills the block with {block.n_particles} particles, must be {count}")
    return block


@functools.cache
def started() -> Any:
    """Start Genesis on JAX's device with as many threads as ours. It can start only once per process."""
    os.environ.setdefault("QD_NUM_THREADS", str(num_threads()))
    gs: Any = importlib.import_module("genesis")
    gs.init(backend=gs.gpu if jax.default_backend() == "gpu" else gs.cpu, precision="32", logging_level="error")
    return gs


def wait() -> None:
    importlib.import_module("quadrants").sync()
