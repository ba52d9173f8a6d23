"""The material point method side by side with Genesis: same particles, substeps, cells, material, threads, in one run.

    python benchmarks/peers_mpm.py [FILTER] [--json FILE] [--threads 1] [--quick]

A block of fixed-corotated material falls freely, ten substeps a call. Genesis samples the particles, and ours start
where its do. Before anything is timed both must have fallen alike: centre and extent of the block within a thousandth
of a cell. ``pip install genesis-world``; by itself Genesis takes one thread of a CPU, and so do both here by default.
"""

import argparse
import functools
import os
import sys
from typing import Any

STEPS = 10
TIMESTEP, GRAVITY = 1e-4, -1.0
DENSITY, YOUNG, POISSON = 1000.0, 1e4, 0.3
EDGE = 0.4  # of the block [m]
SIZES = {"4k": (16, 20), "32k": (32, 40), "262k": (64, 80)}
"""Name of a size: particles along an edge of the block, and cells along an edge of the domain."""


@functools.cache
def genesis_scene(name: str) -> tuple[Any, Any]:
    """A scene of Genesis, and the block in it."""
    import genesis as gs

    edge, cells = SIZES[name]
    gs.init(backend=gs.cpu, precision="32", logging_level="error")
    scene = gs.Scene(
        sim_options=gs.options.SimOptions(dt=STEPS * TIMESTEP, substeps=STEPS, gravity=(0, 0, GRAVITY)),
        mpm_options=gs.options.MPMOptions(
            lower_bound=(0, 0, 0), upper_bound=(1, 1, 1), grid_density=cells, particle_size=EDGE / edge
        ),
        show_viewer=False,
    )
    block = scene.add_entity(
        gs.morphs.Box(pos=(0.5, 0.5, 0.6), size=(EDGE,) * 3),
        material=gs.materials.MPM.Elastic(E=YOUNG, nu=POISSON, rho=DENSITY, sampler="regular"),
    )
    scene.build()
    return scene, block


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("filter", nargs="?", default="32k", help="one of " + ", ".join(SIZES))
    parser.add_argument("--json", help="file that gets the results")
    parser.add_argument("--threads", type=int, default=1, help="of both")
    parser.add_argument("--quick", action="store_true", help="few samples")
    given = parser.parse_args()
    os.environ["FPHYS_THREADS"] = os.environ["QD_NUM_THREADS"] = str(given.threads)

    import jax
    import numpy as np

    import fphys
    from fphys.bench import Case, Workload
    from fphys.particles import mpm

    name, start = given.filter, {}

    def positions() -> np.ndarray:
        if not start:
            start["x"] = genesis_scene(name)[1].get_particles_pos().numpy().astype(np.float32).reshape(1, -1, 3)
        return start["x"]

    def fallen(engine: str, x: np.ndarray) -> None:
        """Raise unless the block is where symplectic Euler lets it fall, and as large as before."""
        first, cell = positions(), 1.0 / SIZES[name][1]
        way = TIMESTEP**2 * GRAVITY * STEPS * (STEPS + 1) / 2
        wrong = np.abs(x.mean(0, dtype=float) - first[0].mean(0, dtype=float) - [0, 0, way]).max()
        wrong = max(wrong, np.abs(np.ptp(x, axis=0) - np.ptp(first[0], axis=0)).max())
        print(f"{engine}: {len(x)} particles, off by {wrong / cell:.1e} cells after {STEPS} substeps")
        if not wrong < 1e-3 * cell:
            raise ValueError(f"{engine}: the block is off by {wrong / cell:.1e} cells after {STEPS} substeps")

    def genesis(_: int) -> Workload:
        positions()
        scene, block = genesis_scene(name)

        def fn() -> Any:
            scene.step()
            return block.get_particles_pos()

        return Workload(fn, (), lambda x: fallen("genesis", x.numpy().reshape(-1, 3)), jit=False)

    def ours(_: int) -> Workload:
        cells = SIZES[name][1]
        material = mpm.Corotated(DENSITY, YOUNG, POISSON)
        params = mpm.Params(material, TIMESTEP, (0.0, 0.0, GRAVITY), cell=1.0 / cells, shape=(cells,) * 3)
        state = mpm.init(params, positions(), volume=EDGE**3 / positions().shape[1])

        def fn(state: mpm.State) -> mpm.State:
            return jax.lax.scan(lambda s, _: (mpm.step(params, s), None), state, None, length=STEPS)[0]

        def validate(after: mpm.State) -> None:
            mpm.check(params, after)
            fallen("fphys", np.asarray(after.x[0]))

        return Workload(fn, (state,), validate)

    number = STEPS * positions().shape[1]
    cases = [
        Case(f"mpm.{name}.fphys", ours, number, "particle-steps", (1,)),
        Case(f"mpm.{name}.genesis", genesis, number, "particle-steps", (1,), f"mpm.{name}.fphys"),
    ]
    return fphys.bench.main(None, json_path=given.json, quick=given.quick, cases=cases)


if __name__ == "__main__":
    sys.exit(main())
