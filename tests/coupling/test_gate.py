"""Water on elastic bodies, in the plane: the gate of Antoci, Gallati and Sibilla; a plate under a column of water."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import fphys
from fphys import coupling
from fphys.deformables import fem, mesh
from fphys.particles import sph

from .scenes import Scene, grid

AWAY = """<mujoco><option timestep="{step}" gravity="0 0 0"/><worldbody><body pos="0 0 9">
<joint type="slide" axis="0 1 0"/><inertial pos="0 0 0" mass="1" diaginertia="1 1 1"/></body></worldbody></mujoco>"""
"""A step needs a model; this one touches nothing."""

WIDE, DEEP = 0.1, 0.14
"""Of the water behind the gate [m]."""

GATE, THICK = 0.079, 0.005
"""Length and thickness of the gate [m]."""

PEAK = 0.0451, 0.0205
"""How far the dry corner of the tip goes, along and up [m]: SPHinXsys, with E = 7.8 MPa and Poisson's ratio 0.47."""

SPAN, PLATE, STIFF, NU, HEAVY, HEAD = 1.0, 0.05, 67.5e9, 0.34, 2700.0, 2.0
"""A plate: span, thickness, Young's modulus, Poisson's ratio, density, depth of the water above it."""


def held_by(params: Any, speed: float, water: np.ndarray, tank: np.ndarray, body: Any) -> tuple[Scene, Any]:
    """Water in a tank and a soft body that holds it, a step of ``params.timestep`` long, and their border.

    Args:
        speed: of the fastest particle [m/s].
        body: parameters of the soft body as a function of the time step.
    """
    step, top = params.timestep, water[:, 1].max() + params.spacing / 2
    substeps = int(np.ceil(step / float(sph.limit(params, speed).min())))
    params = params.replace(timestep=step / substeps)
    pressure = np.concatenate([9810.0 * (top - water[:, 1]), np.zeros(len(tank))])[None]
    kind = np.repeat((sph.FLUID, sph.SLIP_WALL), (len(water), len(tank))).astype(np.int32)
    x, room = np.concatenate([water, tank])[None], {"max_neighbors": 80}
    fluid = sph.init(params, jnp.asarray(x), material=kind, pressure=jnp.asarray(pressure), **room)
    walls, soft = jnp.asarray(np.pad(tank, ((0, 0), (0, 1)))), body(params.timestep)
    media = coupling.SPH(params, walls, (0,) * len(tank)), coupling.FEM(soft, ())
    model = fphys.load(AWAY.format(step=step), dtype=jnp.float64)
    matter = fluid, fem.init(soft)
    return Scene(model, fphys.init(model, 1), media, matter, substeps), coupling.Surface(0, 1, params.spacing / 2)


def rolled(scene: Scene, border: Any, seconds: float, observe: Any) -> Any:
    """What is observed of the matter after each step; faults raise."""
    count = round(seconds / float(scene.model.opt.timestep[0]))

    @jax.jit
    def roll(state: Any, matter: Any) -> Any:
        def advance(now: Any, _: None) -> Any:
            state, matter = coupling.step(
                scene.model, now[0], scene.media, now[1], substeps=scene.substeps, surfaces=border
            )
            return (state, matter), observe(matter)

        return jax.lax.scan(advance, (state, matter), None, count)

    (_, matter), seen = roll(scene.state, scene.matter)
    assert not any(np.asarray(m.status).any() for m in matter)
    return jax.tree.map(np.asarray, seen)


def gate_peaks(rows: int, across: int, seconds: float) -> np.ndarray:
    """How far the dry corner of the tip goes, along and up [m]; ``across`` are cells of the gate."""
    spacing = DEEP / rows
    thick = 3 * spacing
    params = sph.Params(spacing, 1e-3, 20.0, gravity=(0, -9.81), artificial=0.05)
    bed, left = grid((-thick, -thick), (0.4, 0), spacing), grid((-thick, 0), (0, DEEP + 0.05), spacing)
    tank = np.concatenate([bed, left, grid((WIDE, GATE), (WIDE + thick, DEEP + 0.05), spacing)])
    body = mesh.box((across, round(across * GATE / THICK)), (THICK, GATE), lower=(WIDE, 0.0))
    top = np.flatnonzero(body.vertices[:, 1] > GATE * (1 - 1e-9))
    law = fem.NeoHookean(1100.0, 7.8e6, 0.47)
    given = {"gravity": (0, -9.81), "pinned": top, "mean_dilatation": True}
    scene, border = held_by(
        params, 3.0, grid((0, 0), (WIDE, DEEP), spacing), tank, lambda h: fem.Params(body, law, h, **given)
    )
    tip = int(np.linalg.norm(body.vertices - [WIDE + THICK, 0], axis=1).argmin())
    return (rolled(scene, border, seconds, lambda m: m[1].x[0, tip]) - body.vertices[tip]).max(0)


def sag_under_water(rows: int, across: int, seconds: float) -> float:
    """What the plate sags at mid-span below water, in the mean after a fifth of a second, over what it sags by theory.

    That is the sag of the same mesh in equilibrium under an even pressure.
    """
    spacing, step = HEAD / rows, 4e-3
    thick = 3 * spacing
    params = sph.Params(spacing, step, 63.0, gravity=(0, -9.81), artificial=0.3)
    left = grid((-thick, -thick), (0, HEAD + 0.2), spacing)
    tank = np.concatenate([left, [SPAN, 0] - left * [1, -1]])
    body = mesh.box((round(across * SPAN / PLATE), across), (SPAN, PLATE), lower=(0.0, -PLATE))
    x = body.vertices
    ends, middle = np.flatnonzero((x[:, 0] == 0) | (x[:, 0] == SPAN)), np.flatnonzero(x[:, 0] == SPAN / 2)
    law = fem.StVenantKirchhoff(HEAVY, STIFF, NU)

    def plate(h: Any) -> fem.Params:
        return fem.Params(body, law, h, gravity=(0, -9.81), pinned=ends, damping=30.0)

    scene, border = held_by(params, 1.0, grid((0, 0), (SPAN, HEAD), spacing), tank, plate)
    height = rolled(scene, border, seconds, lambda m: m[1].x[0, middle, 1].mean())
    force = np.zeros_like(x)
    force[x[:, 1] == 0, 1] = -9810.0 * HEAD * PLATE / across
    rest = jax.jit(fem.step)(plate(jnp.inf), fem.init(plate(jnp.inf)), jnp.asarray(force)[None])
    fem.check(plate(jnp.inf), rest)
    still = (rest.x[0, middle, 1] - x[middle, 1]).mean()
    return float((height[round(0.2 / step) :] - x[middle, 1].mean()).mean() / still)


def test_the_elastic_gate(full: bool):
    """6 % short along; up, which grows as the square of that, 17 %: a miss, and the same at both resolutions.

    The gate is too stiff by 2 % with eight cells across. Two runs that are stored with SPHinXsys have 44.8 and 46.4 mm
    along, 18.5 and 20.2 mm up.
    """
    rows, across = (56, 8) if full else (28, 4)
    along, up = gate_peaks(rows, across, 0.13) / PEAK
    assert abs(along - 1) < 0.08
    assert abs(up - 1) < 0.2


def test_a_plate_under_water(full: bool):
    """In the mean it sags as under an even pressure: water at rest pushes it, by the reaction of single particles."""
    rows, across, seconds = (40, 4, 1.0) if full else (20, 2, 0.6)
    assert abs(sag_under_water(rows, across, seconds) - 1) < 0.03
