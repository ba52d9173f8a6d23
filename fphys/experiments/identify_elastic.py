"""The stiffness of every element of a plate is found from a recorded motion.

A plate in plane stress, of finite elements, is held at one edge and pulled at the others, in three ways: one in each
world. The recording has the places of all vertices after each step, with noise. The unknowns are the logarithms of
Young's modulus of all elements. L-BFGS minimises the misfit, with gradients through the implicit steps.
"""

import dataclasses
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import fphys
from fphys.deformables import fem, mesh
from fphys.render import Camera, Flex
from fphys.render.flex import PALETTE
from fphys.runs import Run

from . import expect_positive, film

Array = jax.Array

BAR = 0.02  # relative
SIZE = (0.4, 0.3)  # m, edges of the plate
YOUNG = 2e4  # Pa, of the plate without its stiff and its soft spot
STEP = 0.02  # s


@dataclasses.dataclass(frozen=True)
class Config:
    seed: int = 0
    """Of the noise."""
    cells: tuple[int, int] = (8, 6)
    """Of the mesh; each is two triangles."""
    load: float = 1000.0
    """Traction on an edge that is pulled [N/m for each metre of thickness]."""
    noise: float = 2e-5
    """Standard deviation of the recorded positions [m]."""
    steps: int = 20
    """Length of the motion, in steps of 20 ms."""
    iterations: int = 100
    """Of L-BFGS."""

    def __post_init__(self) -> None:
        expect_positive(self, "noise", "iterations")
        if min(self.cells) < 1:
            raise ValueError(f"--cells is {self.cells}: both must be positive")


def main(config: Config, run: Run) -> dict[str, Any]:
    """Find the field; computed in float64."""
    with jax.enable_x64(True):
        return _main(config, run)


def _main(config: Config, run: Run) -> dict[str, Any]:
    import optax

    plate = mesh.box(config.cells, SIZE)
    truth, force = field(plate), jnp.asarray(loads(plate, config.load))
    clean = jax.jit(lambda logs: motion(logs, plate, force, config.steps))(jnp.log(truth))
    recorded = clean.x + config.noise * np.random.default_rng(config.seed).standard_normal(clean.x.shape)
    optimizer = optax.lbfgs(memory_size=20)

    def misfit(logs: Array) -> Array:
        x = motion(logs, plate, force, config.steps).x
        return jnp.mean((x - recorded) ** 2) / max(config.noise, 1e-6) ** 2

    @jax.jit
    def update(logs: Array, memory: Any) -> tuple[Array, Any, Array]:
        value, slope = optax.value_and_grad_from_state(misfit)(logs, state=memory)
        change, memory = optimizer.update(slope, memory, logs, value=value, grad=slope, value_fn=misfit)
        return jnp.asarray(optax.apply_updates(logs, change)), memory, jnp.asarray(value)

    begun = time.perf_counter()
    logs = jnp.full(len(truth), np.log(YOUNG))
    memory = optimizer.init(logs)
    first = difference(np.exp(logs), truth, plate)
    for i in run.progress(config.iterations, "identify-elastic"):
        logs, memory, value = update(logs, memory)
        run.log(i, misfit=value, error=difference(np.exp(logs), truth, plate))
    seconds = time.perf_counter() - begun
    fem.check(parameters(logs, plate), jax.tree.map(lambda leaf: leaf[-1], clean))
    found = np.exp(logs)
    error = difference(found, truth, plate)
    run.save(young=found, truth=truth)
    run.motion(STEP * np.arange(1, config.steps + 1), x=clean.x, elements=plate.elements)
    pictures = _film(run, plate, np.asarray(clean.x))
    run.plot("identify-elastic", _figure(pictures, plate, found, truth))
    return {
        "success": error < BAR,
        "error": error,
        "worst_element": float(np.abs(found / truth - 1).max()),
        "error_of_guess": first,
        "elements": len(truth),
        "largest_displacement": float(np.abs(clean.x - plate.vertices).max()),
        "search_seconds": round(seconds, 2),
    }


def field(plate: mesh.Mesh) -> np.ndarray:
    """The true Young's modulus of each element [Pa]: a stiff and a soft spot."""
    middle = plate.vertices[plate.elements].mean(1)

    def spot(x: float, y: float, width: float) -> np.ndarray:
        return np.exp(-((middle - [x, y]) ** 2).sum(1) / (2 * width**2))

    return YOUNG * (1 + 1.5 * spot(0.25, 0.18, 0.07) - 0.4 * spot(0.1, 0.08, 0.06))


def loads(plate: mesh.Mesh, traction: float) -> np.ndarray:
    """Forces on the vertices [N], shape (3, vertex, 2): pulled lengthwise, bent, and pulled across."""
    x, y = plate.vertices.T
    right, top, bottom = (np.flatnonzero(np.isclose(*pair)) for pair in ((x, SIZE[0]), (y, SIZE[1]), (y, 0.0)))
    force = np.zeros((3, len(x), 2))
    force[0, right, 0] = traction * SIZE[1] / len(right)
    force[1, right, 1] = 0.15 * traction * SIZE[1] / len(right)
    force[2, top, 1] = traction * SIZE[0] / len(top)
    force[2, bottom, 1] = -traction * SIZE[0] / len(bottom)
    return force


def parameters(logs: Array, plate: mesh.Mesh) -> fem.Params:
    """The plate, held at its left edge, for the logarithms of Young's modulus [Pa]."""
    law = fem.StVenantKirchhoff(100.0, jnp.exp(logs), 0.3, plane_stress=True)
    return fem.Params(plate, law, STEP, damping=1.0, pinned=np.flatnonzero(plate.vertices[:, 0] == 0))


def motion(logs: Array, plate: mesh.Mesh, force: Array, steps: int) -> fem.State:
    """The states of all worlds, stacked on a leading time axis."""
    params = parameters(logs, plate)

    def advance(s: fem.State, _: None) -> tuple[fem.State, fem.State]:
        s = fem.step(params, s, force=force)
        return s, s

    return fphys.scan(advance, fem.init(params, num_worlds=len(force)), None, length=steps)[1]


def difference(found: Any, truth: np.ndarray, plate: mesh.Mesh) -> float:
    """The field's relative error, in the root mean square over the area."""
    area = mesh.measures(plate.vertices, plate.elements)
    return float(np.sqrt((area * (np.asarray(found) - truth) ** 2).sum() / (area * truth**2).sum()))


def _film(run: Run, plate: mesh.Mesh, x: np.ndarray) -> np.ndarray | None:
    """The three motions side by side, lying on the floor."""
    aside = np.array([[0.6, 0.0]]) * np.arange(x.shape[1])[:, None, None]
    lying = np.concatenate([x + aside, np.full_like(x[..., :1], 0.01)], -1)
    flexes = [Flex(plate.elements, lying[:, k, None], color, 0.005) for k, color in enumerate(PALETTE[: x.shape[1]])]
    return film.deforming(run, flexes, STEP, camera=Camera(azimuth=90, elevation=-50))


def _figure(pictures: np.ndarray | None, plate: mesh.Mesh, found: np.ndarray, truth: np.ndarray) -> Any:
    figure, axes = film.strip(pictures, (0.0, 1.0), 3)
    high = truth.max() / 1e3
    shown = ((truth / 1e3, "true modulus [kPa]", 0.0, high), (found / 1e3, "found", 0.0, high))
    for place, (values, title, low, top) in zip(axes, (*shown, (100 * (found / truth - 1), "error [%]", -5.0, 5.0))):
        drawn = place.tripcolor(*plate.vertices.T, plate.elements, values, vmin=low, vmax=top)
        figure.colorbar(drawn, ax=place, shrink=0.8)
        place.set(aspect="equal", title=title)
        place.set_axis_off()
    return figure
