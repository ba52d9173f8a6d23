"""Water is poured into a box and settles level.

A jet of smoothed particles falls into a box, splashes, and comes to rest. The water above the spout consists of wall
particles, which move down at the speed of the jet. Each becomes fluid where it passes the spout. There is no search.
The success test: no particle is lost, and the surface stands at the height V / A of the volume poured over the area of
the box.

Three things matter. Sound has to be several times as fast as the jet: at four times, with a jet of 5 m/s, one particle
in two hundred went through the floor. Walls have to repel (`Params.repulsion`): otherwise sheets that the splash
presses along the walls get behind their faces. The density has to be renewed (`fphys.particles.sph.renew`): otherwise
the water stands a seventh too high.
"""

import dataclasses
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fphys.particles import sph
from fphys.render import Camera, splat
from fphys.runs import Run

from . import expect_positive
from .lattice import lattice

Array = jax.Array

BAR = 0.03  # relative
EDGE = 1.0  # m, of the box, inside
RIM = 1.1  # m, height of its walls
SPOUT = 1.0  # m, height of the spout
GRAVITY = 9.81  # m/s^2
SMOOTHING = 1.0  # h / spacing
REPULSION = 1.0  # of the walls, over rho_0 c^2
LAYERS = 2  # of wall particles: as far as the kernel reaches
SHOWN = 20  # pictures a second
GLASS = 'rgba="0.6 0.75 0.85 0.2"'
BOX = f"""<mujoco><worldbody>
  <geom type="plane" size="3 3 0.1" rgba="0.7 0.72 0.75 1"/>
  <geom type="box" size="0.01 {EDGE / 2} {RIM / 2}" pos="-0.01 {EDGE / 2} {RIM / 2}" {GLASS}/>
  <geom type="box" size="0.01 {EDGE / 2} {RIM / 2}" pos="{EDGE + 0.01} {EDGE / 2} {RIM / 2}" {GLASS}/>
  <geom type="box" size="{EDGE / 2} 0.01 {RIM / 2}" pos="{EDGE / 2} -0.01 {RIM / 2}" {GLASS}/>
  <geom type="box" size="{EDGE / 2} 0.01 {RIM / 2}" pos="{EDGE / 2} {EDGE + 0.01} {RIM / 2}" {GLASS}/>
</worldbody></mujoco>"""


@dataclasses.dataclass(frozen=True)
class Config:
    particles: int = 10_000
    """Particles of the water."""
    across: int = 24
    """Particles along an edge of the box."""
    speed: float = 3.0
    """Of the jet where it leaves the spout [m/s]."""
    sound_speed: float = 30.0
    """[m/s]."""
    artificial: float = 0.2
    """Coefficient of the artificial viscosity."""
    renewal: float = 0.1
    """Share of the density's error that is taken away at every tenth step."""
    duration: float = 2.4
    """Length of the motion [s]."""

    def __post_init__(self) -> None:
        expect_positive(self, "speed", "artificial", "renewal")


def main(config: Config, run: Run) -> dict[str, Any]:
    """Pour, in float32."""
    params, state = beginning(config)
    count = round(1 / (SHOWN * 10 * params.timestep))  # tens of steps between pictures
    times = round(config.duration / (count * 10 * params.timestep))
    begun, shown, kinds, speeds = time.perf_counter(), [], [], []
    for i in run.progress(times, "pour"):
        state = advance(params, state, config.particles, config.renewal, count)
        water = slice(config.particles)
        shown.append(np.asarray(state.x[0, water]))
        kinds.append(np.asarray(state.kind[0, water] == sph.FLUID))
        speeds.append(float(jnp.sqrt(jnp.mean(state.v[0, water] ** 2) * 3)))
        run.log(i, speed=speeds[-1], twice_centre=2 * shown[-1][:, 2].mean())
    seconds = time.perf_counter() - begun
    sph.check(params, state)
    last = shown[-1]
    wanted = config.particles * params.spacing**3 / EDGE**2
    found, middle = surface(last, params.spacing), 2 * float(last[:, 2].mean())
    lost = int((~inside(last)).sum())
    run.save(speed=np.array(speeds))
    when = np.arange(1, times + 1) * count * 10 * params.timestep
    visible = np.where(np.array(kinds)[..., None], shown, np.nan)
    run.motion(when, BOX, x=visible[:, None], radius=params.spacing / 2)
    run.plot("pour", _figure(shown, params.spacing, wanted, count * 10 * params.timestep))
    view = Camera(azimuth=60, elevation=-18, track=False)
    run.video("pour", lambda: splat(visible, 0.55 * params.spacing, camera=view), SHOWN)
    return {
        "success": lost == 0 and max(abs(found / wanted - 1), abs(middle / wanted - 1)) < BAR,
        "lost": lost,
        "height": found,
        "twice_centre": middle,
        "wanted": wanted,
        "height_error": found / wanted - 1,
        "twice_centre_error": middle / wanted - 1,
        "final_speed": speeds[-1],
        "particles": config.particles,
        "wall_particles": int((state.kind == sph.WALL).sum()),
        "steps": times * count * 10,
        "simulation_seconds": round(seconds, 2),
    }


def beginning(config: Config) -> tuple[sph.Params, sph.State]:
    """The box, and the jet that waits above it, the lowest particles first."""
    spacing, half = EDGE / config.across, config.across // 4
    left, near = (config.across // k * spacing for k in (8, 6))  # off the middle, where waves would meet
    rows = -(-config.particles // (2 * half) ** 2)
    wide = 2 * half * spacing
    jet = lattice([left, near, SPOUT], [left + wide, near + wide, SPOUT + rows * spacing], spacing)
    jet = jet[np.argsort(jet[:, 2], kind="stable")][: config.particles]
    thick = LAYERS * spacing
    box = lattice([-thick] * 3, [EDGE + thick] * 2 + [RIM], spacing)
    box = box[((box < 0) | (box > [EDGE, EDGE, np.inf])).any(-1)]
    x = np.concatenate([jet, box])[None].astype(np.float32)
    v = np.zeros_like(x)
    v[0, : len(jet), 2] = -config.speed
    params = sph.Params(
        spacing,
        timestep=1.0,
        sound_speed=config.sound_speed,
        gravity=np.array([0.0, 0.0, -GRAVITY]),
        artificial=config.artificial,
        repulsion=REPULSION,
        smoothing=SMOOTHING,
    )
    fastest = 1.2 * np.sqrt(config.speed**2 + 2 * GRAVITY * SPOUT)
    params = params.replace(timestep=0.9 * float(sph.limit(params, fastest).min()))
    return params, sph.init(params, x, v, np.full(len(x[0]), sph.WALL))


@jax.jit(static_argnums=(2, 4))
def advance(params: sph.Params, state: sph.State, water: int, renewal: Any, count: int) -> sph.State:
    """The state after ten times ``count`` steps; the first ``water`` particles become fluid at the spout."""
    poured = jnp.arange(state.x.shape[1]) < water

    def one(_: Any, s: sph.State) -> sph.State:
        fluid = poured & (s.x[..., 2] < SPOUT)
        return sph.step(params, s.replace(kind=jnp.where(fluid, sph.FLUID, s.kind)))

    def ten(_: Any, s: sph.State) -> sph.State:
        return sph.renew(params, jax.lax.fori_loop(0, 10, one, s), renewal)

    return jax.lax.fori_loop(0, count, ten, state)


def surface(x: np.ndarray, spacing: float) -> float:
    """Mean height [m] of the water in columns that are one spacing wide, half a spacing above the highest particle."""
    across = round(EDGE / spacing)
    i, j = np.clip((x[:, :2] / spacing).astype(int), 0, across - 1).T
    top = np.full((across, across), -np.inf)
    np.maximum.at(top, (i, j), x[:, 2])
    return float(top[np.isfinite(top)].mean() + spacing / 2)


def inside(x: np.ndarray) -> np.ndarray:
    """Which particles are between the walls and above the floor."""
    return np.asarray(((x >= 0) & (x <= [EDGE, EDGE, np.inf])).all(-1))


def _figure(shown: list[np.ndarray], spacing: float, wanted: float, step: float) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.0, 3.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    t = step * np.arange(1, len(shown) + 1)
    left.plot(t, [2 * x[:, 2].mean() for x in shown], color="#2a6db5")
    left.axhline(wanted, color="#6b7280", linewidth=0.8, linestyle=":")
    left.set(xlabel="time [s]", ylabel="twice the centre's height [m]", ylim=(0, 4 * wanted))
    x = shown[-1][np.abs(shown[-1][:, 1] - EDGE / 2) < spacing]
    right.scatter(x[:, 0], x[:, 2], s=3.0, color="#2a6db5")
    right.axhline(wanted, color="#6b7280", linewidth=0.8, linestyle=":")
    right.set(
        xlim=(0, EDGE),
        ylim=(0, RIM),
        aspect="equal",
        xlabel="x [m]",
        ylabel="z [m]",
        title="a slice at the end, and V / A",
    )
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    return figure
