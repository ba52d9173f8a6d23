"""Gradients of finite elements in contact, damped by stiffness, with muscles, and of steps of second order."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fphys.deformables import fem, mesh
from fphys.particles import boundary
from fphys.testing import check_grads

SCALE = {"stiffness": 1e6, "thickness": 2e-2, "young": 1e4, "actuation": 1e3, "stiffness_damping": 1e-2, "pos": 0.01}
"""Inputs are given in these units, so that differences suit all of them."""

STEPS = (1e-4, 1e-5, 1e-6, 1e-7)


def scene(
    shape: str,
    dim: int = 3,
    order: int = 1,
    slip: float = 0.3,
    mean: bool = False,
    poisson: float = 0.3,
    steps: int = 1,
    contact: str = "separate",
) -> tuple[Any, dict[str, Any]]:
    """A step of a block that is pressed on a collider which moves, turns and rubs; its inputs in units of their own."""
    rng = np.random.default_rng(0)
    body = mesh.box((2, 1, 1)[:dim], (0.4, 0.2, 0.2)[:dim])
    n, e = len(body.vertices), len(body.elements)
    params = fem.Params(
        body,
        fem.NeoHookean(1000.0, 1e4, poisson),
        1e-2,
        gravity=(1.0, 2.0, -9.81)[:dim],
        order=order,
        mean_dilatation=mean,
    )
    down = dim - 1
    pos, flat = np.zeros((1, 3)), np.zeros((1, 3))
    pos[0, 0], pos[0, down], flat[0, down] = 0.17, -0.19, 1.0
    quat = np.array([[0.99, 0.03, -0.05, 0.05]]) if dim == 3 else np.array([[0.99, 0.0, 0.0, 0.05]])
    size = {"plane": flat + 0.1 * (pos != 0), "sphere": [[0.2, 0, 0]], "box": [[0.25, 0.22, 0.19]]}
    size |= {"capsule": [[0.2, 0.15, 0]], "field": [[0.06, 0.06, 0.06]]}
    count = (12,) * dim + (1,) * (3 - dim)
    if shape == "plane":
        pos[0, down], quat = 0.01, np.array([[0.99, 0.02, 0.0, 0.05]])
    spin = rng.normal(size=(1, 3)) if dim == 3 else np.array([[0.0, 0.0, 0.4]])
    keep = np.arange(3) < dim
    inputs = {
        "x": (body.vertices + 0.003 * rng.normal(size=body.vertices.shape))[None],
        "v": 0.3 * rng.normal(size=(1, n, dim)),
        "vertices": body.vertices + 0.002 * rng.normal(size=body.vertices.shape),
        "young": 1 + 0.1 * rng.uniform(size=e),
        "timestep": np.ones(1),
        "stiffness": np.ones(1),
        "thickness": np.ones(1),
        "slip": np.ones(1),
        "stiffness_damping": np.ones(1),
        "actuation": rng.normal(size=(1, e, 3, 3)),
        "pos": pos,
        "quat": quat,
        "velocity": 0.2 * rng.normal(size=(1, 3)) * keep,
        "spin": spin,
        "friction": np.full(1, 0.4),
        "size": np.asarray(size[shape], float),
    }
    if shape == "field":  # of a ball with dents
        away = np.stack(np.meshgrid(*[0.06 * (np.arange(12) - 5.5)] * dim, indexing="ij"), -1).reshape(1, -1, dim)
        inputs["samples"] = 10 * (np.linalg.norm(away, axis=-1) - 0.2 + 0.004 * np.sin(40 * away).prod(-1))
        inputs["pos"] = pos - 0.33 * keep + [[0.03, *[-0.03] * 2]] * keep

    def run(given: dict[str, Any]) -> Any:
        got = {k: v * SCALE.get(k, 1.0) for k, v in given.items()}
        touch = fem.Contact(got["stiffness"], got["thickness"], slip * got["slip"])
        now = params.replace(
            mesh=params.mesh.replace(vertices=got["vertices"]),
            material=params.material.replace(young=got["young"]),
            timestep=0.01 * got["timestep"],
            contact=touch,
            stiffness_damping=got["stiffness_damping"],
        )
        motion = {"velocity": got["velocity"], "spin": got["spin"], "friction": got["friction"]}
        if shape == "field":
            motion |= {"samples": got["samples"] / 10, "count": count}
        collider = boundary.Collider(
            got["pos"], got.get("quat", jnp.asarray(quat)), got["size"], shape=shape, contact=contact, **motion
        )
        before = fem.State(got["x"], got["v"], jnp.zeros(1), jnp.zeros(1, jnp.uint32))
        for _ in range(steps - 1):
            before = fem.step(now, before, None, got["actuation"], None, (collider,))
            collider = collider.replace(pos=collider.pos + now.timestep[:, None] * collider.velocity)
        after = fem.step(now, before, None, got["actuation"], None, (collider,))
        wrench = fem.reactions(now, before, after, (collider,))
        return 100 * after.x, after.v, wrench / 100, after.status

    if shape == "sphere":
        del inputs["quat"]
    inputs["pos"] = inputs["pos"] / SCALE["pos"]
    return run, {k: jnp.asarray(v, float) for k, v in inputs.items()}


SLOW = [pytest.param(case, marks=pytest.mark.slow) for case in (("sphere", 3), ("box", 3), ("field", 2))]
CASES = [("plane", 3, 1, 1.0), ("capsule", 3, 2), ("sphere", 2), ("field", 3), ("plane", 2, 1, 1.0, True, 0.49), *SLOW]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_of_contact(case: Any, full: bool):
    """Every input, also of what the collider feels; some vertices touch, and stick or slide."""
    run, inputs = scene(*case)
    run = jax.jit(run)
    *_, wrench, status = run(inputs)
    assert int(status[0]) == 0 and float(jnp.abs(wrench[0, 0, : case[1]]).min()) > 0.1
    check_grads(run, (inputs,), directions=8 if full else 1, steps=STEPS)


def test_of_contact_that_sticks(full: bool):
    run, inputs = scene("plane", 2, slip=1.0, contact="sticky")
    check_grads(jax.jit(run), (inputs,), directions=8 if full else 1, steps=STEPS)


def test_of_many_steps_in_contact(full: bool):
    """A block that slides and bounces on a plane that moves: vertices come and go."""
    run, inputs = scene("plane", 2, steps=12)
    check_grads(jax.jit(run), (inputs,), directions=8 if full else 1, steps=STEPS)


@pytest.mark.parametrize(("missing", "seen"), [("before", "x"), ("begin", "pos"), ("spin", "spin")])
def test_a_missing_term_is_noticed(missing: str, seen: str, monkeypatch: pytest.MonkeyPatch):
    """The solve's gradient by one of its inputs goes nowhere: ``before`` and ``begin`` are where friction lags."""
    whole = fem.displacement

    def lossy(layout: Any, setting: Any, start: Any) -> Any:
        held = {missing: jax.lax.stop_gradient(getattr(setting, missing))}
        return whole(layout, setting._replace(**held), start)

    monkeypatch.setattr(fem, "displacement", lossy)
    run, inputs = scene("sphere", 2)
    with pytest.raises(AssertionError, match="gradient checks have an error"):
        check_grads(jax.jit(lambda y: run(inputs | {seen: y})), (inputs[seen],), directions=2, steps=(1e-5,), tol=1e-4)
