"""Environments as benchmark cases: steps under random actions, beside the bare physics and other libraries.

All take the same task, in the versions that each library has, and as many worlds. Ours start from states that random
actions have led to. The libraries keep the states of the calls before.
"""

import functools
import importlib
import importlib.util
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .. import envs
from ..bridge.workers import num_threads
from ..envs.vector import FphysVectorEnv
from ..rigid.step import step
from ..rigid.tree.kinematics import kinematics
from .case import Case, Workload

Array = jax.Array

TASKS = {"ant": "Ant-v5", "cheetah": "HalfCheetah-v5", "humanoid": "Humanoid-v5"}
SIZES = (1, 64, 1024, 4096)
STEPS = 20  # environment steps per call
SETTLE = 60  # environment steps before those that are timed


def environment_cases() -> list[Case]:
    """Each task as a pure function and as a vector environment, relative to the steps of its physics alone."""
    return [case for task in TASKS for case in _ours(task)]


def environment_peers() -> list[Case]:
    """The same, and the installed libraries relative to the vector environment."""
    kinds: dict[str, tuple[str, Callable[..., Workload], tuple[int, ...]]] = {
        "sync": ("gymnasium", functools.partial(gymnasium, mode="sync"), (1, 64)),
        "async": ("gymnasium", functools.partial(gymnasium, mode="async"), (1, 64)),  # a process for each world
        "envpool": ("envpool", envpool, SIZES),
        "brax": ("brax", brax, (64,)),
    }
    found = environment_cases()
    for task in TASKS:
        for name, (package, setup, sizes) in kinds.items():
            if importlib.util.find_spec(package) is not None:
                work = functools.partial(setup, task)
                beside = f"env.{task}.vector"
                found.append(Case(f"env.{task}.{name}", work, STEPS, "steps", sizes, beside, tags=("env", task, name)))
    return found


def _ours(task: str) -> list[Case]:
    name, tags = f"env.{task}", ("env", task)
    return [
        Case(f"{name}.bare", functools.partial(bare, task), STEPS, worlds=SIZES, tags=tags),
        Case(f"{name}.pure", functools.partial(pure, task), STEPS, "steps", SIZES, f"{name}.bare", 1 / 0.9, tags),
        Case(f"{name}.vector", functools.partial(vector, task), STEPS, "steps", SIZES, f"{name}.bare", tags=tags),
        Case(f"{name}.joints", functools.partial(joints, task), 1, "worlds", SIZES[-1:], tags=tags),
        Case(f"{name}.links", functools.partial(links, task), 1, "worlds", SIZES[-1:], tags=tags),
    ]


@functools.lru_cache(maxsize=1)
def problem(task: str, worlds: int) -> tuple[envs.Env, envs.EnvState, Array]:
    """The environment, states of it, and actions (step, world, action)."""
    env = envs.make(TASKS[task], worlds, dtype=jnp.float32)

    def play(state: envs.EnvState, key: Array) -> tuple[envs.EnvState, Array]:
        action = random_action(env, key)
        return env.step(state, action)[0], action

    settled = jax.jit(lambda s, key: jax.lax.scan(play, s, jax.random.split(key, SETTLE)))
    state, actions = settled(jax.jit(env.reset)(jax.random.key(0))[0], jax.random.key(1))
    return env, state, actions[:STEPS]


def random_action(env: envs.Env, key: Array) -> Array:
    spec = env.action_spec
    return jax.random.uniform(key, (env.num_envs, *spec.shape), spec.dtype, spec.low, spec.high)


def bare(task: str, worlds: int) -> Workload:
    """The physics alone: ``frame_skip`` steps for each action."""
    env, state, actions = problem(task, worlds)

    def fn(model: Any, physics: Any, actions: Array) -> Any:
        def act(physics: Any, action: Array) -> tuple[Any, None]:
            return jax.lax.scan(lambda s, _: (step(model, s, action), None), physics, None, env.frame_skip)[0], None

        return jax.lax.scan(act, physics, actions)[0]

    return Workload(fn, (env.model, state.physics, actions), lambda after: _sound(after.qpos, after.status == 0))


def pure(task: str, worlds: int) -> Workload:
    """``env.step`` in a compiled loop."""
    env, state, actions = problem(task, worlds)

    def fn(env: Any, state: Any, actions: Array) -> Any:
        def act(state: Any, action: Array) -> tuple[Any, tuple[Array, Array]]:
            state, observation, reward, *_ = env.step(state, action)
            return state, (observation, reward)

        return jax.lax.scan(act, state, actions)

    def validate(found: Any) -> None:
        after, (observation, reward) = found
        _sound(np.append(observation, reward), after.faults == 0)

    return Workload(fn, (env, state, actions), validate)


def vector(task: str, worlds: int) -> Workload:
    """Gymnasium's vector interface."""
    env, _, actions = problem(task, worlds)
    return _stepped(FphysVectorEnv(env), np.asarray(actions))


def joints(task: str, worlds: int) -> Workload:
    """Observing the joints: positions and velocities as one array."""
    _, state, _ = problem(task, worlds)
    wanted = np.concatenate([state.qpos, state.qvel], 1)
    return Workload(
        lambda s: jnp.concatenate([s.qpos, s.qvel], 1), (state.physics,), lambda x: _sound(x, np.array_equal(x, wanted))
    )


def links(task: str, worlds: int) -> Workload:
    """Observing the links: position and quaternion of every body."""
    env, state, _ = problem(task, worlds)

    def fn(model: Any, physics: Any) -> tuple[Array, Array]:
        body = kinematics(model, physics).body
        return body.pos, body.quat

    def validate(found: tuple[Array, Array]) -> None:
        _sound(found[0], np.allclose((found[1] ** 2).sum(-1), 1, atol=1e-5))

    return Workload(fn, (env.model, state.physics), validate)


def gymnasium(task: str, worlds: int, mode: str) -> Workload:
    """Gymnasium's own worlds, one after another or in a process each."""
    library = importlib.import_module("gymnasium")
    make = functools.partial(library.make, TASKS[task])
    kinds, options = library.vector, {"context": "forkserver"} if mode == "async" else {}
    kind = kinds.AsyncVectorEnv if mode == "async" else kinds.SyncVectorEnv
    return _stepped(kind([make] * worlds, **options), _actions(task, worlds))


def envpool(task: str, worlds: int) -> Workload:
    """EnvPool, on as many threads as fphys."""
    made = importlib.import_module("envpool").make_gymnasium(TASKS[task], num_envs=worlds, num_threads=num_threads())
    return _stepped(made, _actions(task, worlds).astype(made.action_space.dtype))


def brax(task: str, worlds: int) -> Workload:
    """Brax's task on its back end MJX. Its physics takes other steps and other frame skips."""
    env = importlib.import_module("brax.envs").create(
        {"cheetah": "halfcheetah"}.get(task, task), batch_size=worlds, backend="mjx", auto_reset=True
    )
    state = jax.jit(env.reset)(jax.random.key(0))
    actions = jax.random.uniform(jax.random.key(1), (STEPS, worlds, env.action_size), minval=-1.0, maxval=1.0)

    def fn(state: Any, actions: Array) -> Any:
        return jax.lax.scan(lambda s, a: (env.step(s, a), None), state, actions)[0]

    return Workload(fn, (state, actions), lambda after: _sound(after.obs))


def _actions(task: str, worlds: int) -> np.ndarray:
    return np.asarray(problem(task, worlds)[2])


def _stepped(env: Any, actions: np.ndarray) -> Workload:
    env.reset(seed=0) if isinstance(env, FphysVectorEnv) else env.reset()

    def fn(actions: np.ndarray) -> Any:
        for action in actions:
            found = env.step(action)
        return found

    for _ in range(SETTLE // STEPS):
        fn(actions)
    return Workload(fn, (actions,), lambda found: _sound(np.append(found[0], found[1])), jit=False)


def _sound(values: Any, good: Any = True) -> None:
    if not (np.isfinite(values).all() and np.all(good)):
        raise ValueError("observations or rewards are not finite, or a world has a fault")
