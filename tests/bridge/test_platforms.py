"""The platform that a program is lowered for decides what is launched, not the devices of the process."""

import os
import re
import subprocess
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import warp as wp

import fphys
from fphys.bridge import op as bridge
from fphys.bridge import warp_op


@wp.kernel
def cubes(lanes: int, x: wp.array2d(dtype=wp.float64), y_out: wp.array2d(dtype=wp.float64)):
    world, lane = wp.tid()
    for i in range(lane, x.shape[1], lanes):
        y_out[world, i] = x[world, i] * x[world, i] * x[world, i]


def cube(launch: Any, x: Any, y: Any) -> None:
    lanes = 1 if launch.platform == "cpu" else x.shape[1]
    launch(cubes, dim=(launch.worlds, lanes), inputs=[lanes, x], outputs=[y])


def numbers(text: str) -> set[str]:
    """The numbers of the plans that a module names."""
    return set(re.findall(r"plan = (-?\d+)", text))


@pytest.fixture
def with_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process with a GPU."""
    monkeypatch.setattr(bridge, "_platforms", lambda: ("cpu", "cuda"))


def test_each_platform_has_its_own_plan(with_gpu: None):
    operation = warp_op(cube, lambda x: x)
    x = jnp.arange(15.0).reshape(3, 5)
    step = jax.jit(lambda x: jax.vjp(operation, x)[1](x)[0])
    np.testing.assert_array_equal(step(x), 3 * x**3)
    np.testing.assert_array_equal(jax.vmap(step)(jnp.stack([x, 2 * x])), 3 * jnp.stack([x, 2 * x]) ** 3)
    assert operation(x).shape == x.shape, "outside jit, too"
    traced = jax.jit(operation).trace(x)
    cpu, cuda, both = (
        numbers(traced.lower(lowering_platforms=p).as_text()) for p in (("cpu",), ("cuda",), ("cpu", "cuda"))
    )
    assert len(cpu) == len(cuda) == 1 and cpu != cuda and both == cpu | cuda


def test_platforms_may_use_different_inputs(with_gpu: None):
    """An input that only the other platform reads is still passed, and its gradient here is zero."""

    def either(launch: Any, z: Any, x: Any, y: Any) -> None:
        lanes = 1 if launch.platform == "cpu" else z.shape[1]
        launch(cubes, dim=(launch.worlds, lanes), inputs=[lanes, x if launch.platform == "cpu" else z], outputs=[y])

    operation = warp_op(either, lambda z, x: x)
    x = jnp.arange(15.0).reshape(3, 5)
    np.testing.assert_array_equal(jax.jit(operation)(x + 100, x), x**3)
    by_z, by_x = jax.jit(jax.grad(lambda z, x: operation(z, x).sum(), argnums=(0, 1)))(x + 100, x)
    np.testing.assert_array_equal(by_z, 0 * x)
    np.testing.assert_array_equal(by_x, 3 * x**2)


def test_a_call_outside_jit_compiles_once(with_gpu: None, caplog: pytest.LogCaptureFixture):
    operation, x = warp_op(cube, lambda x: x), jnp.arange(15.0).reshape(3, 5)
    operation(x)
    with jax.log_compiles(True):
        operation(x + 1)
        assert "Compiling jit(by_platform)" not in caplog.text and "Compiling jit(cond" not in caplog.text


def test_shared_inputs_have_one_gradient(with_gpu: None):
    """How many rows a plan adds up is internal: a shared input's gradient has one row on each platform."""
    operation = warp_op(cube, lambda x: jax.ShapeDtypeStruct((4, 5), x.dtype))
    shared = jnp.arange(5.0)[None]
    gradient = jax.jit(jax.grad(lambda x: operation(x).sum()))(shared)
    np.testing.assert_array_equal(gradient, 12 * shared**2)


def test_a_step_on_the_processor_beside_a_gpu(with_gpu: None):
    """The ant's step and gradient have the same bits as in a process without a GPU."""
    model = fphys.load(fphys.asset("ant"))
    state, ctrl = fphys.init(model, 3), jnp.full((3, 8), 0.3)

    def loss(state: Any) -> Any:
        return jnp.sum(fphys.step(model, state, ctrl).qvel ** 2)

    def found() -> Any:
        value, gradient = jax.jit(jax.value_and_grad(loss, allow_int=True))(state)
        return value, gradient.qpos, gradient.qvel

    beside = found()
    bridge._platforms = lambda: ("cpu",)
    jax.clear_caches()
    for a, b in zip(found(), beside, strict=True):
        np.testing.assert_array_equal(a, b)


ORDER = """
import sys
import jax, numpy as np
import fphys

from tests.faults.test_leak_faults import rigid, solid
events, texts, ends, hits = [], {}, {}, []
jax.monitoring.register_event_listener(lambda event, **_: events.append(event))
for made in sys.argv[1].split():
    step, params, state = globals()[made]()
    program = jax.jit(step).lower(params, state)
    events.clear()
    run = program.compile()
    hits.append(events.count("/jax/compilation_cache/cache_hits"))
    texts[made] = program.as_text()
    ends[made] = b"".join(np.asarray(x).tobytes() for x in jax.tree.leaves(run(params, state)))
print(hash(tuple(sorted(texts.items()))), hash(tuple(sorted(ends.items()))), *hits)
"""


def test_program_names_depend_on_their_content(tmp_path):
    """Two processes that trace in a different order emit the same modules.

    The second takes from JAX's cache what the first compiled, and finds the same bits.
    """
    kept = {"JAX_COMPILATION_CACHE_DIR": str(tmp_path), "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    env = {**os.environ, "PYTHONHASHSEED": "0", **kept}
    commands = [[sys.executable, "-c", ORDER, order] for order in ("rigid solid", "solid rigid")]
    found = [subprocess.run(c, capture_output=True, text=True, env=env, timeout=300, check=True) for c in commands]
    (*compiled, none, nothing), (*read, one, other) = (child.stdout.split() for child in found)
    assert compiled == read and (none, nothing, one, other) == ("0", "0", "1", "1")
