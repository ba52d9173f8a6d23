"""Rigid engines side by side: the same XML, the same states, the same random actions, in one run.

    python benchmarks/peers.py [FILTER] [--json FILE] [--worlds 64 1024] [--quick]

Every engine takes ten steps per call with its default solver settings. Before it is timed, its first step is compared
with MuJoCo's in float64, and the share of worlds in which the next ``qvel`` is within 1e-3 is printed: ours must reach
99 of 100, of the others at least every second world. Engines that are not installed are named and left out
(``pip install mujoco-warp==4.0.0``).
"""

import argparse
import functools
import importlib.util
import os
import sys
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from mujoco import rollout

import fphys
from fphys.bench import Case, Workload

STEPS = 10
SETTLE = 200  # steps from the initial pose to the states that are timed
ERROR = 1e-3  # of the next qvel, relative to its largest entry or to one
STATE = mujoco.mjtState.mjSTATE_FULLPHYSICS


class Problem(NamedTuple):
    """What every engine is given."""

    model: Any
    qpos: np.ndarray  # (world, nq)
    qvel: np.ndarray
    warmstart: np.ndarray
    ctrl: np.ndarray  # (world, step, nu)
    after: np.ndarray  # qvel after the first step, by MuJoCo in float64


def compiled(name: str, integrator: str) -> Any:
    spec = mujoco.MjSpec.from_file(str(Path(gymnasium.__file__).parent / "envs/mujoco/assets" / f"{name}.xml"))
    spec.option.solver = mujoco.mjtSolver.mjSOL_NEWTON  # the one that all engines have
    if integrator == "euler":
        spec.option.integrator = mujoco.mjtIntegrator.mjINT_EULER
    return spec.compile()


@functools.lru_cache(maxsize=2)
def problem(name: str, integrator: str, worlds: int) -> Problem:
    """States of worlds that random actions have moved, most of them on the ground."""
    model, rng = compiled(name, integrator), np.random.default_rng(0)
    low, high = model.actuator_ctrlrange.T
    ctrl = rng.uniform(low, high, (worlds, SETTLE + STEPS, model.nu))
    data = mujoco.MjData(model)
    mujoco.mj_resetData(model, data)
    first = np.empty(mujoco.mj_stateSize(model, STATE))
    mujoco.mj_getState(model, data, first, STATE)
    start, _ = rollout.rollout(
        model, [mujoco.MjData(model) for _ in range(threads())], np.tile(first, (worlds, 1)), ctrl[:, :SETTLE]
    )
    qpos, qvel = start[:, -1, 1 : 1 + model.nq], start[:, -1, 1 + model.nq : 1 + model.nq + model.nv]
    qpos, qvel, ctrl = (np.float64(np.float32(x)) for x in (qpos, qvel, ctrl[:, SETTLE:]))  # as float32 holds them
    after, _ = rollout.rollout(model, data, packed(model, qpos, qvel), ctrl[:, :1])
    return Problem(model, qpos, qvel, np.zeros_like(qvel), ctrl, after[:, 0, 1 + model.nq : 1 + model.nq + model.nv])


def packed(model: Any, qpos: np.ndarray, qvel: np.ndarray) -> np.ndarray:
    rest = mujoco.mj_stateSize(model, STATE) - 1 - model.nq - model.nv
    return np.concatenate([np.zeros((len(qpos), 1)), qpos, qvel, np.zeros((len(qpos), rest))], 1)


def threads() -> int:
    return int(os.environ.get("FPHYS_THREADS", 0)) or len(os.sched_getaffinity(0))


def close(engine: str, given: Problem, qvel: Any, share: float) -> None:
    """Raise unless the first step is MuJoCo's in this share of the worlds."""
    scale = np.maximum(1, np.abs(given.after).max(1))
    errors = np.abs(np.asarray(qvel, float) - given.after).max(1) / scale
    good = float((errors <= ERROR).mean())
    print(f"{engine}: one step within {ERROR:g} in {good:.1%} of the worlds, median {np.median(errors):.1e}")
    if not good >= share:
        raise ValueError(f"{engine}: the next qvel is MuJoCo's to {ERROR:g} in only {good:.1%} of the worlds")


def ours(name: str, integrator: str, worlds: int) -> Workload:
    given = problem(name, integrator, worlds)
    model = fphys.load(given.model)
    state = fphys.init(model, worlds, qpos=jnp.asarray(given.qpos), qvel=jnp.asarray(given.qvel))
    ctrls = jnp.asarray(given.ctrl.swapaxes(0, 1), state.qpos.dtype)

    def fn(model: Any, state: Any, ctrls: Any) -> Any:
        return fphys.scan(lambda s, u: (fphys.step(model, s, u), None), state, ctrls)[0]

    def validate(final: Any) -> None:
        fphys.check(final)
        close("fphys", given, jax.jit(fn)(model, state, ctrls[:1]).qvel, 0.99)

    return Workload(fn, (model, state, ctrls), validate)


def ours_gradient(name: str, integrator: str, worlds: int) -> Workload:
    forward = ours(name, integrator, worlds)

    def loss(model: Any, state: Any, ctrls: Any) -> Any:
        final = forward.fn(model, state, ctrls)
        return (final.qpos**2).sum() + (final.qvel**2).sum()

    def validate(grad: Any) -> None:
        if not bool(jnp.isfinite(grad).all()) or not bool((grad != 0).any()):
            raise ValueError("the gradient is not finite, or zero everywhere")

    return Workload(jax.grad(loss, argnums=2), forward.args, validate)


def c(name: str, integrator: str, worlds: int, count: int) -> Workload:
    """MuJoCo's own ``rollout``, with a pool of ``count`` threads."""
    given = problem(name, integrator, worlds)
    pool = rollout.Rollout(nthread=count)
    data = [mujoco.MjData(given.model) for _ in range(count)]
    start = packed(given.model, given.qpos, given.qvel)

    def fn(ctrl: np.ndarray) -> np.ndarray:
        return pool.rollout(given.model, data, start, ctrl)[0]

    def validate(states: np.ndarray) -> None:
        close("mujoco", given, states[:, 0, 1 + given.model.nq : 1 + given.model.nq + given.model.nv], 0.99)

    return Workload(fn, (given.ctrl,), validate, jit=False)


def mujoco_warp(name: str, integrator: str, worlds: int) -> Workload:
    import mujoco_warp as engine
    import warp as wp

    given = problem(name, integrator, worlds)
    data, contacts, rows = mujoco.MjData(given.model), 0, 0
    for qpos, qvel in zip(given.qpos[:256], given.qvel[:256], strict=True):
        data.qpos[:], data.qvel[:] = qpos, qvel
        mujoco.mj_forward(given.model, data)
        contacts, rows = max(contacts, data.ncon), max(rows, data.nefc)
    model = engine.put_model(given.model)
    mujoco.mj_resetData(given.model, data)
    state = engine.put_data(given.model, data, nworld=worlds, nconmax=2 * contacts, njmax=2 * rows)
    start = [wp.array(x, dtype=wp.float32) for x in (given.qpos, given.qvel, given.warmstart)]
    ctrl = [wp.array(np.ascontiguousarray(given.ctrl[:, i]), dtype=wp.float32) for i in range(STEPS)]

    def fn(controls: list[Any]) -> Any:
        for array, value in zip((state.qpos, state.qvel, state.qacc_warmstart), start, strict=True):
            wp.copy(array, value)
        for control in controls:
            wp.copy(state.ctrl, control)
            engine.step(model, state)
        wp.synchronize()
        return state.qvel

    def validate(_: Any) -> None:
        close("mujoco_warp", given, fn(ctrl[:1]).numpy(), 0.5)

    return Workload(fn, (ctrl,), validate, jit=False)


def cases(name: str, integrator: str) -> list[Case]:
    base, sizes = f"{name}.{integrator}", (64, 1024, 8192)

    def case(engine: str, setup: Any, relative_to: str | None = None) -> Case:
        setup = functools.partial(setup, name, integrator)
        return Case(f"{base}.{engine}", setup, STEPS, worlds=sizes, relative_to=relative_to, tags=(name, engine))

    found = [case("fphys", ours), case("fphys_grad", ours_gradient, f"{base}.fphys")]
    found += [
        case(f"mujoco_{n}_threads" if n > 1 else "mujoco_1_thread", functools.partial(c, count=n), f"{base}.fphys")
        for n in sorted({1, threads()})
    ]
    if importlib.util.find_spec("mujoco_warp"):
        found.append(case("mujoco_warp", mujoco_warp, f"{base}.fphys"))
    return found


CASES = [case for name in ("ant", "humanoid") for kind in ("euler", "shipped") for case in cases(name, kind)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("filter", nargs="?", help="part of a case's name, a glob, or a tag")
    parser.add_argument("--json", help="file that gets the results")
    parser.add_argument("--worlds", type=int, nargs="+", help="numbers of worlds")
    parser.add_argument("--quick", action="store_true", help="at most 64 worlds and few samples")
    given = parser.parse_args()
    if importlib.util.find_spec("mujoco_warp") is None:
        print("mujoco_warp is not installed and left out: pip install mujoco-warp==4.0.0", file=sys.stderr)
    return fphys.bench.main(given.filter, json_path=given.json, worlds=given.worlds, quick=given.quick, cases=CASES)


if __name__ == "__main__":
    sys.exit(main())
