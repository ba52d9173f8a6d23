"""The block of the SPH cases in Genesis: its weakly compressible solver, without a gradient."""

import functools
import importlib
import importlib.util
from typing import Any

import jax
import numpy as np

from ..particles import sph
from .case import Workload

INSTALLED = importlib.util.find_spec("genesis") is not None


@functools.cache
def _started() -> Any:
    """Genesis on the CPU, on one thread unless ``QD_NUM_THREADS`` says more; it can be started once in a process."""
    gs: Any = importlib.import_module("genesis")
    gs.init(backend=gs.cpu, precision="32", logging_level="error")
    return gs


def genesis(params: sph.Params, state: sph.State) -> Workload:
    """A step of the same particles: spacing, support 2 h = 2 spacings, time step, sound speed and exponent are ours.

    Its sums are others: density is summed, not integrated, and there is no density diffusion.
    """
    gs, dx, count = _started(), params.spacing, state.x.shape[1]
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
    block = scene.add_entity(morph=gs.morphs.Box(pos=(size / 2,) * 3, size=(size,) * 3), material=liquid)
    scene.build()
    if block.n_particles != count:
        raise ValueError(f"Genesis fills the block with {block.n_particles} particles, ours are {count}")
    block.set_position(np.array(state.x[0]))
    block.set_velocity(np.array(state.v[0]))

    sync = importlib.import_module("quadrants").sync

    def step() -> Any:
        scene.step()
        sync()
        return scene.sim.sph_solver

    def validate(solver: Any) -> None:
        moved = solver.particles.pos.to_numpy()[:, 0] - np.asarray(state.x[0])
        wanted = np.asarray(jax.jit(sph.step)(params, state).x - state.x)[0]
        error = np.linalg.norm(moved - wanted) / np.linalg.norm(wanted)
        if not error < 0.5:
            raise ValueError(f"the first step of Genesis is off by {error:.0%} of the way that particles go")

    return Workload(step, (), validate, jit=False)
