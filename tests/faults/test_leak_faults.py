"""Fault 41: memory, plans and modules do not grow with steps, shapes or models."""

import ctypes
import gc
import weakref
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import warp as wp

import fphys
from fphys import envs
from fphys.bridge import ffi
from fphys.bridge.op import MOST_RECORDS, MOST_TRACES
from fphys.envs.vector import FphysVectorEnv
from fphys.particles import mpm, sph
from fphys.rigid.forces import actuation, adhesion, armature, tendon
from fphys.rigid.tree import articulated, topology

from ..memory import resident
from ..particles.sph_scenes import lattice, pool

pytestmark = pytest.mark.usefixtures("compiled_anew", "old_objects_stay")


class Mallinfo(ctypes.Structure):
    """glibc's ``struct mallinfo2``."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()
    ]


def outside_the_heap() -> int:
    """Resident memory outside the heap and files [bytes]: threads' arenas, Python's arenas, compiled code."""
    total, counts = 0, False
    with open("/proc/self/smaps") as file:
        for line in file:
            first, *rest = line.split()
            if not first.endswith(":"):
                counts = len(rest) < 5
            elif counts and first == "Rss:":
                total += 1024 * int(rest[0])
    return total


def allocated() -> int:
    """Memory that the process has allocated and not freed, in the heap and outside [bytes].

    Resident memory is less reliable: it includes gaps between used blocks, and compiling leaves many of them. JAX
    alone grows by 22 kB for each new shape that it compiles and forgets, without holding more blocks than before.
    """
    ask = ctypes.CDLL("libc.so.6").mallinfo2
    ask.restype = Mallinfo
    info = ask()
    return info.uordblks + outside_the_heap()


def leaks(run: Any, calls: int, most: float) -> bool:
    """Whether memory grows by more than ``most`` [bytes] per call: the median of six blocks of that many calls.

    Threads' arenas grow and shrink by steps. In two of the blocks these change nothing; a leak raises all six.
    """
    at = [held()]
    for _ in range(6):
        for _ in range(calls):
            run()
            after = held()
        at.append(after)
    return float(np.median(np.diff(at))) > most * calls


def held() -> int:
    """What is allocated once all that nobody needs is freed [bytes]."""
    jax.clear_caches()
    gc.collect()
    ffi.plans().sweep()
    return allocated()


def plans_held() -> int:
    """Number of plans that are kept once those that nobody can call are freed."""
    jax.clear_caches()
    gc.collect()
    ffi.plans().sweep()
    return len(ffi.plans().held)


def test_a_leak_is_found_and_steps_are_none():
    """400 kB a call are a leak, also if 20 MB are given back meanwhile; 20 MB that are taken once are none."""
    kept, large = [], [np.ones(2_500_000)]

    def leak() -> None:
        kept.append(np.ones(50_000))
        if len(kept) == 4:
            large.clear()

    assert leaks(leak, 1, 300e3)
    kept.clear()
    assert not leaks(lambda: np.ones(50_000), 1, 300e3)
    numbers = iter(range(6))
    assert not leaks(lambda: large.append(np.ones(2_500_000)) if next(numbers) in (2, 4) else None, 1, 300e3)


# Steps


def solid() -> tuple[Any, Any, Any]:
    params = mpm.Params(mpm.Corotated(1000.0, 1e4, 0.3), 2e-3, (0.0, -9.81), cell=1 / 16, shape=(8, 8))
    return mpm.step, params, mpm.init(params, lattice([0.1, 0.1], [0.3, 0.3], 1 / 32)[None].astype("float32"))


def fluid() -> tuple[Any, Any, Any]:
    return sph.step, *pool("float32", worlds=1)


def rigid() -> tuple[Any, Any, Any]:
    model = fphys.load(fphys.asset("ant"), dtype="float32")
    step = lambda model, state: fphys.step(model, state, jnp.zeros((1, 8), jnp.float32))  # noqa: E731
    return step, model, fphys.init(model, 1)


@pytest.mark.slow
@pytest.mark.parametrize("made", [solid, fluid, rigid])
def test_a_hundred_thousand_steps(made: Any):
    """In calls of ten thousand steps, and of one. Allocations of the first calls do not count."""
    step, params, state = made()
    one = jax.jit(step)
    many = jax.jit(lambda s: jax.lax.fori_loop(0, 10_000, lambda _, s: step(params, s), s))
    for _ in range(2000):
        state = one(params, state)
    state = jax.block_until_ready(many(state))
    before = resident()
    for _ in range(8):
        state = many(state)
    for _ in range(10_000):
        state = one(params, state)
    jax.block_until_ready(state)
    assert resident() - before < 8e6
    assert all(bool(jnp.isfinite(x).all()) for x in jax.tree.leaves(state)) and not np.asarray(state.status).any()


@pytest.mark.slow
def test_a_hundred_thousand_environment_steps():
    """In calls of ten thousand steps, and of one through Gymnasium's interface. Hoppers fall and start anew."""
    vector = FphysVectorEnv(envs.make("Hopper-v5", 2, dtype=jnp.float32))
    env, actions = vector.env, jax.random.uniform(jax.random.key(0), (10_000, 2, 3), jnp.float32, -1, 1)
    many = jax.jit(lambda s: jax.lax.scan(lambda s, a: (env.step(s, a)[0], None), s, actions)[0])
    state = jax.block_until_ready(many(jax.jit(env.reset)(jax.random.key(1))[0]))
    vector.reset(seed=0)
    acts = np.asarray(actions)
    for action in acts[:2000]:
        vector.step(action)
    before = resident()
    for _ in range(8):
        state = many(state)
    for action in acts:
        vector.step(action)
    assert resident() - before < 8e6
    assert (state.episode > 1000).all() and not np.asarray(state.faults).any()
    assert all(np.isfinite(x).all() for x in (state.qpos, state.qvel, state.total))


# Shapes and models


@wp.kernel
def cube(x: wp.array2d(dtype=wp.float32), y_out: wp.array2d(dtype=wp.float32)):
    world, i = wp.tid()
    y_out[world, i] = x[world, i] * x[world, i] * x[world, i]


def test_two_thousand_shapes(full: bool):
    """Plans are freed when no trace or compiled program needs their shapes any more."""
    operation = fphys.bridge.warp_op(
        lambda launch, x, y: launch(cube, dim=x.shape, inputs=[x], outputs=[y]), outputs=lambda x: x
    )
    gradient = jax.jit(jax.grad(lambda x: operation(x).sum()))
    size = 0

    def some_shapes() -> None:
        nonlocal size
        for _ in range(100 if full else 20):
            size += 1
            x = np.full((1, size), 2.0, np.float32)  # made and read by no program of its own
            assert np.asarray(gradient(x))[0, -1] == 12.0

    for _ in range(2):
        some_shapes()
    before = plans_held()
    assert not leaks(some_shapes, 3 if full else 1, (100 if full else 20) * 10e3)
    assert plans_held() <= before


def test_many_models(full: bool):
    """Models are loaded, jitted and forgotten. Each has other joints, and therefore its own plans."""
    count = 0

    def a_model() -> None:
        nonlocal count
        count += 1
        kinds = ["slide" if count >> i & 1 else "hinge" for i in range(10)]
        links = "".join(f"<body><joint type='{kind}'/><geom size='.05'/></body>" for kind in kinds)
        model = fphys.load(f"<mujoco><worldbody>{links}</worldbody></mujoco>", disable=("contact",))
        state = fphys.init(model, 1)
        after = jax.jit(lambda state: fphys.step(model, state))(state)
        assert not after.status.any()

    for _ in range((MOST_TRACES if full else MOST_RECORDS) + 1):  # an operation keeps this many traces or plans
        a_model()
    before = plans_held()
    assert not leaks(a_model, 84 if full else 2, 10e3 if full else 300e3)
    assert plans_held() <= before


def test_what_is_remembered_of_a_structure_goes_with_it():
    """A structure keeps its compiled model, with meshes and textures. Nothing but its users keeps the structure."""
    structure = fphys.load(fphys.asset("double-pendulum")).structure
    remembered = [actuation.moments, actuation.site_actuators, actuation.turning, adhesion.adhesions, armature.heavy]
    remembered += [articulated.body_dofs, topology.ancestry, tendon.segments, tendon.pattern]
    assert all(ask(structure) is ask(structure) for ask in remembered)
    kept = weakref.ref(structure)
    del structure
    gc.collect()
    assert kept() is None


@pytest.mark.slow
def test_a_thousand_rebuilds():
    """Of the same model's program: neither memory nor the number of Warp's modules grows."""
    model = fphys.load(fphys.asset("double-pendulum"))
    state, ctrl = fphys.init(model, 2), jnp.zeros((2, 2))

    def rebuilt() -> None:
        jax.clear_caches()
        fphys.step(model, state, ctrl).qpos.block_until_ready()

    for _ in range(10):
        rebuilt()
    modules = len(wp._src.context.user_modules)
    assert not leaks(rebuilt, 167, 10e3)
    assert len(wp._src.context.user_modules) == modules
