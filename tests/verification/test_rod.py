"""Rods against what is known of them: the elastica, the twist of a clamped rod, and its slowest torsional mode."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.spatial.transform import Rotation

from fphys.deformables import chain, mesh, rod
from fphys.deformables.turns import inverse, log
from fphys.math import quat_mul

init = jax.jit(rod.init)


@functools.partial(jax.jit, static_argnames="steps")
def rolled(params: rod.Params, state: rod.State, steps: int, force: Any = None, torque: Any = None) -> Any:
    """The last state, and frames and places after each step."""

    def advance(state: rod.State, _: None) -> tuple[rod.State, Any]:
        state = rod.step(params, state, force, torque)
        return state, (state.x[0], state.q[0])

    return jax.lax.scan(advance, state, None, steps)


def test_a_rod_bends_as_the_elastica():
    """Clamped, a force at its end: P L^2 / B = 1 (Bisshopp and Drucker 1945: 0.3017 and 0.0564 of L).

    Its first joint is at the end of the held edge, of which half bends: the length counts from the middle of that edge.
    """
    n = 12
    length = 1 - 0.5 / n
    clamp = {"pinned": (0, 1), "clamped": (0,)}
    params = rod.Params(mesh.rope(n, 1.0), 0.2, 0.01, 0.02, length**2, 1.0, damping=8.0, substeps=200, **clamp)
    state = init(params)
    load = np.zeros(state.x.shape)
    load[0, -1, 2] = -1.0
    end, _ = rolled(params, state, 120, load)
    rod.check(params, end)
    tip = np.asarray(end.x[0, -1])
    assert -tip[2] / length == pytest.approx(0.3017, rel=0.03)
    assert (1 - tip[0]) / length == pytest.approx(0.0564, rel=0.03)


def test_few_substeps_do_not_soften_a_stiff_rod():
    """Held at one end, it sags under its weight as rigid edges do with a spring B / l at each joint, to first order.

    Joints that give way one after the other would make it 3.24 times as soft.
    """
    n, density, g, bend = 20, 0.2, 9.81, 20.0
    clamp = {"pinned": (0, 1), "clamped": (0,)}
    params = rod.Params(mesh.rope(n, 1.0), density, 0.01, 0.01, bend, 1.0, gravity=(0, 0, -g), damping=40.0, **clamp)
    end, _ = rolled(params, init(params), 40)
    rod.check(params, end)
    x, weight = np.arange(n + 1) / n, np.r_[np.ones(n), 0.5] * density / n * g
    arms = np.maximum(x - x[1:-1, None], 0)
    sag = (arms @ weight * arms[:, -1]).sum() / (bend * n)
    assert params.substeps == 50
    assert -end.x[0, -1, 2] == pytest.approx(sag, rel=0.04)


@pytest.mark.parametrize("closed", [False, True])
def test_a_curved_rod_that_is_only_turned_is_as_at_rest(closed: bool):
    """By any angle: its joints neither bend nor twist."""
    n = 10
    s = np.linspace(0, 2 * np.pi if closed else 2, n, endpoint=not closed)
    x = np.stack([0.3 * np.cos(s), 0.3 * np.sin(s), 0 * s], 1)
    edges = np.stack([np.arange(n), (np.arange(n) + 1) % n], 1)[: n if closed else n - 1]
    params = rod.Params(mesh.build(x, edges), 0.2, 0.01, 0.01, 0.05, 0.05)
    a, b = rod.joints(params.mesh).T
    rest = init(params).q
    turns = Rotation.from_rotvec([[0, 0, 0], [np.pi / 2, 0, 0], [np.pi, 0, 0], [1.0, -2.0, 0.5]])
    q = init(params, np.stack([turn.apply(x) for turn in turns])).q
    rest, q = (quat_mul(inverse(f[:, a]), f[:, b]) for f in (rest, q))
    np.testing.assert_allclose(q * jnp.sign((q * rest).sum(-1, keepdims=True)), rest.repeat(4, 0), rtol=0, atol=1e-13)


def bends(params: rod.Params, x: Any) -> np.ndarray:
    """Angles of the joints of a rod laid along x, beyond those at rest: two of the bend, and the twist."""
    a, b = rod.joints(params.mesh).T
    rest, q = (quat_mul(inverse(f[:, a]), f[:, b]) for f in (init(params).q, init(params, x[None]).q))
    return np.asarray(log(quat_mul(inverse(rest), q)))[0]


def test_a_straight_rod_bends_where_it_is_laid_and_does_not_twist():
    """In arcs and helices, also across its direction at rest and back along it: each joint bends as its edges do."""
    s = np.linspace(0, 2.5, 13)
    params = rod.Params(mesh.rope(12, 1.0), 0.2, 0.01, 0.01, 0.05, 0.05)
    arc = np.stack([0 * s, np.sin(s), 1 - np.cos(s)], 1) / 2.5
    helix = np.stack([np.cos(2 * s), np.sin(2 * s), s], 1) / 5
    for x in (arc, arc[:, [1, 0, 2]], helix, np.outer(s, [-0.4, 0, 0])):
        found, t = bends(params, x), np.diff(x, axis=0)
        angle = 2 * np.arcsin(np.linalg.norm(np.diff(t / np.linalg.norm(t, axis=1, keepdims=True), axis=0), axis=1) / 2)
        assert abs(found[:, 2]).max() < 1e-14
        np.testing.assert_allclose(np.linalg.norm(found, axis=1), 4 * np.tan(angle / 4), rtol=0, atol=1e-13)


def test_rods_of_one_mesh_are_laid_each_by_itself():
    """Their edges are not in order, and a ring is among them; each is only turned, by another turn."""
    x = np.random.default_rng(0).normal(size=(11, 3))
    edges = np.array([[3, 4], [0, 1], [4, 5], [9, 10], [1, 2], [6, 7], [8, 9], [10, 8]])
    params = rod.Params(mesh.build(x, edges), 0.2, 0.01, 0.01, 0.05, 0.05)
    turns = [Rotation.from_rotvec(v) for v in ([1, 2, -1], [0, 3, 1], [2, 0, 0], [0.1, -2, 2])]
    laid = [turn.apply(part) for turn, part in zip(turns, np.split(x, [3, 6, 8]), strict=True)]
    assert abs(bends(params, np.concatenate(laid))).max() < 1e-13


def test_the_twist_of_a_ring_is_shared():
    """Laid in a figure of eight it must twist. Twist and writhe are a whole number of turns (Calugareanu 1961)."""
    n = 60
    s = np.arange(n) * 2 * np.pi / n
    ring = mesh.build(np.stack([np.cos(s), np.sin(s), 0 * s], 1), np.stack([np.arange(n), (np.arange(n) + 1) % n], 1))
    params = rod.Params(ring, 0.2, 0.01, 0.01, 0.05, 0.05)
    eight = np.stack([np.sin(s), 0.5 * np.sin(2 * s), 0.2 * np.cos(s)], 1)
    along = np.stack([np.cos(s), np.cos(2 * s), -0.2 * np.sin(s)], 1) * 2 * np.pi / n
    apart = eight[:, None] - eight
    distance = np.linalg.norm(apart, axis=-1) + np.diag(np.full(n, np.inf))
    writhe = ((np.cross(along[:, None], along) * apart).sum(-1) / distance**3).sum() / (4 * np.pi)  # Gauss's integral
    twist = bends(params, eight)[:, 2]
    assert twist.sum() / (2 * np.pi) == pytest.approx(1 - writhe, abs=1e-3)
    assert twist.std() < 0.1 * twist.mean()


@pytest.mark.parametrize(
    ("pairs", "alone"),
    [
        ([(0, 1), (1, 2), (2, 3), (3, 4)], []),
        ([(2, 0), (0, 1), (4, 3)], []),  # two rows, one not in order
        ([(0, 1), (1, 2), (2, 0)], [0]),  # a ring
    ],
)
def test_the_equations_of_joints_that_act_at_once(pairs: Any, alone: Any):
    pairs, rng = np.array(pairs), np.random.default_rng(0)
    found = chain.chains(pairs)
    assert [list(c.joints) for c in found[1:]] == ([alone] if alone else [])
    assert sorted(np.concatenate([c.joints for c in found])) == list(range(len(pairs)))
    for one in found:
        n, own = len(one.joints), pairs[one.joints]
        low, high, right = rng.normal(size=(3, 2, n))
        middle = 3 + rng.random((2, n))
        u = chain.solve(one, *map(jnp.asarray, (low, middle, high, right)))
        before, after = own[:, None, 0] == own[None, :, 1], own[:, None, 1] == own[None, :, 0]
        full = low[..., None] * before + high[..., None] * after + middle[..., None] * np.eye(n)
        np.testing.assert_allclose(np.einsum("wij,wj->wi", full, u), right, rtol=0, atol=1e-12)


def turned(q: Any, axis: Any) -> Any:
    """The angle of frames about an axis, from a rod whose frames begin alike."""
    return 2 * np.arctan2((np.asarray(q)[..., 1:] * axis).sum(-1), np.asarray(q)[..., 0])


def about(q: Any, first: Any, axis: Any) -> Any:
    """Angle by which frames have turned about an axis since the first."""
    return turned(quat_mul(jnp.asarray(q), inverse(jnp.broadcast_to(first, q.shape))), axis)


def clamped(n: int, twist: float, **numbers: Any) -> rod.Params:
    """A straight rod along x, one metre long, its first frame held."""
    return rod.Params(
        mesh.rope(n, 1.0), 0.5, 0.02, 0.01, 1.0, twist, pinned=(0, 1), clamped=(0,), substeps=40, **numbers
    )


def test_the_twist_of_a_clamped_rod():
    """A torque T at the last frame: it turns by T L / G, L from the middle of the first edge to that of the last."""
    n, twist, torque = 8, 0.02, 0.01
    params = clamped(n, twist, damping=30.0)
    state = init(params)
    load = np.zeros(state.spin.shape)
    load[0, -1, 0] = torque
    end, _ = rolled(params, state, 400, None, load)
    rod.check(params, end)
    angle = about(end.q[0], state.q[0], np.array([1.0, 0.0, 0.0]))
    np.testing.assert_allclose(angle, torque / twist * np.arange(n) / n, rtol=1e-3, atol=1e-9)
    np.testing.assert_allclose(end.x, state.x, rtol=0, atol=1e-6)


def test_a_twisted_rod_swings_with_its_period():
    """The slowest mode of a row of frames of inertia J l, the first held: from its eigenvalue, which tends to
    T = 4 L sqrt(J / G), J = rho r^2 / 2."""
    n, twist, density, radius = 8, 0.02, 0.5, 0.02
    inertia = density / n * radius**2 / 2
    stiff = twist * n * (2 * np.eye(n - 1) - np.eye(n - 1, k=1) - np.eye(n - 1, k=-1))
    stiff[-1, -1] = twist * n
    slow = np.linalg.eigvalsh(stiff / inertia)[0] ** 0.5
    assert 2 * np.pi / slow == pytest.approx(4 * (1 - 0.5 / n) * (density * radius**2 / 2 / twist) ** 0.5, rel=0.02)
    params = clamped(n, twist).replace(timestep=2 * np.pi / slow / 40)
    state = init(params)
    s = (np.arange(n)) / (n - 0.5)
    state = state.replace(spin=jnp.asarray(np.sin(np.pi / 2 * s))[None, :, None] * np.array([[[1.0, 0.0, 0.0]]]))
    _, (_, q) = rolled(params, state, 30)
    angle = about(np.asarray(q), state.q[0], np.array([1.0, 0.0, 0.0]))[:, -1]
    i = int(np.flatnonzero((angle[:-1] > 0) & (angle[1:] <= 0))[0])
    half = (i + 1 + angle[i] / (angle[i] - angle[i + 1])) / 40
    assert half == pytest.approx(0.5, rel=0.01)


def test_a_clamp_that_turns_twists_and_a_curved_rod_is_at_rest():
    """Both ends held, one turned by a right angle: the twist is even. A rod that is curved at rest stays there."""
    n = 8
    params = clamped(n, 0.02, damping=30.0).replace(pinned=(0, 1, n - 1, n), clamped=(0, n - 1))
    state = init(params)
    half = jnp.asarray([np.cos(np.pi / 8), np.sin(np.pi / 8), 0.0, 0.0])

    def advance(state: rod.State, k: Any) -> tuple[rod.State, None]:
        goal = jnp.where(k < 2, quat_mul(half, state.q[0, -1]), state.q[0, -1])
        return rod.step(params, state, turns=jnp.stack([state.q[0, 0], goal])), None

    end = jax.jit(lambda s: jax.lax.scan(advance, s, jnp.arange(300))[0])(state)
    angle = about(end.q[0], state.q[0], np.array([1.0, 0.0, 0.0]))
    np.testing.assert_allclose(angle, np.pi / 2 * np.arange(n) / (n - 1), atol=2e-3)
    s = np.linspace(0, 3.0, n + 1)
    bow = mesh.build(np.stack([np.cos(s), np.sin(s), 0.2 * s], 1), params.mesh.elements)
    free = rod.Params(bow, 0.5, 0.02, 0.02, 1.0, 0.5, substeps=10)
    still, _ = rolled(free, init(free), 5)
    np.testing.assert_allclose(still.x[0], bow.vertices, rtol=0, atol=1e-12)


def test_a_free_rod_keeps_its_momentum():
    rng = np.random.default_rng(0)
    line = mesh.rope(6, 0.6)
    params = rod.Params(line, 0.5, 0.02, 0.01, 1e-2, 1e-2, 1e-4, substeps=20)
    state = init(params, line.vertices[None], rng.normal(size=(1, 7, 3)))
    mass = 0.05 * np.r_[0.5, np.ones(5), 0.5]
    end, _ = rolled(params, state, 20)
    np.testing.assert_allclose(mass @ np.asarray(end.v[0]), mass @ np.asarray(state.v[0]), rtol=0, atol=1e-13)


def test_the_elasticas_numbers():
    """The table is that of the pendulum's equation theta'' = -p cos theta, shot from the clamp."""
    from scipy.integrate import solve_ivp

    def shot(slope: float) -> Any:
        return solve_ivp(
            lambda s, y: [y[1], -np.cos(y[0]), np.cos(y[0]), np.sin(y[0])],
            (0, 1),
            [0, slope, 0, 0],
            rtol=1e-10,
            atol=1e-12,
        ).y[:, -1]

    slope: Any = brentq(lambda slope: shot(slope)[1], 0.1, 2.0)
    y = shot(slope)
    assert y[3] == pytest.approx(0.3017, abs=1e-4) and 1 - y[2] == pytest.approx(0.0564, abs=1e-4)
