"""Record the motions that ``fphys run identify`` and ``identify-contact`` read: simulated by MuJoCo, with noise.

``python make.py`` rewrites, in its own folder, ``double-pendulum.csv``, ``double-pendulum-2.csv`` (another excitation,
to test predictions on) and ``double-pendulum.truth.json`` (the values to find); ``puck.csv``, ``puck-2.csv`` (another
throw) and ``puck.truth.json``. The same seeds give the same files.
"""

import json
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
MASS = {"upper": 0.62, "lower": 0.37}  # kg; inertias scale with them, the arms being uniform rods
DAMPING = {"shoulder": 0.08, "elbow": 0.035}  # N m s/rad
NOISE = 0.01  # standard deviation of the noise, as a fraction of each channel's own
STEPS = 600  # of the model's time step, 0.01 s
RECORDINGS = {"double-pendulum": 9, "double-pendulum-2": 24}  # name -> seed
HEADER = "time,ctrl0,ctrl1,qpos0,qpos1,qvel0,qvel1"

FRICTION, CONTACT_DAMPING = 0.24, 45.0  # of the puck on the floor: [-] and [1/s], the second of solref with its sign
THROWS = {"puck": ([0.0, 0.4, 4.0, 0.0], 5), "puck-2": ([0.0, 0.25, 3.0, 1.5], 6)}  # name -> (x, z, vx, vz), seed
PUCK_ROWS, EVERY = 200, 10  # rows after the first, and the model's steps of 1 ms between two
PUCK_HEADER = "time,qpos0,qpos1,qvel0,qvel1"


def true_model():
    """The double pendulum of our assets with other masses and dampings."""
    import mujoco

    spec = mujoco.MjSpec.from_file(str(HERE.parent / "double-pendulum.xml"))
    for name, mass in MASS.items():
        spec.geom(name).mass = mass
    for name, damping in DAMPING.items():
        spec.joint(name).damping[0] = damping
    return spec.compile()


def excitation(rng: np.random.Generator, time: np.ndarray, limit: np.ndarray) -> np.ndarray:
    """Torques [N m], shape (step, 2): five sines of 0.2 to 1.5 Hz each, at most 90 % of the limit."""
    frequency = rng.uniform(0.2, 1.5, (5, 2))
    phase = rng.uniform(0.0, 2.0 * np.pi, (5, 2))
    sines = np.sin(2.0 * np.pi * frequency * time[:, None, None] + phase).sum(axis=1)
    return 0.9 * limit * sines / np.abs(sines).max(axis=0)


def simulate(model, ctrl: np.ndarray) -> np.ndarray:
    """States (qpos, qvel) from hanging at rest, shape (step + 1, 4); ctrl[k] acts from state k to state k + 1."""
    import mujoco

    data = mujoco.MjData(model)
    mujoco.mj_resetDataKeyframe(model, data, model.key("hanging").id)
    states = [np.concatenate([data.qpos, data.qvel])]
    for data.ctrl[:] in ctrl:
        mujoco.mj_step(model, data)
        states.append(np.concatenate([data.qpos, data.qvel]))
    return np.stack(states)


def record(model, seed: int) -> np.ndarray:
    """Rows of a recording, shape (step + 1, 7), columns as in HEADER; the last row's controls are not used."""
    rng = np.random.default_rng(seed)
    time = model.opt.timestep * np.arange(STEPS + 1)
    ctrl = np.round(excitation(rng, time, model.actuator_ctrlrange[:, 1]), 6)
    states = simulate(model, ctrl[:-1])
    measured = states + NOISE * states.std(axis=0) * rng.standard_normal(states.shape)
    return np.column_stack([time, ctrl, measured])


def true_puck():
    """The puck of our assets with another friction and restitution."""
    import mujoco

    spec = mujoco.MjSpec.from_file(str(HERE.parent / "puck.xml"))
    (pair,) = spec.pairs
    pair.friction[:2] = FRICTION
    pair.solref[1] = -CONTACT_DAMPING
    return spec.compile()


def record_puck(model, start: list[float], seed: int) -> np.ndarray:
    """Rows of a recording of a throw, shape (PUCK_ROWS + 1, 5), columns as in PUCK_HEADER."""
    import mujoco

    data = mujoco.MjData(model)
    data.qpos[:], data.qvel[:] = start[:2], start[2:]
    states = [np.array(start)]
    for _ in range(PUCK_ROWS):
        mujoco.mj_step(model, data, EVERY)
        states.append(np.concatenate([data.qpos, data.qvel]))
    states = np.stack(states)
    noise = NOISE * states.std(axis=0) * np.random.default_rng(seed).standard_normal(states.shape)
    return np.column_stack([model.opt.timestep * EVERY * np.arange(PUCK_ROWS + 1), states + noise])


def truth(model) -> dict:
    """The values to find, and the inertias [kg m^2] about each arm's centre that follow from the masses."""
    return {
        "body.mass": MASS,
        "body.inertia": {name: [round(float(x), 12) for x in model.body(name).inertia] for name in MASS},
        "dof.damping": DAMPING,
    }


if __name__ == "__main__":
    model = true_model()
    for name, seed in RECORDINGS.items():
        np.savetxt(HERE / f"{name}.csv", record(model, seed), fmt="%.8g", delimiter=",", header=HEADER, comments="")
    (HERE / "double-pendulum.truth.json").write_text(json.dumps(truth(model), indent=2) + "\n")

    puck = true_puck()
    for name, (start, seed) in THROWS.items():
        rows = record_puck(puck, start, seed)
        np.savetxt(HERE / f"{name}.csv", rows, fmt="%.8g", delimiter=",", header=PUCK_HEADER, comments="")
    found = {"pair.friction": {"puck-floor": FRICTION}, "pair.damping": {"puck-floor": CONTACT_DAMPING}}
    (HERE / "puck.truth.json").write_text(json.dumps(found, indent=2) + "\n")
