"""Gradients of rods against differences, and with a term of the backward pass taken out."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fphys.deformables import mesh, rod
from fphys.math import quat_mul, rotate
from fphys.particles import boundary
from fphys.testing import check_grads, check_transforms


def scene(steps: int = 1, worlds: int = 1, curved: bool = True) -> tuple[Any, dict[str, Any]]:
    """A rollout as a function of all that gets a gradient: a rod, held and turned at one end, swung and twisted."""
    rng = np.random.default_rng(2)
    n = 5
    s = np.linspace(0, 1.0, n + 1)
    line = mesh.build(
        np.stack([0.5 * s, 0.2 * s**2 * curved, 0.1 * np.sin(3 * s) * curved], 1), mesh.rope(n, 0.5).elements
    )
    params = rod.Params(line, 0.2, 0.02, 0.02, 1e-2, 1e-2, pinned=(0,), clamped=(0,), substeps=3)
    start = jax.jit(rod.init)(params, np.broadcast_to(line.vertices, (worlds, n + 1, 3)))
    x = np.asarray(start.x) + 0.005 * rng.normal(size=start.x.shape)
    inputs = {
        "x": x,
        "v": rng.normal(size=x.shape),
        "q": start.q + 0.05 * rng.normal(size=start.q.shape),
        "spin": rng.normal(size=start.spin.shape),
        "vertices": line.vertices,
        "density": 0.2 * rng.uniform(0.8, 1.2, n),
        "radius": np.full(1, 0.02),
        "timestep": np.full(1, 0.02),
        "bend": 1e-2 * rng.uniform(0.8, 1.2, n - 1),
        "twist": 1e-2 * rng.uniform(0.8, 1.2, n - 1),
        "stretch": 1e-3 * rng.uniform(0.8, 1.2, n),
        "gravity": rng.normal(size=(1, 3)),
        "damping": np.full(1, 0.5),
        "force": 0.01 * rng.normal(size=x.shape),
        "torque": 0.001 * rng.normal(size=start.spin.shape),
        "pins": x[:, :1] + 0.01,
        "turns": quat_mul(jnp.broadcast_to(jnp.asarray([0.99, 0.1, 0.05, -0.05]), (worlds, 1, 4)), start.q[:, :1]),
    }
    names = ("density", "radius", "timestep", "bend", "twist", "stretch", "gravity", "damping")

    def run(given: dict[str, Any], colliders: Any = ()) -> Any:
        now = params.replace(mesh=line.replace(vertices=given["vertices"]), **{k: given[k] for k in names})
        status = jnp.zeros(len(given["x"]), jnp.uint32)
        state = rod.State(given["x"], given["v"], given["q"], given["spin"], status)
        loads = given["force"], given["torque"], given["pins"], given["turns"]
        end: Any = jax.lax.scan(lambda s, _: (rod.step(now, s, *loads, colliders), None), state, None, steps)[0]
        return end.x, end.v, end.q, end.spin

    return run, {k: jnp.asarray(v, float) for k, v in inputs.items()}


@pytest.mark.parametrize("steps", [10, *(pytest.param(k, marks=pytest.mark.slow) for k in (1, 60))])
def test_every_input(steps: int, full: bool):
    """After 60 steps, a difference by twist is 4.5e-6 off at 1e-6 (third order), and 1.7e-6 at 1e-7 (rounding)."""
    run, inputs = scene(steps)
    check_grads(jax.jit(run), (inputs,), tol=1e-6, directions=16 if full else 2, steps=(1e-4, 1e-5, 1e-6, 3e-7, 1e-7))


def test_a_straight_rod_at_rest():
    """Nothing bends or twists: there the angles of joints are zero, and have a gradient."""
    run, inputs = scene(curved=False)
    inputs |= {"x": inputs["vertices"][None], "q": jnp.broadcast_to(inputs["q"][:, :1], inputs["q"].shape)}
    part = {name: inputs[name] for name in ("x", "q", "vertices", "twist")}
    check_grads(jax.jit(lambda given: run(inputs | given)), (part,), tol=1e-6, directions=1)


def test_of_where_frames_begin():
    """They turn with the whole rod, by its shape at rest and where it is put."""
    _, inputs = scene()
    line = mesh.build(np.asarray(inputs["vertices"]), mesh.rope(5, 0.5).elements)

    def frames(x: Any, vertices: Any) -> Any:
        return rod.init(rod.Params(line.replace(vertices=vertices), 0.2, 0.02, 0.02, 1e-2, 1e-2), x).q

    turned = rotate(jnp.asarray([[[0.5, -0.5, 0.1, 0.7]]]), inputs["x"])
    check_grads(jax.jit(frames), (turned, inputs["vertices"]), tol=1e-6)
    rope = mesh.rope(5, 0.5)
    back = jax.jit(lambda x: rod.init(rod.Params(rope, 0.2, 0.02, 0.02, 1e-2, 1e-2), x).q)
    check_grads(back, (jnp.asarray(-rope.vertices[None]),), tol=1e-6)


def test_of_where_frames_of_a_ring_begin():
    """They share its twist."""
    s = np.arange(7) * 2 * np.pi / 7
    ring = mesh.build(
        np.stack([np.cos(s), np.sin(s), 0.1 * np.cos(2 * s)], 1), np.stack([np.arange(7), (np.arange(7) + 1) % 7], 1)
    )
    laid = jnp.asarray(np.stack([np.sin(s), 0.5 * np.sin(2 * s), 0.3 * np.cos(s)], 1)[None])
    made = functools.partial(rod.Params, density=0.2, radius=0.02, timestep=0.02, bend=1e-2, twist=1e-2)
    frames = jax.jit(lambda x, vertices: rod.init(made(ring.replace(vertices=vertices)), x).q)
    check_grads(frames, (laid, jnp.asarray(ring.vertices)), tol=1e-6)


def test_of_contact():
    run, inputs = scene()
    floor = boundary.plane(jnp.asarray([[0.0, 0.0, 0.12]]), (0.1, 0.2, 1.0), friction=jnp.full(1, 0.3))
    apart = jnp.abs(jax.jit(run)(inputs)[0] - jax.jit(run)(inputs, (floor,))[0]).max(-1)
    assert 0 < float((apart > 1e-6).mean()) < 1
    touched = lambda given, pos: run(given, (floor.replace(pos=pos),))  # noqa: E731
    check_grads(jax.jit(touched), (inputs, floor.pos), tol=1e-5, directions=1)


@pytest.mark.parametrize(
    ("name", "seen"), [("turned_by", "torque"), pytest.param("frames_of", "vertices", marks=pytest.mark.slow)]
)
def test_a_missing_term_is_noticed(name: str, seen: str, monkeypatch: pytest.MonkeyPatch):
    """Turns of frames, or the shape at rest of joints, pass no gradient."""
    whole = getattr(rod, name)
    monkeypatch.setattr(rod, name, lambda *args: jax.lax.stop_gradient(whole(*args)))
    run, inputs = scene()
    with pytest.raises(AssertionError, match="gradient checks have an error"):
        check_grads(jax.jit(lambda y: run(inputs | {seen: y})), (inputs[seen],), tol=1e-3, directions=1)


@pytest.mark.slow  # it compiles a step for every transform
def test_transforms():
    run, inputs = scene(worlds=2)
    inputs |= {name: inputs[name][None] for name in ("vertices", "density", "bend", "twist", "stretch")}

    def step(*given: Any) -> Any:
        return run(dict(zip(inputs, given, strict=True)))

    check_transforms(step, list(inputs.values()), max_patterns=2, batches=(3,), rtol=1e-8, atol=1e-10, perturb=0.01)


def test_float32_keeps_what_small_substeps_move():
    """In substeps of 25 us. Places and frames rounded in each would put the gradient off by 2 %."""
    s = np.linspace(0, 1, 9)
    line = mesh.build(np.stack([0.5 * s, 0.2 * s**2, 0.1 * np.sin(3 * s)], 1), mesh.rope(8, 0.5).elements)
    params = rod.Params(line, 0.2, 0.02, 2.5e-4, 1e-2, 1e-2, 1e-3, -9.81, pinned=(0,), clamped=(0,), substeps=10)
    x = (line.vertices + 0.01 * np.sin(20 * line.vertices[:, [1, 0, 1]]))[None].astype(np.float32)

    def loss(x: Any, v: Any, bend: Any) -> Any:
        made = params.replace(bend=bend)
        after = jax.lax.scan(lambda now, _: (rod.step(made, now), None), rod.init(made, x, v), None, 10)[0]
        return jnp.mean((after.x - x) ** 2) + jnp.mean(after.v**2) + 1e-3 * jnp.mean(after.spin**2)

    def gradients(dtype: Any) -> Any:
        place = jnp.asarray(x, dtype)
        return jax.jit(jax.grad(loss, (0, 1, 2)))(place, jnp.full_like(place, 0.1), jnp.asarray(1e-2, dtype))

    for found, exact in zip(gradients(jnp.float32), gradients(jnp.float64)):
        assert float(jnp.linalg.norm(found.astype(exact.dtype) - exact) / jnp.linalg.norm(exact)) < 1e-4
