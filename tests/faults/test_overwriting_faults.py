"""Fault 22: Warp's own check for arrays overwritten on a differentiated path, applied to our gradients."""

import os
import re
import subprocess
import sys

import pytest

CHECKED = """
import sys
import jax
import jax.numpy as jnp
import numpy as np
import warp as wp

import fphys
from fphys.bridge import op, record, start

wp.config.verify_autograd_array_access = True
start.start_warp()

@wp.kernel
def square(x: wp.array2d(dtype=float), y_out: wp.array2d(dtype=float)):
    world, i = wp.tid()
    y_out[world, i] = x[world, i] * x[world, i]

@wp.kernel
def square_in_place(x: wp.array2d(dtype=float)):
    world, i = wp.tid()
    y = x[world, i]
    x[world, i] = y * y

def eighth_power(*ways):
    \"\"\"By overwriting: in one array, or there and back between two.\"\"\"
    x, y = (wp.ones((2, 3), dtype=float, requires_grad=True) for _ in range(2))
    with wp.Tape():
        if "one array" in ways:
            for _ in range(3):
                wp.launch(square_in_place, dim=x.shape, inputs=[x])
        else:
            for source, target in ((x, y), (y, x), (x, y)):
                wp.launch(square, dim=x.shape, inputs=[source], outputs=[target])

def array(arg, buffer):
    shape = buffer.shape[:arg.type.ndim]
    return wp.zeros(shape, dtype=arg.type.dtype, device="cpu", requires_grad=buffer.dtype.kind == "f")

def replay(launches):
    \"\"\"What the bridge recorded, launched on a tape, where Warp compares what each launch reads and writes.\"\"\"
    arrays = {}
    with wp.Tape():
        for launch in launches:
            args = []
            for arg, value in zip(launch.kernel.adj.args, launch.args, strict=True):
                if isinstance(value, record.Buffer):
                    value = arrays.setdefault(value, array(arg, value))
                elif isinstance(value, record.Constant):
                    value = wp.array(value.value, dtype=arg.type.dtype, device="cpu")
                args.append(value)
            wp.launch(launch.kernel, dim=launch.dim, inputs=args, device="cpu")

def rollout(asset):
    records = []

    def keep(plan):
        def planned(record, *args):
            records.append(record)
            return plan(record, *args)
        return planned

    op.plan_forward, op.plan_backward = keep(op.plan_forward), keep(op.plan_backward)
    model = fphys.load(fphys.asset(asset), disable=("contact", "limit", "equality", "frictionloss"))
    state = fphys.init(model, 2)
    ctrls = jnp.full((3, 2, model.structure.nu), 0.1)
    grad = jax.jit(jax.grad(lambda c: jnp.sum(fphys.rollout(model, state, c).qpos[-1] ** 2)))(ctrls)
    assert np.isfinite(grad).all() and np.any(grad != 0)
    for found in records:
        replay(found.launches)
    print("launches", sum(len(found.launches) for found in records))

eighth_power(*sys.argv[2:]) if sys.argv[1] == "eighth_power" else rollout(*sys.argv[2:])
"""

BETWEEN = r"in kernel (\w+) at .* has already been read from in a previous launch"
WITHIN = r"in kernel (\w+) at .* after it has been read from within the same kernel"

RECURSIONS = {
    "frame_poses", "frame_acceleration", "frame_motion", "project_loads", "solve", "factor", "composite_inertia",
}  # fmt: skip
"""Kernels whose lanes depend on one another: body by body along the tree, row by row in a factorisation.

Warp's check works on whole arrays, not on elements, so it warns about these. The gradient tests against
differences cover them. Inspect a kernel before adding it here.
"""


@pytest.fixture
def checked(tmp_path):
    """Run a case under ``wp.config.verify_autograd_array_access``; return its output and Warp's warnings.

    Warp checks twice: a kernel during code generation (read, then written, within it), and the launches on
    a ``wp.Tape`` (read by one, written by a later one). The bridge needs no tape; here its record goes on one.
    """
    program = tmp_path / "checked.py"
    program.write_text(CHECKED)

    def run(*case: str) -> tuple[str, set[str], set[str]]:
        done = subprocess.run(
            [sys.executable, str(program), *case], capture_output=True, text=True, timeout=600, check=False,
            env=os.environ | {"WARP_CACHE_PATH": str(tmp_path / "cache"), "JAX_PLATFORMS": "cpu"},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        told = done.stdout + done.stderr
        return done.stdout, set(re.findall(BETWEEN, told)), set(re.findall(WITHIN, told))

    return run


def test_warps_check_sees_the_eighth_power_by_overwriting(checked):
    assert checked("eighth_power", "two arrays")[1:] == ({"square"}, {"square_in_place"})
    assert checked("eighth_power", "one array")[1:] == ({"square_in_place"}, {"square_in_place"})


@pytest.mark.slow
@pytest.mark.parametrize("asset", ["double-pendulum", "ant"])
def test_warps_check_sees_nothing_in_the_gradient_of_a_rollout(checked, asset):
    out, between, within = checked("rollout", asset)
    assert int(re.findall(r"launches (\d+)", out)[0]) >= 20
    assert between == set()
    assert within <= RECURSIONS
