"""All five solvers in one scene: bodies, material points, smoothed particles, finite elements and position-based cloth.

A motor sweeps a paddle through a tank of water (SPH), in which a wooden ball (rigid) and a block of soft rubber (FEM)
float. Beside it a cloth (XPBD) is held at its corners and carries sand (MPM), into which an iron ball falls. Everything
pushes what it touches. At the end, one ``jax.grad`` through a few steps of the whole, by numbers of all five, is
compared with differences. The success test: no particle is lost, wood and rubber float, the iron lies on the sand.
"""

import dataclasses
import math
import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import fphys
from fphys import coupling
from fphys.deformables import fem, mesh, pbd
from fphys.particles import mpm, sph
from fphys.render import Camera, Flex
from fphys.runs import Run

from . import expect_positive, film
from .lattice import lattice

Array = jax.Array

BAR = 1e-5  # of the gradient, relative
STEP = 0.004  # s
SPACING = 0.03  # m, of the water's particles
SIZE, DEEP, RIM = (0.42, 0.24), 0.15, 0.24  # m, of the tank, its water, its walls
CELL = 0.03  # m, of the sand's grid
MIDDLE, HIGH, EDGE = 0.5, 0.3, 0.36  # m: where the cloth's middle is, its height, its edge
IRON, WOOD = 0.035, 0.05  # m, radii of the balls
SOUND = 15.0  # m/s, in the water
COLORS = (0.25, 0.5, 0.85), (0.82, 0.68, 0.42), (0.86, 0.35, 0.3), (0.3, 0.5, 0.42)  # water, sand, rubber, cloth
AHEAD = 1e-6, 1e-5, 1e-4  # of the differences: short ones end in rounding, long ones meet kinks; the best counts
THICK = 0.02  # m, of the tank's walls
WALLS = {
    "east": (SIZE[0] / 2 + THICK, 0, RIM / 2, THICK, SIZE[1] / 2, RIM / 2, 0.25),
    "west": (-SIZE[0] / 2 - THICK, 0, RIM / 2, THICK, SIZE[1] / 2, RIM / 2, 0.25),
    "north": (0, SIZE[1] / 2 + THICK, RIM / 2, SIZE[0] / 2, THICK, RIM / 2, 0.0),  # towards the camera
    "south": (0, -SIZE[1] / 2 - THICK, RIM / 2, SIZE[0] / 2, THICK, RIM / 2, 0.25),
}
"""Of the tank: middle, half edges, and how much of each is seen."""
UNSEEN = 'contype="0" conaffinity="0"'
TANK = "".join(
    f'<geom name="{name}" type="box" pos="{x} {y} {z}" size="{a} {b} {c}" rgba=".7 .8 .9 {seen}" {UNSEEN}/>'
    for name, (x, y, z, a, b, c, seen) in WALLS.items()
)
LEGS = "".join(
    f'<geom type="capsule" fromto="{x} {y} 0 {x} {y} {HIGH}" size=".008" rgba=".4 .4 .45 1" {UNSEEN}/>'
    for x in (MIDDLE - EDGE / 2, MIDDLE + EDGE / 2)
    for y in (-EDGE / 2, EDGE / 2)
)
PROPS = f"""{TANK}{LEGS}
<body name="paddle" pos="-.12 0 .34">
  <joint name="crank" type="hinge" axis="0 1 0" damping=".02" armature=".002"/>
  <geom type="capsule" fromto="0 0 0 0 0 -.16" size=".008" mass=".05" rgba=".3 .3 .35 1" {UNSEEN}/>
  <geom name="blade" type="box" pos="0 0 -.2" size="{SPACING} {2.5 * SPACING} {1.5 * SPACING}" mass=".3"
    rgba=".3 .3 .35 1" {UNSEEN}/>
</body>
<body name="wood" pos=".04 -.02 {DEEP}"><freejoint/>
  <geom name="wood" type="sphere" size="{WOOD}" density="500" rgba=".72 .5 .3 1"/></body>
<body name="iron" pos="{MIDDLE} .01 {HIGH + 0.25}"><freejoint/>
  <geom name="iron" type="sphere" size="{IRON}" density="2500" rgba=".25 .25 .28 1" friction=".5"/></body>
"""


@dataclasses.dataclass(frozen=True)
class Config:
    torque: float = 0.7
    """Largest torque of the paddle's motor [N m]."""
    young: float = 3e4
    """Young's modulus of the rubber [Pa]."""
    duration: float = 1.2
    """Length of the motion [s]."""
    steps: int = 5
    """Time steps that the gradient goes through, at the end; 0 leaves it out."""

    def __post_init__(self) -> None:
        expect_positive(self, "torque", "steps")


class Scene(NamedTuple):
    """What does not change."""

    model: fphys.Model
    media: tuple[Any, ...]  # water, sand, rubber, cloth
    surfaces: tuple[coupling.Surface, ...]
    substeps: int


def main(config: Config, run: Run) -> dict[str, Any]:
    """Play the scene; computed in float64."""
    with jax.enable_x64(True):
        return _main(config, run)


def _main(config: Config, run: Run) -> dict[str, Any]:
    scene, now = beginning(config)
    count = max(round(config.duration / STEP), 1)
    torques = config.torque * np.sin(2 * np.pi * STEP * np.arange(count + config.steps) / 0.9)
    every = max(round(1 / (film.FPS * STEP)), 1)
    play = jax.jit(lambda now, torques: advance(scene, now, torques))
    begun, shown = time.perf_counter(), [now]
    for i in run.progress(-(-count // every), "mix"):
        now = play(now, torques[i * every : (i + 1) * every])
        shown.append(now)
        run.log(i, wood=now[0].qpos[0, 3], iron=now[0].qpos[0, 10])
    seconds = time.perf_counter() - begun
    begun = time.perf_counter()
    slopes, error = gradient(scene, now, torques[count:]) if config.steps else ({}, 0.0)
    rigid, (water, sand, rubber, cloth) = now
    fphys.check(rigid)
    for solver, medium, matter in zip((sph, mpm, fem, pbd), scene.media, (water, sand, rubber, cloth), strict=True):
        solver.check(medium.params, matter)
    fluid = np.asarray(water.x[0])[np.asarray(water.kind[0]) == sph.FLUID]
    spilt = int((~inside(fluid)).sum())
    fell = int((np.asarray(sand.x[0, :, 2]) < HIGH - EDGE / 2).sum())
    level = float(np.quantile(fluid[:, 2], 0.9))
    wood, iron = float(rigid.qpos[0, 3]), float(rigid.qpos[0, 10])
    block, heap = float(rubber.x[0, :, 2].mean()), float(sand.x[0, :, 2].mean())
    states = jax.tree.map(lambda *x: np.stack([np.asarray(a) for a in x]), *[s[0] for s in shown])
    points = [np.stack([np.asarray(s[1][k].x[0]) for s in shown]) for k in range(4)]
    points[0] = points[0][:, : len(fluid)]
    run.save(parts=[p.shape[1] for p in points])
    when, color = STEP * every * np.arange(len(shown)), np.repeat(COLORS, [p.shape[1] for p in points], 0)
    run.motion(when, scene.model, states, x=np.concatenate(points, 1)[:, None], color=color, radius=SPACING / 4)
    run.plot("mix", _figure(_film(run, scene, states, points, every), shown, slopes, every))
    return {
        "success": bool(
            spilt + fell == 0 and abs(wood - level) < WOOD and abs(block - level) < WOOD and iron > heap and error < BAR
        ),
        "water_lost": spilt,
        "sand_lost": fell,
        "wood_below_level": level - wood,
        "rubber_below_level": level - block,
        "iron_above_sand": iron - heap,
        "gradient_error": error,
        "particles": int(water.x.shape[1] + sand.x.shape[1]),
        "simulation_seconds": round(seconds, 2),
        "gradient_seconds": round(time.perf_counter() - begun, 2),
    }


def beginning(config: Config) -> tuple[Scene, tuple[Any, tuple[Any, ...]]]:
    """The scene, and where it begins: the bodies, and water, sand, rubber and cloth."""
    model = fphys.load(film.stage(PROPS), dtype=jnp.float64)
    model = model.replace({"opt.timestep": jnp.full_like(model.opt.timestep, STEP)})
    gravity = np.array([0.0, 0.0, -9.81])

    params = sph.Params(SPACING, STEP, SOUND, gravity=gravity, artificial=0.1, repulsion=1.0, smoothing=1.0)
    substeps = math.ceil(STEP / (0.9 * float(sph.limit(params, 2.5).min())))
    h = STEP / substeps
    params = params.replace(timestep=h)
    thick, half = 2 * SPACING, np.array(SIZE) / 2
    water = lattice([*-half, 0.0], [*half, DEEP], SPACING)
    tank = lattice([*(-half - thick), -thick], [*(half + thick), RIM], SPACING)
    tank = tank[(abs(tank[:, :2]) > half).any(1) | (tank[:, 2] < 0)]
    wood = lattice([-2 * SPACING] * 3, [2 * SPACING] * 3, SPACING)
    wood = wood[np.linalg.norm(wood, axis=1) < WOOD]
    blade = lattice([-SPACING, -2.5 * SPACING, -1.5 * SPACING], [SPACING, 2.5 * SPACING, 1.5 * SPACING], SPACING)
    blade = blade + [0.0, 0.0, -0.2]
    bodies = model.id("body", "wood"), model.id("body", "paddle")
    start = np.array([0.04, -0.02, DEEP]), np.array([-0.12, 0.0, 0.34])
    rubber = mesh.box((4, 3, 2), (0.12, 0.09, 0.06), (0.08, 0.01, DEEP - 0.03))
    for shape, far in ((wood + start[0], 0.8), (blade + start[1], 0.8), (_filled(rubber), 0.8)):
        gap = np.linalg.norm(water[:, None] - shape, axis=-1).min(1)
        water = water[gap > far * SPACING]
    x = np.concatenate([water, tank, wood + start[0], blade + start[1]])
    kind = np.repeat([sph.FLUID, sph.WALL], [len(water), len(x) - len(water)]).astype(np.int32)
    walls = jnp.asarray(np.concatenate([tank, wood, blade]))
    body = (0,) * len(tank) + (bodies[0],) * len(wood) + (bodies[1],) * len(blade)
    fluid = sph.init(params, jnp.asarray(x[None]), material=kind, max_neighbors=120)

    grains = mpm.Sand(1500.0, 2e5, 0.2, math.radians(35.0))
    reach = CELL / 4
    grid = mpm.Params(
        grains, h, gravity, cell=CELL, shape=(16, 16, 16), lower=(MIDDLE - 8 * CELL, -8 * CELL, HIGH - 6 * CELL)
    )
    heap = lattice([MIDDLE - 0.09, -0.09, HIGH], [MIDDLE + 0.09, 0.09, HIGH + 0.06], CELL / 2)
    sand = mpm.init(grid, jnp.asarray(heap[None] + [0.0, 0.0, reach]))

    soft = fem.Params(rubber, fem.NeoHookean(400.0, config.young, 0.3), h, gravity, damping=1.0)
    sheet = mesh.cloth((12, 12), (EDGE, EDGE))
    corners = np.flatnonzero(np.abs(np.abs(sheet.vertices[:, :2] - EDGE / 2) - EDGE / 2).max(1) < 1e-6)
    held = pbd.Params(
        sheet,
        0.5,
        h,
        stretch=2e-5,
        gravity=gravity,
        damping=2.0,
        thickness=0.005,
        pinned=tuple(corners.tolist()),
        substeps=1,
    )
    hung = sheet.vertices + [MIDDLE - EDGE / 2, -EDGE / 2, HIGH]
    media = (
        coupling.SPH(params, walls, body),
        coupling.MPM(grid, ("iron",)),
        coupling.FEM(soft, ("wood", *WALLS)),
        coupling.PBD(held, ("iron",)),
    )
    surfaces = (
        coupling.Surface(flow=0, mesh=2, reach=SPACING / 2),
        coupling.Surface(flow=1, mesh=3, reach=reach, friction=0.5, front=True),
    )
    matter = fluid, sand, fem.init(soft, rubber.vertices[None]), pbd.init(held, hung[None])
    return Scene(model, media, surfaces, substeps), (fphys.init(model, 1), matter)


def _filled(body: mesh.Mesh) -> np.ndarray:
    low, high = body.vertices.min(0), body.vertices.max(0)
    return lattice(low, high, SPACING / 2)


def advance(scene: Scene, now: Any, torques: Any) -> Any:
    """Bodies and matter after a step for each torque of the motor [N m], shape (T,)."""

    def one(now: Any, torque: Array) -> tuple[Any, None]:
        rigid, matter = now
        force = jnp.zeros_like(rigid.qvel).at[:, 0].set(torque)
        kinds = {"substeps": scene.substeps, "force": force, "surfaces": scene.surfaces}
        return coupling.step(scene.model, rigid, scene.media, matter, **kinds), None

    return fphys.scan(one, now, jnp.asarray(torques))[0]


def gradient(scene: Scene, now: Any, torques: Any) -> tuple[dict[str, float], float]:
    """Derivatives of where everything is by numbers of all solvers, and their relative error along one direction."""
    water, sand, rubber, cloth = scene.media
    one = {name: jnp.ones(1) for name in ("torque", "water", "sand", "rubber", "cloth")}

    @jax.jit
    @jax.value_and_grad
    def places(numbers: dict[str, Array]) -> Array:
        """How far all matter and the bodies move: one number that all five change.

        Denser water is as compressed as before. Of the reference density alone a thousandth is a jolt of 225 Pa, and
        many walls meet the kink where their pressure passes zero.
        """
        fluid = now[1][0].replace(rho=now[1][0].rho * numbers["water"][:, None])
        laws = sand.params.material, rubber.params.material
        media = (
            water.replace(params=water.params.replace(density=1000.0 * numbers["water"])),
            sand.replace(params=sand.params.replace(material=laws[0].replace(young=2e5 * numbers["sand"]))),
            rubber.replace(params=rubber.params.replace(material=laws[1].replace(young=3e4 * numbers["rubber"]))),
            cloth.replace(params=cloth.params.replace(stretch=2e-5 * numbers["cloth"][0])),
        )
        start = now[0], (fluid, *now[1][1:])
        end, matter = advance(scene._replace(media=media), start, numbers["torque"] * jnp.asarray(torques))
        moved = [m.x - n.x for m, n in zip(matter, now[1], strict=True)]
        return 1e3 * (sum((a**2).sum() for a in moved) + ((end.qpos - now[0].qpos) ** 2).sum())

    slopes = places(one)[1]
    found, errors = float(sum(s[0] for s in slopes.values())), []
    for far in AHEAD:
        ahead, behind = (places({k: v + sign * far for k, v in one.items()})[0] for sign in (1, -1))
        errors.append(abs(2 * far * found / float(ahead - behind) - 1))
    return {k: float(v[0]) for k, v in slopes.items()}, min(errors)


def inside(x: np.ndarray) -> np.ndarray:
    """Which particles are between the tank's walls and above its floor."""
    return np.asarray((abs(x[:, :2]) < np.array(SIZE) / 2).all(1) & (x[:, 2] > 0))


def dots(x: np.ndarray, color: tuple[float, ...], radius: float) -> Flex:
    """Particles as very short strands; ``x`` has the shape (T, particle, 3)."""
    ends = np.stack([x, x + [0.0, 0.0, 1e-4]], 2).reshape(len(x), 1, -1, 3)
    return Flex(np.arange(2 * x.shape[1]).reshape(-1, 2), ends, color, radius)


def _film(run: Run, scene: Scene, states: Any, points: list[np.ndarray], every: int) -> Any:
    soft = [m.params.mesh.elements for m in scene.media[2:]]
    flexes = [
        dots(points[0], COLORS[0], 0.5 * SPACING),
        dots(points[1], COLORS[1], 0.28 * CELL),
        Flex(soft[0], points[2][:, None], COLORS[2], 0.001),
        Flex(soft[1], points[3][:, None], COLORS[3], 0.003),
    ]
    camera = Camera(azimuth=65, elevation=-22, distance=1.35, lookat=(0.22, 0.0, 0.17))
    return film.among(run, scene.model, states, flexes, 1 / (every * STEP), camera, width=720)


def _figure(pictures: Any, shown: list[Any], slopes: dict[str, float], every: int) -> Any:
    figure, (left, right) = film.strip(pictures, (0.0, 0.35, 1.0), 2)
    t = STEP * every * np.arange(len(shown))
    lines = {
        "wood": [s[0].qpos[0, 3] for s in shown],
        "rubber": [s[1][2].x[0, :, 2].mean() for s in shown],
        "iron": [s[0].qpos[0, 10] for s in shown],
        "sand": [s[1][1].x[0, :, 2].mean() for s in shown],
        "cloth": [s[1][3].x[0, :, 2].min() for s in shown],
    }
    for (name, z), color in zip(lines.items(), ("#b8804d", "#db594d", "#40404a", "#d1ad6b", "#4d806b"), strict=True):
        left.plot(t, np.array(z), color=color, label=name)
    left.set(xlabel="t [s]", ylabel="heights [m]", ylim=(0, None))
    left.legend(frameon=False, fontsize=8, ncols=2)
    right.barh(list(slopes), np.abs(list(slopes.values())), color="#2a6db5")
    right.set(xscale="log", xlabel="by relative changes [1e-3 m²]", ylabel="by gradient [1e-3 m²]")
    right.set_title("derivatives of how far all move")
    return figure
