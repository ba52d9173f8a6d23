"""The guides' validation plots, from the programs that the tests hold against theory and experiment.

``python docs/plots.py [rigid] [mpm] [sph]`` writes ``docs/validation-*.png``; it takes a few minutes.
"""

import os
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
os.environ.setdefault("MPLBACKEND", "Agg")
jax.config.update("jax_enable_x64", True)

import matplotlib.pyplot as plt  # noqa: E402, TID253

import fphys  # noqa: E402
from fphys.particles import mpm, sph  # noqa: E402
from tests.verification import test_mpm as solids  # noqa: E402
from tests.verification import test_sph as fluids  # noqa: E402

BLUE, ORANGE = "#1769aa", "#ec6a29"


def rigid() -> Any:
    """The order of each integrator, and MuJoCo's motion of a robot on the ground beside ours."""
    figure, (left, right) = panels()
    model = fphys.load(fphys.asset("double-pendulum"))
    steps = 2.0 ** -np.arange(5, 11)
    for name, kind, order, color in (("Euler", 0, 1, BLUE), ("RK4", 1, 4, ORANGE)):
        final = [swung(model, kind, h) for h in [*steps, steps[-1] / 4]]
        errors = [np.abs(x - final[-1]).max() for x in final[:-1]]
        left.loglog(steps, 3 * errors[0] * (steps / steps[0]) ** order, "k:", lw=0.8)
        left.loglog(steps, errors, "o-", color=color, label=f"{name}; dotted: order {order}")
    left.set(xlabel="time step [s]", ylabel="error [rad]", title="a double pendulum after 0.5 s")
    left.legend(frameon=False)
    times, ours, theirs = tumble()
    right.plot(times, theirs, color=ORANGE, lw=4, alpha=0.4, label="MuJoCo")
    right.plot(times, ours, color=BLUE, lw=1, label="fphys")
    right.set(xlabel="time [s]", ylabel="height [m]", title="an ant lands and stands")
    handles, labels = right.get_legend_handles_labels()
    right.legend(handles[:: len(handles) - 1], labels[:: len(labels) - 1], frameon=False)
    return figure


def swung(model: fphys.Model, integrator: int, h: float) -> np.ndarray:
    """Angles after half a second."""
    source = model.structure.source
    source.opt.timestep, source.opt.integrator = h, integrator
    same = fphys.load(source)
    state = fphys.init(same, 1, qpos=jnp.array([[1.0, 0.5]]))
    run = jax.jit(
        lambda s: jax.lax.fori_loop(0, round(0.5 / h), lambda _, s: fphys.step(same, s, jnp.zeros((1, source.nu))), s)
    )
    return np.asarray(run(state).qpos[0])


def tumble() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Heights of torso and feet of an ant that lands on them: ours and MuJoCo's, each from its own states."""
    import mujoco

    theirs = mujoco.MjModel.from_xml_path(str(fphys.asset("ant")))
    model, data = fphys.load(theirs), mujoco.MjData(theirs)
    state, move, kin = fphys.init(model, 1), jax.jit(fphys.step), jax.jit(fphys.kinematics)
    bodies = [1, *np.flatnonzero(theirs.body_parentid == theirs.nbody - 2)[:1], theirs.nbody - 1]
    rows = []
    for _ in range(round(1.0 / theirs.opt.timestep)):
        mujoco.mj_step(theirs, data)
        state = move(model, state, jnp.zeros((1, theirs.nu)))
        mujoco.mj_kinematics(theirs, data)
        rows.append((np.asarray(kin(model, state).body.pos[0, bodies, 2]), data.xpos[bodies, 2].copy()))
    found = np.array(rows)
    return theirs.opt.timestep * np.arange(1, len(found) + 1), found[:, 0], found[:, 1]


def solid() -> Any:
    """A bar that is held at one end, beside its first mode."""
    figure, (left, right) = panels()
    cells, speed, per = 40, 2 * np.pi, 320
    period = 4 / speed
    law = mpm.NeoHookean(1.0, speed**2, 0.0)
    params = mpm.Params(law, period / per, cell=1 / cells, shape=(cells + 4, 1, 1))
    x = solids.lattice((0, 0, 0), (1, 1 / cells, 1 / cells), 0.5 / cells)
    shape = np.sin(0.5 * np.pi * x[..., 0])
    state = mpm.init(params, x, np.stack([0.05 * shape, 0 * shape, 0 * shape], -1))
    states = solids.play(params, state, 10 * per, 4)
    mode = (np.asarray(states.v)[:, 0, :, 0] * shape).sum(-1) / (shape**2).sum()
    time = 4 * params.timestep * np.arange(1, len(mode) + 1) / period
    for axis, after in ((left, 0.0), (right, 8.0)):
        some = time >= after
        axis.plot(time[some], 0.05 * np.cos(2 * np.pi * time[some]), color=ORANGE, lw=4, alpha=0.4, label="first mode")
        axis.plot(time[some], mode[some], color=BLUE, lw=1, label="MPM")
        axis.set(xlabel="time [periods]", ylabel="velocity [m/s]")
    left.set(title="a bar in its first mode")
    right.set(title="its last two periods")
    right.legend(loc="upper right", framealpha=0.95)
    return figure


def fluid() -> Any:
    """A dam that breaks, beside the experiment, and flow between plates, beside its series."""
    figure, (left, right) = panels()
    front, *_ = fluids.dam_break(40, sph.WALL, 2.3, **fluids.ROUGH)
    points = np.array(fluids.KOSHIZUKA_OKA)
    left.plot(*points.T, "o", color=ORANGE, label="Koshizuka and Oka 1996")
    left.plot(points[:, 0], front, color=BLUE, label="SPH, 40 particles high")
    left.set(xlabel="t (2 g / L)$^{1/2}$ [-]", ylabel="front / L [-]", title="a dam breaks")
    left.legend(frameon=False)
    y = np.linspace(0, 1, 101)
    for seconds in (0.5, 5.0):
        for push, drag in ((0.8, 0.0), (0.0, 1.0)):
            exact = fluids.poiseuille(y, seconds, push, 0.1) if push else fluids.couette(y, seconds, drag, 0.1)
            at, found = fluids.channel(20, seconds, push, drag)
            right.plot(exact, y, color=ORANGE, lw=4, alpha=0.4)
            right.plot(found, at, ".", color=BLUE, ms=3)
    right.set(xlabel="velocity [m/s]", ylabel="y [m]", title="between plates, after 0.5 and 5 s: SPH on the series")
    return figure


def panels() -> Any:
    return plt.subplots(1, 2, figsize=(9.6, 3.4), layout="constrained")


PLOTS = {"rigid": rigid, "mpm": solid, "sph": fluid}


if __name__ == "__main__":
    for name in sys.argv[1:] or PLOTS:
        PLOTS[name]().savefig(HERE / f"validation-{name}.png", dpi=110)
