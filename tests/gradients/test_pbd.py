"""Gradients of position-based dynamics against differences, and with a term of the backward pass taken out."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fphys.deformables import constraints, contact, mesh, pbd
from fphys.particles import boundary
from fphys.testing import check_grads, check_transforms

SHELL = mesh.cloth((3, 2), (0.3, 0.2))
BODIES = {
    "cloth": (mesh.cloth((3, 3), (0.3, 0.26)), {"stretch": 1e-2, "bend": 1e-2, "squeeze": 1e-2, "density": 0.5}),
    "curved": (
        SHELL.replace(vertices=SHELL.vertices + [0, 0, 2] * SHELL.vertices[:, :1] ** 2),
        {"stretch": 1e-2, "bend": 1e-2, "density": 0.5},
    ),
    "rope": (mesh.rope(5, 0.5), {"stretch": 1e-2, "bend": 1e-2, "density": 0.2}),
    "solid": (mesh.box((2, 1, 1), (0.4, 0.2, 0.2)), {"stretch": 1e-2, "squeeze": 1e-2, "density": 50.0}),
    "plane": (mesh.box((2, 2), (0.3, 0.2)), {"stretch": 1e-2, "squeeze": 1e-2, "density": 5.0}),
}


def scene(name: str, worlds: int = 2, steps: int = 1) -> tuple[Any, tuple[Any, ...]]:
    """A rollout as a function of all that gets a gradient, each number in a range where differences see it."""
    rng = np.random.default_rng(3)
    body, numbers = BODIES[name]
    dim = body.dim
    sizes = {"density": len(body.elements), "stretch": len(pbd.edges(body)), "squeeze": len(body.elements)}
    sizes["bend"] = len(pbd.bends(body)) if "bend" in numbers else 0
    each: dict[str, Any] = {k: jnp.asarray(v * rng.uniform(0.5, 1.5, (1, sizes[k]))) for k, v in numbers.items()}
    params = pbd.Params(
        body.replace(vertices=jnp.asarray(body.vertices)[None]),
        timestep=jnp.full(1, 0.02),
        gravity=jnp.asarray(rng.normal(size=(1, dim))),
        damping=jnp.full(1, 0.5),
        thickness=jnp.full(1, 0.01),
        friction=jnp.full(1, 0.3),  # none below zero, which is refused
        pinned=(0,),
        substeps=3,
        curved=name == "curved",
        **each,
    )
    x = body.vertices + 0.01 * rng.normal(size=(worlds, *body.vertices.shape))
    v = rng.normal(size=x.shape)
    force, pins = 0.01 * rng.normal(size=x.shape), x[:, :1] + 0.02

    def rollout(params: Any, x: Any, v: Any, force: Any, pins: Any, colliders: Any = ()) -> Any:
        state = pbd.init(params, x, v)
        advance = lambda s, _: (pbd.step(params, s, force, pins, colliders), None)  # noqa: E731
        end = jax.lax.scan(advance, state, None, steps)[0]
        return end.x, end.v

    return rollout, (params, *map(jnp.asarray, (x, v, force, pins)))


@pytest.mark.parametrize(("name", "steps"), [(name, 1) for name in BODIES] + [("cloth", 10), ("solid", 10)])
def test_of_every_input(name: str, steps: int, full: bool):
    rollout, args = scene(name, steps=steps)
    check_grads(jax.jit(rollout), args, tol=1e-6, directions=16 if full else 2)


SLOW = [pytest.param(shape, marks=pytest.mark.slow) for shape in ("box", "capsule")]


@pytest.mark.parametrize("shape", ["sphere", "plane", *SLOW])
def test_of_contact(shape: str, full: bool):
    """Some vertices touch, with friction, a collider that moves and turns."""
    motion: dict[str, Any] = {"velocity": jnp.asarray([[0.1, 0.2, 0.3]])}
    shapes = {
        "sphere": lambda: boundary.sphere(jnp.asarray([[0.1, 0.1, -0.17]]), 0.2, friction=jnp.full(1, 0.3), **motion),
        "plane": lambda: boundary.plane(jnp.asarray([[0.15, 0.13, 0.0]]), (0.1, 0.2, 1.0), friction=jnp.full(1, 0.3)),
        "box": lambda: boundary.box(
            jnp.asarray([[0.1, 0.1, -0.2]]), (0.2, 0.2, 0.2), friction=jnp.full(1, 0.3), **motion
        ),
        "capsule": lambda: boundary.capsule(jnp.asarray([[0.1, 0.1, -0.25]]), 0.2, 0.05, friction=jnp.full(1, 0.3)),
    }
    rollout, args = scene("cloth", worlds=1)
    collider = shapes[shape]()
    pos, friction = collider.pos, collider.friction

    def run(x: Any, pos: Any, friction: Any) -> Any:
        return rollout(args[0], x, *args[2:], (collider.replace(pos=pos, friction=friction),))

    apart = jnp.abs(rollout(*args)[0] - run(args[1], pos, friction)[0]).max(-1)
    assert 0.2 < float((apart > 1e-6).mean()) < 1  # some touch
    check_grads(jax.jit(run), (args[1], pos, friction), tol=1e-5, directions=8 if full else 2)


@pytest.mark.parametrize("steps", [1, 10])
def test_of_vertices_that_meet(steps: int, full: bool):
    """A rope that crosses itself, with friction; those that are near stay the same."""
    rng = np.random.default_rng(4)
    line = mesh.rope(8, 0.8)
    s = np.arange(9) * 0.1
    crossed = np.stack([np.abs(s - 0.4), 0.03 * np.sign(s - 0.4), 0.01 * s], 1) + 0.003 * rng.normal(size=(9, 3))
    v = 0.2 * rng.normal(size=(1, 9, 3))

    def rollout(x: Any, v: Any, vertices: Any, friction: Any, density: Any, apart: float = 0.09) -> Any:
        body = line.replace(vertices=vertices)
        params = pbd.Params(body, density, 0.01, 1e-3, bend=1e-3, substeps=3, apart=apart, friction=friction)
        end = jax.lax.scan(lambda s, _: (pbd.step(params, s), None), pbd.init(params, x, v), None, steps)[0]
        return end.x, end.v, end.status

    given: list[Any] = [jnp.asarray(a) for a in (crossed[None], v, line.vertices, np.full(1, 0.4), np.full(8, 0.2))]
    apart = jnp.abs(rollout(*given)[0] - rollout(*given, apart=0.0)[0]).max(-1)
    assert 0.3 < float((apart > 1e-6).mean())
    assert int(rollout(*given)[-1][0]) == 0
    check_grads(jax.jit(rollout), given, tol=1e-5, directions=8 if full else 1, steps=(1e-4, 1e-5, 1e-6))


def test_vertices_in_one_place_part_as_they_lie_at_rest(full: bool):
    rng = np.random.default_rng(7)
    rest, place = rng.normal(size=(1, 4, 3)), np.repeat(rng.normal(size=(1, 2, 3)), 2, 1)
    args = [jnp.asarray(a) for a in (np.full(1, 0.3), rest, rng.uniform(0.5, 2, (1, 4)), place - 0.1 * rest)]

    def meet(friction: Any, rest: Any, weight: Any, start: Any, place: Any = place) -> Any:
        return contact.meet(0.1, 4, friction, rest, weight, start, jnp.asarray(place))[0]

    moved = np.asarray(jax.jit(meet)(*args) - place)[0]
    np.testing.assert_allclose((moved / np.asarray(args[2][0])[:, None]).reshape(2, 2, 3).sum(1), 0, atol=1e-15)
    way = (rest[0, ::2] - rest[0, 1::2]) / np.linalg.norm(rest[0, ::2] - rest[0, 1::2], axis=1)[:, None]
    np.testing.assert_allclose(((moved[::2] - moved[1::2]) * way).sum(1), contact.SHARE * 0.1, rtol=1e-10)
    check_grads(jax.jit(meet), args, tol=1e-6, directions=8 if full else 2)
    slope = jax.jit(jax.jacrev(functools.partial(meet, *args)))(jnp.asarray(place))
    assert float(jnp.abs(slope).max()) < 10


class Lossy:
    """Launches, of which one kernel's change of the places' cotangents goes nowhere."""

    def __init__(self, launch: Any, name: str, place: Any) -> None:
        self.launch, self.name, self.worlds = launch, name, launch.worlds
        self.scratch, self.place = launch.scratch, place

    def __call__(self, kernel: Any, dim: Any, inputs: Any, outputs: Any) -> None:
        if kernel.key == self.name:
            vec3 = constraints.kernels(self.place.dtype, "_precision").vec3
            outputs = [self.scratch(self.place.shape[:2], vec3, zeroed=True), *outputs[1:]]
        self.launch(kernel, dim, inputs, outputs)


@pytest.mark.parametrize("name", ["edges_adjoint", "measures_adjoint", "bends_adjoint"])
def test_a_missing_term_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch):
    """One kind of constraint passes the cotangents of places on as if it had not moved them."""
    rollout, args = scene("cloth")
    whole = constraints._adjoint
    monkeypatch.setattr(
        constraints,
        "_adjoint",
        lambda found, launch, place, *more: whole(found, Lossy(launch, name, place), place, *more),
    )
    constraints._operation.cache_clear()
    try:
        with pytest.raises(AssertionError, match="gradient checks have an error"):
            check_grads(jax.jit(rollout), args, tol=1e-3, argnums=1, directions=1)
    finally:
        constraints._operation.cache_clear()


def test_vertices_in_one_place_have_a_finite_gradient():
    body = mesh.rope(2, 1.0)
    params = pbd.Params(body, 1.0, 0.01, 1e-3, substeps=2)
    loss = jax.grad(lambda x: (pbd.step(params, pbd.init(params, x)).x ** 2).sum())
    assert np.isfinite(loss(jnp.zeros((1, 3, 3)))).all()


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_an_edge_without_a_length_has_no_slope(dtype: Any):
    """It stays; and what worlds share has the gradient that it has in the third world alone."""
    body = mesh.rope(1, 1.0)
    body = body.replace(vertices=body.vertices.astype(dtype))
    to = jnp.asarray(np.random.default_rng(0).normal(size=(2, 3)), dtype)

    @jax.jit
    def slopes(x: Any) -> Any:
        def loss(x: Any, stretch: Any) -> Any:
            params = pbd.Params(body, 1.0, 0.01, stretch, substeps=2)
            end = jax.lax.scan(lambda s, _: (pbd.step(params, s), None), pbd.init(params, x), None, 5)[0]
            return (end.x * to[None]).sum(), end.x

        return jax.grad(loss, (0, 1), has_aux=True)(x, jnp.full(1, 1e-3, dtype))

    x = jnp.zeros((3, 2, 3), dtype).at[:, 1, 0].set(jnp.asarray([0, jnp.finfo(dtype).eps, 1.1], dtype))
    (by_x, by_stretch), end = slopes(x)
    (_, alone), _ = slopes(x[2:])
    np.testing.assert_array_equal(end[:2], x[:2])
    np.testing.assert_allclose(by_x[:2], jnp.stack([to, to]), rtol=1e-5)
    np.testing.assert_allclose(by_stretch, alone, rtol=1e-5)
    assert float(jnp.abs(alone[0])) > 0.1


@pytest.mark.parametrize("name", ["cloth", "solid"])
def test_what_is_on_a_line_has_no_area_and_no_volume_to_change(name: str):
    rng = np.random.default_rng(6)
    body, _ = BODIES[name]
    found = constraints.groups(body.topology, False, True)[1:]
    count = len(body.vertices)
    along = body.vertices @ np.array([1.0, 0.37, 0.61])
    place = jnp.asarray(along[:, None] * [0.3, 0.7, -0.5] + [0.3, 0.2, 0.1])[None]
    rest = mesh.measures(jnp.asarray(body.vertices)[None], found[0].corners)
    numbers = (constraints.Values(jnp.zeros_like(rest), rest),)
    push, pull = jax.vjp(lambda m: constraints.project(found, place, m, jnp.ones((1, count)), numbers), 0 * place)
    np.testing.assert_array_equal(push, 0)
    assert float(jnp.abs(pull(jnp.asarray(rng.normal(size=place.shape)))[0]).max()) < 1e-6


def test_a_triangle_without_an_area_has_no_slope():
    """A hinge one of whose triangles is a line: backward as forward, the corner on the edge is left where it is."""
    topology = mesh.build(
        np.array([[0.0, 0, 0], [1, 0, 0], [0.5, 1, 0], [0.5, -1, 0.5]]), [[0, 1, 2], [1, 0, 3]]
    ).topology
    hinge = constraints.groups(topology, True, False, True)[1:]
    _, b, on, other = (int(k) for k in topology.hinges[0])
    place = (
        jnp.zeros((1, 4, 3)).at[0, b, 0].set(1.0).at[0, on, 0].set(0.3).at[0, other].set(jnp.array([0.5, -1.0, 0.5]))
    )
    numbers = (constraints.Values(jnp.full((1, 1), 2.0), jnp.full((1, 1), 0.5)),)
    after = lambda x: x + constraints.project(hinge, x, jnp.zeros_like(x), jnp.ones((1, 4)), numbers)  # noqa: E731
    moved, pull = jax.vjp(after, place)
    assert float(jnp.abs(moved - place)[0, other].max()) > 0.01
    to = jnp.asarray(np.random.default_rng(0).normal(size=place.shape))
    np.testing.assert_array_equal(moved[0, on], place[0, on])
    found = pull(to)[0]
    np.testing.assert_array_equal(found[0, on], to[0, on])
    assert float(jnp.abs(found).max()) < 10


@pytest.mark.parametrize("name", ["cloth", "solid"])
def test_transforms_of_the_constraints(name: str):
    rng = np.random.default_rng(5)
    body, _ = BODIES[name]
    found = constraints.groups(body.topology, name == "cloth", True)
    rest = jnp.asarray(body.vertices)[None]
    values = []
    for group in found:
        bent = group.kind == "bend"
        size = constraints.shares(rest, body.topology) if bent else mesh.measures(rest, group.corners)
        values.append(constraints.Values(jnp.asarray(rng.uniform(0.5, 1.5, (1, len(group)))), size))
    start = rest + 0.02 * rng.normal(size=(2, *body.vertices.shape))
    moved = jnp.asarray(0.02 * rng.normal(size=start.shape))
    weight = jnp.asarray(rng.uniform(0.5, 1.5, (1, len(body.vertices))))
    project = functools.partial(constraints.project, found)
    check_transforms(project, (start, moved, weight, tuple(values)), max_patterns=2, batches=(2,))


def test_a_step_under_vmap_of_grad_and_checkpoint():
    rollout, (params, x, v, *rest) = scene("rope")

    def slope(x: Any, v: Any) -> Any:
        return jax.grad(lambda *given: (jax.checkpoint(rollout)(params, *given, *rest)[0] ** 2).sum(), (0, 1))(x, v)

    batch = jnp.stack([x, x + 0.01, x[::-1]]), jnp.stack([v, -v, 2 * v])
    plain = jax.jit(jax.grad(lambda *given: (rollout(params, *given, *rest)[0] ** 2).sum(), (0, 1)))
    mapped = jax.jit(jax.vmap(slope))(*batch)
    for i in range(3):
        for found, alone in zip(mapped, plain(batch[0][i], batch[1][i]), strict=True):
            np.testing.assert_allclose(found[i], alone, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", ["cloth", "curved", "solid", "rope"])
def test_float32_keeps_what_small_substeps_move(name: str):
    """Far from the origin, in substeps of 25 us. Places rounded in each would put the gradient off by a half."""
    body, numbers = BODIES[name]
    still = {"gravity": (0.0, 0.0, -9.81), "pinned": (0, 1), "curved": name == "curved"}
    params = pbd.Params(body, timestep=2.5e-4, substeps=10, **still, **numbers)
    wave = 0.02 * np.sin(20 * body.vertices[:, [1, 0, 1]])
    x = (body.vertices + wave)[None].astype(np.float32)

    def loss(x: Any, v: Any, stretch: Any) -> Any:
        made = params.replace(stretch=stretch)
        start = pbd.init(made, x, v)
        after = jax.lax.scan(lambda state, _: (pbd.step(made, state), None), start, None, 10)[0]
        return jnp.mean((after.x - x) ** 2) + jnp.mean(after.v**2)

    def gradients(dtype: Any) -> Any:
        place = jnp.asarray(x, dtype)
        return jax.grad(loss, (0, 1, 2))(place, jnp.full_like(place, 0.1), jnp.asarray(params.stretch, dtype))

    for found, exact in zip(gradients(jnp.float32), gradients(jnp.float64)):
        assert float(jnp.linalg.norm(found.astype(exact.dtype) - exact) / jnp.linalg.norm(exact)) < 1e-4
