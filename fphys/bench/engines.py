"""Other rigid engines compared with fphys: the same XML, states and random actions, ten steps per call.

Every engine uses its default solver settings. Before it is timed, its first step is compared with MuJoCo's in float64.
Its accuracy is the share of worlds whose next ``qvel`` is within 1e-3.
"""

import contextlib
import functools
import importlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..bridge.workers import num_threads
from ..model import check, init, load
from ..model.assets import asset
from ..rigid.step import step
from ..rollout import scan
from .case import Workload

STEPS = 10
SETTLE = 200  # steps from the initial pose to the states that are timed
MOST = 8192  # different worlds; more than these are copies
ERROR = 1e-3  # allowed for the next qvel, relative to its largest entry or to one
OURS = 0.99  # share of the worlds in which fphys, and MuJoCo itself, must be within ERROR


class Problem(NamedTuple):
    """What every engine gets."""

    model: Any
    qpos: np.ndarray  # (world, nq)
    qvel: np.ndarray
    ctrl: np.ndarray  # (world, step, nu)
    after: np.ndarray  # qvel after the first step, from MuJoCo in float64


def described(name: str, integrator: str) -> Any:
    """Gymnasium's model, or our arm, with the Newton solver, which all engines have."""
    mujoco = _mujoco()
    spec = mujoco.MjSpec.from_file(str(asset(name) if name == "franka" else _gymnasiums(name)))
    spec.option.solver = mujoco.mjtSolver.mjSOL_NEWTON
    if integrator == "euler":
        spec.option.integrator = mujoco.mjtIntegrator.mjINT_EULER
    return spec


def _gymnasiums(name: str) -> Path:
    gymnasium = importlib.import_module("gymnasium")
    return Path(str(gymnasium.__file__)).parent / "envs/mujoco/assets" / f"{name}.xml"


@functools.lru_cache(maxsize=8)
def problem(name: str, integrator: str, worlds: int) -> Problem:
    """States of worlds that random actions have moved, most of them on the ground."""
    if worlds > MOST:
        few = problem(name, integrator, MOST)
        again = np.arange(worlds) % MOST
        return few._replace(**{key: getattr(few, key)[again] for key in ("qpos", "qvel", "ctrl", "after")})
    mujoco, rollout = _mujoco(), importlib.import_module("mujoco.rollout")
    model, rng = described(name, integrator).compile(), np.random.default_rng(0)
    low, high = model.actuator_ctrlrange.T
    ctrl = rng.uniform(low, high, (worlds, SETTLE + STEPS, model.nu))
    data, kind = mujoco.MjData(model), mujoco.mjtState.mjSTATE_FULLPHYSICS
    mujoco.mj_resetData(model, data)
    first = np.empty(mujoco.mj_stateSize(model, kind))
    mujoco.mj_getState(model, data, first, kind)
    start, _ = rollout.rollout(
        model, [mujoco.MjData(model) for _ in range(num_threads())], np.tile(first, (worlds, 1)), ctrl[:, :SETTLE]
    )
    qpos, qvel = start[:, -1, 1 : 1 + model.nq], start[:, -1, 1 + model.nq : 1 + model.nq + model.nv]
    held = (x.astype(np.float32).astype(float) for x in (qpos, qvel, ctrl[:, SETTLE:]))  # rounded to float32
    qpos, qvel, ctrl = held
    after, _ = rollout.rollout(model, data, _packed(model, qpos, qvel), ctrl[:, :1])
    return Problem(model, qpos, qvel, ctrl, after[:, 0, 1 + model.nq : 1 + model.nq + model.nv])


def accuracy(given: Problem, qvel: Any, least: float = 0.0) -> float:
    """The share of worlds whose first step agrees with MuJoCo's. Raises ValueError if it is below ``least``."""
    scale = np.maximum(1, np.abs(given.after).max(1))
    errors = np.abs(np.asarray(qvel, float) - given.after).max(1) / scale
    good = float((errors <= ERROR).mean())
    if not good >= least:
        raise ValueError(f"the next qvel agrees with MuJoCo's to {ERROR:g} in only {good:.1%} of the worlds")
    return good


def ours(name: str, integrator: str, worlds: int) -> Workload:
    """fphys."""
    given = problem(name, integrator, worlds)
    model = load(given.model)
    state = init(model, worlds, qpos=jnp.asarray(given.qpos), qvel=jnp.asarray(given.qvel))
    ctrls = jnp.asarray(given.ctrl.swapaxes(0, 1), state.qpos.dtype)

    def fn(model: Any, state: Any, ctrls: Any) -> Any:
        return scan(lambda s, u: (step(model, s, u), None), state, ctrls)[0]

    def validate(final: Any) -> float:
        check(final)
        return accuracy(given, jax.jit(fn)(model, state, ctrls[:1]).qvel, OURS)

    return Workload(fn, (model, state, ctrls), validate)


def ours_gradient(name: str, integrator: str, worlds: int) -> Workload:
    """The gradient of the last state by all actions, including the forward pass. Other engines have none."""
    forward = ours(name, integrator, worlds)

    def loss(model: Any, state: Any, ctrls: Any) -> Any:
        final = forward.fn(model, state, ctrls)
        return (final.qpos**2).sum() + (final.qvel**2).sum()

    def validate(grad: Any) -> None:
        if not bool(jnp.isfinite(grad).all()) or not bool((grad != 0).any()):
            raise ValueError("the gradient is not finite, or zero everywhere")

    return Workload(jax.grad(loss, argnums=2), forward.args, validate)


def mujoco_c(name: str, integrator: str, worlds: int, count: int) -> Workload:
    """MuJoCo's own ``rollout`` with a pool of ``count`` threads."""
    mujoco, rollout = _mujoco(), importlib.import_module("mujoco.rollout")
    given = problem(name, integrator, worlds)
    pool = rollout.Rollout(nthread=count)
    data = [mujoco.MjData(given.model) for _ in range(count)]
    start = _packed(given.model, given.qpos, given.qvel)

    def fn(ctrl: np.ndarray) -> np.ndarray:
        return pool.rollout(given.model, data, start, ctrl)[0]

    def validate(states: np.ndarray) -> float:
        return accuracy(given, states[:, 0, 1 + given.model.nq : 1 + given.model.nq + given.model.nv], OURS)

    return Workload(fn, (given.ctrl,), validate, jit=False)


def sensor_readings(m: Any, qpos: np.ndarray) -> np.ndarray:
    """What MuJoCo's sensors of positions read, world by world on one core."""
    mujoco = _mujoco()
    d, found = mujoco.MjData(m), []
    for row in qpos:
        d.qpos[:] = row
        mujoco.mj_kinematics(m, d)
        mujoco.mj_sensorPos(m, d)
        found.append(d.sensordata.copy())
    return np.array(found)


def mujoco_warp(name: str, integrator: str, worlds: int) -> Workload:
    """MuJoCo Warp."""
    mujoco, engine, wp = _mujoco(), importlib.import_module("mujoco_warp"), importlib.import_module("warp")
    given = problem(name, integrator, worlds)
    model = engine.put_model(given.model)
    state = engine.put_data(given.model, mujoco.MjData(given.model), nworld=worlds, **_room(given))
    start = [wp.array(x, dtype=wp.float32) for x in (given.qpos, given.qvel, np.zeros_like(given.qvel))]
    ctrl = [wp.array(np.ascontiguousarray(given.ctrl[:, i]), dtype=wp.float32) for i in range(STEPS)]

    advance = functools.partial(engine.step, model, state)
    if wp.get_device().is_cuda:  # as its users run it: recorded once, then replayed without Python
        advance()
        with wp.ScopedCapture() as capture:
            engine.step(model, state)
        advance = functools.partial(wp.capture_launch, capture.graph)

    def fn(controls: list[Any]) -> Any:
        for array, value in zip((state.qpos, state.qvel, state.qacc_warmstart), start, strict=True):
            wp.copy(array, value)
        for control in controls:
            wp.copy(state.ctrl, control)
            advance()
        wp.synchronize()
        return state.qvel

    return Workload(fn, (ctrl,), lambda _: accuracy(given, fn(ctrl[:1]).numpy()), jit=False)


def newton(name: str, integrator: str, worlds: int) -> Workload:
    """Newton with its solver based on MuJoCo Warp. Newton's own reader reads the XML."""
    engine, wp = importlib.import_module("newton"), importlib.import_module("warp")
    given, solver_of = problem(name, integrator, worlds), engine.solvers.SolverMuJoCo
    robot, whole = engine.ModelBuilder(), engine.ModelBuilder()
    for builder in (robot, whole):
        solver_of.register_custom_attributes(builder)
    with _xml(name, integrator) as path:
        robot.add_mjcf(path)
    whole.replicate(robot, worlds)
    model = whole.finalize(device="cuda" if jax.default_backend() == "gpu" else "cpu")
    scheme = {0: "euler", 1: "rk4", 3: "implicitfast"}[int(given.model.opt.integrator)]
    solver = solver_of(model, integrator=scheme, **_room(given))
    data, step = solver.mjw_data, float(given.model.opt.timestep)
    start, control = model.state(), model.control()
    for array, value in ((data.qpos, given.qpos), (data.qvel, given.qvel)):
        array.assign(value.astype(np.float32))
    solver._update_newton_state(model, start, data, start)
    states = [model.state(), model.state()]
    ctrl = [wp.array(given.ctrl[:, i].ravel().astype(np.float32), device=model.device) for i in range(STEPS)]

    def fn(controls: list[Any]) -> Any:
        data.qacc_warmstart.zero_()
        states[0].assign(start)
        for now in controls:
            wp.copy(control.mujoco.ctrl, now)
            solver.step(*states, control, None, step)
            states.reverse()
        wp.synchronize()
        return data.qvel

    return Workload(fn, (ctrl,), lambda _: accuracy(given, fn(ctrl[:1]).numpy()), jit=False)


def mjx(name: str, integrator: str, worlds: int) -> Workload:
    """MJX, MuJoCo's own port to JAX."""
    engine, given = importlib.import_module("mujoco.mjx"), problem(name, integrator, worlds)
    model, blank = engine.put_model(given.model), engine.make_data(given.model)
    real = blank.qpos.dtype
    qpos, qvel = jnp.asarray(given.qpos, real), jnp.asarray(given.qvel, real)
    ctrls = jnp.asarray(given.ctrl.swapaxes(0, 1), real)
    advance = jax.vmap(engine.step, in_axes=(None, 0))

    def fn(model: Any, qpos: Any, qvel: Any, ctrls: Any) -> Any:
        start = jax.vmap(lambda q, v: blank.replace(qpos=q, qvel=v))(qpos, qvel)
        one = lambda data, ctrl: (advance(model, data.replace(ctrl=ctrl)), None)  # noqa: E731
        return jax.lax.scan(one, start, ctrls)[0].qvel

    def validate(_: Any) -> float:
        return accuracy(given, jax.jit(fn)(model, qpos, qvel, ctrls[:1]))

    return Workload(fn, (model, qpos, qvel, ctrls), validate)


def gymnasium(name: str, integrator: str, worlds: int) -> Workload:
    """One Gymnasium environment for all worlds in turn, without frame skip but with observations and rewards."""
    library, given = importlib.import_module("gymnasium"), problem(name, integrator, worlds)
    env: Any = library.make(f"{name.capitalize()}-v5", frame_skip=1, max_episode_steps=STEPS + 1).unwrapped
    env.model.opt.integrator, env.model.opt.solver = given.model.opt.integrator, given.model.opt.solver

    def fn(ctrl: np.ndarray) -> np.ndarray:
        found = np.empty_like(given.qvel)
        for world in range(worlds):
            env.set_state(given.qpos[world], given.qvel[world])
            env.data.qacc_warmstart[:] = 0
            for action in ctrl[world]:
                env.step(action)
            found[world] = env.data.qvel
        return found

    return Workload(fn, (given.ctrl,), lambda _: accuracy(given, fn(given.ctrl[:, :1])), jit=False)


def genesis(name: str, integrator: str, worlds: int) -> Workload:
    """Genesis reads the same XML, but has its own integrator and contacts. Motors become forces on joints."""
    gs: Any = importlib.import_module("genesis")
    given = problem(name, integrator, worlds)
    if not getattr(gs, "_initialized", False):
        gs.init(backend=gs.gpu if jax.default_backend() == "gpu" else gs.cpu, logging_level="error")
    scene = gs.Scene(sim_options=gs.options.SimOptions(dt=given.model.opt.timestep), show_viewer=False)
    with _xml(name, integrator) as path:
        robot = scene.add_entity(gs.morphs.MJCF(file=path, default_armature=None))
        scene.build(n_envs=worlds)
    joints = given.model.actuator_trnid[:, 0]
    dofs = [robot.get_joint(given.model.joint(int(j)).name).dofs_idx_local[0] for j in joints]
    forces = (given.ctrl * given.model.actuator_gear[:, 0]).astype(np.float32)
    order = [int(i) for j in robot.joints for i in j.dofs_idx_local]

    def fn(forces: np.ndarray) -> Any:
        robot.set_qpos(given.qpos)
        robot.set_dofs_velocity(given.qvel)
        for i in range(forces.shape[1]):
            robot.control_dofs_force(forces[:, i], dofs)
            scene.step()
        return robot.get_dofs_velocity()

    def validate(_: Any) -> float:
        if order != sorted(order):
            raise ValueError("Genesis orders the degrees of freedom differently")
        return accuracy(given, fn(forces[:, :1]).cpu().numpy())

    return Workload(fn, (forces,), validate, jit=False)


def _room(given: Problem) -> dict[str, int]:
    """How many contacts and rows per world an engine allocates: twice as many as the first worlds have."""
    mujoco = _mujoco()
    data, contacts, rows = mujoco.MjData(given.model), 0, 0
    for qpos, qvel in zip(given.qpos[:256], given.qvel[:256], strict=True):
        data.qpos[:], data.qvel[:] = qpos, qvel
        mujoco.mj_forward(given.model, data)
        contacts, rows = max(contacts, data.ncon), max(rows, data.nefc)
    return {"nconmax": 2 * contacts, "njmax": 2 * rows}


@contextlib.contextmanager
def _xml(name: str, integrator: str) -> Iterator[str]:
    """The model as a file."""
    spec = described(name, integrator)
    spec.compile()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.xml"
        path.write_text(spec.to_xml())
        yield str(path)


def _packed(model: Any, qpos: np.ndarray, qvel: np.ndarray) -> np.ndarray:
    """MuJoCo's full states: time, positions, velocities, and zeros."""
    mujoco = _mujoco()
    rest = mujoco.mj_stateSize(model, mujoco.mjtState.mjSTATE_FULLPHYSICS) - 1 - model.nq - model.nv
    return np.concatenate([np.zeros((len(qpos), 1)), qpos, qvel, np.zeros((len(qpos), rest))], 1)


def _mujoco() -> Any:
    return importlib.import_module("mujoco")
