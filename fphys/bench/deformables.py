"""Deformables as benchmark cases: a cloth by XPBD and a solid by finite elements, forward and gradient; and peers.

A cloth of equal springs, held along one edge, swings from a smooth wave: ten steps of ten iterations. The time step
falls with the length of an edge, so that Jacobi's method, which Newton and Genesis use, is stable at every size. A
solid bar, held at one end and pulled down, bends: four steps of implicit Euler, each solved to the end, or forty
explicit ones.

The accuracy of a case is 1 - |x - exact| / |exact - start|, over all vertices of the first world. Exact are, of a
cloth, the springs' equations of motion, solved here with small steps in NumPy; of a solid our step; of explicit steps
those half as long.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..deformables import fem, mesh, pbd
from . import genesis_deformables, newton_deformables
from .case import Case, Workload

Array = jax.Array

CLOTHS = (16, 64, 128, 256, 512)
"""Vertices along an edge."""
CLOTH_STEPS = 10
SPRING = 20.0
"""Stiffness of an edge of the cloth [N/m]."""
SOLIDS = {"1k": (7, 5, 5), "10k": (26, 8, 8), "100k": (57, 17, 17)}
"""Cells along each edge of the bar, six tetrahedra each."""
SOLID_STEPS = 4
EXPLICIT_STEPS = 40
LEAST = 0.9
"""Of our accuracy."""
GRADIENT_LEAST = 0.99
"""Of that in float64."""


def deformable_cases() -> list[Case]:
    """For each size: steps, with gradient, and the same in Newton and Genesis. Also many small cloths."""
    cloths = [case for edge in CLOTHS for case in _cloth_cases(edge)]
    return cloths + [case for name in SOLIDS for case in (*_solid_cases(name), *_explicit_cases(name))]


def _cloth_cases(edge: int) -> list[Case]:
    name, tags = f"deformables.cloth.{edge}.step", ("deformables", "pbd", *(["large"] if edge > 128 else []))
    made = {"steps": CLOTH_STEPS * (edge**2 + edge // 2), "unit": "vertex-steps"}
    peers: dict[str, Any] = {}
    if edge in (64, 128, 256) and newton_deformables.INSTALLED:
        for kind in newton_deformables.SOLVERS:
            peers[f"newton_{kind}"] = functools.partial(newton_deformables.cloth, kind)
    if edge in (64, 128, 256) and genesis_deformables.INSTALLED:
        peers["genesis"] = genesis_deformables.cloth

    def beside(peer: Callable[..., Workload]) -> Callable[[int], Workload]:
        def setup(worlds: int) -> Workload:
            params, state = cloth(1, edge)
            return peer(params, state, CLOTH_STEPS, functools.partial(accuracy, state.x[0], swung(params, state)))

        return setup

    worlds = (1, 1024) if edge == 16 else (1,)
    return [
        Case(name, lambda n: _cloth_forward(n, edge), worlds=worlds, tags=tags, **made),
        Case(
            f"{name}_grad",
            lambda n: _backward(lambda: cloth(n, edge), cloth_steps),
            worlds=worlds,
            relative_to=name,
            target=4.0,
            tags=(*tags, "gradient"),
            **made,
        ),
        *(
            Case(f"{name}_{peer}", beside(make), worlds=(1,), relative_to=name, tags=tags, **made)
            for peer, make in peers.items()
        ),
    ]


def _solid_cases(size: str) -> list[Case]:
    cells = SOLIDS[size]
    name, tags = f"deformables.solid.{size}.step", ("deformables", "fem", *(["large"] if size == "100k" else []))
    made = {"steps": SOLID_STEPS * 6 * int(np.prod(cells)), "unit": "element-steps", "worlds": (1,)}
    peers: dict[str, Any] = {}
    if size != "1k":
        peers |= {"newton_vbd": newton_deformables.solid} if newton_deformables.INSTALLED else {}
        peers |= {"genesis": genesis_deformables.solid} if genesis_deformables.INSTALLED else {}

    def beside(peer: Callable[..., Workload]) -> Callable[[int], Workload]:
        def setup(worlds: int) -> Workload:
            params, state = solid(cells)
            exact = functools.partial(accuracy, state.x[0], jax.jit(solid_steps)(params, state).x[0])
            return peer(params, state, SOLID_STEPS, exact)

        return setup

    return [
        Case(name, lambda n: _solid_forward(cells), tags=tags, **made),
        Case(
            f"{name}_grad",
            lambda n: _backward(lambda: solid(cells), solid_steps),
            relative_to=name,
            target=2.5,
            tags=(*tags, "gradient"),
            **made,
        ),
        *(Case(f"{name}_{peer}", beside(make), relative_to=name, tags=tags, **made) for peer, make in peers.items()),
    ]


def _explicit_cases(size: str) -> list[Case]:
    made_of = functools.partial(solid, SOLIDS[size], explicit=True)
    name, tags = f"deformables.explicit.{size}.step", ("deformables", "fem", *(["large"] if size == "100k" else []))
    made = {"steps": EXPLICIT_STEPS * 6 * int(np.prod(SOLIDS[size])), "unit": "element-steps", "worlds": (1,)}
    grad = Case(
        f"{name}_grad",
        lambda n: _backward(made_of, explicit_steps),
        relative_to=name,
        target=4.0,
        tags=(*tags, "gradient"),
        **made,
    )
    return [Case(name, lambda n: _explicit_forward(*made_of()), tags=tags, **made), grad]


def cloth(worlds: int, edge: int) -> tuple[pbd.Params, pbd.State]:
    """A square of 1 m and 0.2 kg, with a wave of 16 edges, of another phase in each world."""
    body = mesh.cloth((edge - 1, edge - 1), (1.0, 1.0))
    params = pbd.Params(
        body,
        density=0.2,
        timestep=0.064 / edge,
        stretch=1 / SPRING,
        gravity=(0.0, 0.0, -9.81),
        pinned=tuple(range(edge)),
        substeps=10,
    )
    phase = np.random.default_rng(0).uniform(0, 2 * np.pi, (worlds, 1, 3))
    angle = 2 * np.pi * edge / 16 * body.vertices[:, [1, 0, 1]] + phase
    wave = body.vertices + 0.3 / edge * body.vertices[:, 1:2] * np.sin(angle)
    return params, pbd.init(params, jnp.asarray(wave, jnp.zeros(0).dtype))


def cloth_steps(params: pbd.Params, state: pbd.State) -> pbd.State:
    """The state after :data:`CLOTH_STEPS` steps."""
    return jax.lax.scan(lambda s, _: (pbd.step(params, s), None), state, None, CLOTH_STEPS)[0]


def solid(cells: tuple[int, int, int], explicit: bool = False) -> tuple[fem.Params, fem.State]:
    """A bar of cubes of 25 mm, of a soft rubber, that turns down about its held end."""
    body = mesh.box(cells, tuple(0.025 * n for n in cells))
    x = body.vertices
    params = fem.Params(
        body,
        fem.NeoHookean(1000.0, 1e6, 0.3),
        timestep=1e-4 if explicit else 2e-3,
        explicit=explicit,
        gravity=(0.0, 0.0, -9.81),
        pinned=np.flatnonzero(x[:, 0] == 0),
    )
    v = np.stack([0 * x[:, 0], 0 * x[:, 0], -2 * x[:, 0] / x[:, 0].max()], 1)
    real = jnp.zeros(0).dtype
    return params, fem.init(params, jnp.asarray(x[None], real), jnp.asarray(v[None], real))


def solid_steps(params: fem.Params, state: fem.State) -> fem.State:
    """The state after :data:`SOLID_STEPS` steps."""
    return jax.lax.scan(lambda s, _: (fem.step(params, s), None), state, None, SOLID_STEPS)[0]


def explicit_steps(params: fem.Params, state: fem.State, steps: int = EXPLICIT_STEPS) -> fem.State:
    """The state after :data:`EXPLICIT_STEPS` steps."""
    return jax.lax.scan(lambda s, _: (fem.step(params, s), None), state, None, steps)[0]


def swung(params: pbd.Params, state: pbd.State, parts: int = 40) -> np.ndarray:
    """Places of the first world after the steps, by the leapfrog method in float64, so many parts to a step."""
    ends, x = pbd.edges(params.mesh), np.asarray(state.x[0], float)
    rest = np.linalg.norm(np.diff(params.mesh.vertices[ends], axis=1)[:, 0], axis=1)
    mass = np.asarray(pbd.masses(params)[0], float)
    h = params.timestep / parts
    free = np.ones(len(x))
    free[list(params.pinned)] = 0

    def pulled(x: np.ndarray) -> np.ndarray:
        along = x[ends[:, 1]] - x[ends[:, 0]]
        size = np.linalg.norm(along, axis=1)
        pull = (SPRING * (1 - rest / size))[:, None] * along
        force = [
            np.bincount(ends[:, 0], pull[:, k], len(x)) - np.bincount(ends[:, 1], pull[:, k], len(x)) for k in range(3)
        ]
        return free[:, None] * (np.stack(force, 1) / mass[:, None] + params.gravity)

    v = 0.5 * h * pulled(x)
    for _ in range(CLOTH_STEPS * parts):
        x = x + h * v
        v = v + h * pulled(x)
    return x


def accuracy(start: Any, exact: Any, found: Any) -> float:
    """1 - |found - exact| / |exact - start|.

    Raises:
        ValueError: it is below zero, or not finite: the motion is another one.
    """
    start, exact, found = (np.asarray(x, float) for x in (start, exact, found))
    agreed = 1 - np.linalg.norm(found - exact) / np.linalg.norm(exact - start)
    if not agreed > 0:
        raise ValueError(f"vertices are off by {1 - agreed:.0%} of their motion")
    return float(agreed)


def _cloth_forward(worlds: int, edge: int) -> Workload:
    params, state = cloth(worlds, edge)

    def validate(after: pbd.State) -> float:
        pbd.check(params, after)
        agreed = accuracy(state.x[0], swung(params, state), after.x[0])
        if not agreed > LEAST:
            raise ValueError(f"vertices are off by {1 - agreed:.1%} of their motion")
        return agreed

    return Workload(cloth_steps, (params, state), validate)


def _solid_forward(cells: tuple[int, int, int]) -> Workload:
    params, state = solid(cells)

    def validate(after: fem.State) -> None:
        fem.check(params, after)
        most = 1e-9 if after.x.dtype == jnp.float64 else 1e-4
        if not float(after.residual.max()) < most:
            raise ValueError(f"the forces left over are {float(after.residual.max()):.1e} of those that cancel")

    return Workload(solid_steps, (params, state), validate)


def _explicit_forward(params: fem.Params, state: fem.State) -> Workload:
    def validate(after: fem.State) -> float:
        fem.check(params, after)
        half = functools.partial(explicit_steps, steps=2 * EXPLICIT_STEPS)
        finer = jax.jit(half)(params.replace(timestep=0.5 * params.timestep), state)
        agreed = accuracy(state.x[0], finer.x[0], after.x[0])
        if not agreed > LEAST:
            raise ValueError(f"vertices are off by {1 - agreed:.1%} of their motion")
        return agreed

    return Workload(explicit_steps, (params, state), validate)


def _backward(problem: Callable[[], tuple[Any, Any]], steps: Callable[[Any, Any], Any]) -> Workload:
    """The gradient of half the mean square of displacements and velocities, by places and velocities at the start."""
    params, state = problem()

    def loss(params: Any, state: Any, inputs: tuple[Array, Array]) -> Array:
        after = steps(params, state.replace(x=inputs[0], v=inputs[1]))
        return 0.5 * (jnp.mean((after.x - state.x) ** 2) + jnp.mean(after.v**2))

    def fn(params: Any, state: Any, inputs: tuple[Array, Array]) -> Any:
        return jax.value_and_grad(loss, argnums=2)(params, state, inputs)

    inputs = (state.x, state.v)

    def validate(result: Any) -> float:
        """How far it agrees with the gradient in float64, which has to agree with differences along itself."""
        with jax.enable_x64(True):
            exact = problem()
            begin = (exact[1].x, exact[1].v)
            _, grads = jax.jit(fn)(*exact, begin)
            value = jax.jit(loss)
            for i, size in enumerate((1e-6, 1e-3)):
                unit = grads[i] / jnp.maximum(jnp.abs(grads[i]).max(), 1e-30)
                ends = [value(*exact, (*begin[:i], begin[i] + s * size * unit, *begin[i + 1 :])) for s in (1, -1)]
                slope, difference = float(jnp.sum(grads[i] * unit)), float(ends[0] - ends[1]) / (2 * size)
                if not abs(slope - difference) <= 1e-3 * abs(slope):
                    raise ValueError(
                        f"gradient {i} along itself is {slope:.4e}, the centred difference {difference:.4e}"
                    )
        agreed = min(1 - _off(*each) for each in zip(result[1], grads, strict=True))
        if not agreed > GRADIENT_LEAST:
            raise ValueError(f"the gradient is off by {1 - agreed:.1%} of the one in float64")
        return agreed

    return Workload(fn, (params, state, inputs), validate)


def _off(found: Array, exact: Array) -> float:
    return float(np.linalg.norm(np.asarray(found, float) - exact) / np.linalg.norm(exact))
