"""Fault 51, and those of all solvers in deformables: what cannot be a body is named, or its world alone is held."""

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fphys.deformables import fem, mesh, pbd, rod
from fphys.errors import ModelError, StateError, UnsupportedError
from fphys.particles import boundary, mpm
from fphys.worlds import Status

BODY = mesh.box((3, 2), (0.3, 0.2))
N, E = len(BODY.vertices), len(BODY.elements)
SHEET = mesh.cloth((2, 2), (0.2, 0.2))
WORLDS, BAD = 3, 1

step = jax.jit(fem.step)


def beam(law: Any = None, **changed: Any) -> fem.Params:
    law = law or fem.NeoHookean(1000.0, 1e4, 0.3)
    return fem.Params(**{"mesh": BODY, "material": law, "timestep": 1e-2, "gravity": (0.0, -9.81), **changed})


def each(value: float, at: int, wrong: float) -> np.ndarray:
    """A number for each element, one of them wrong."""
    return np.where(np.arange(E) == at, wrong, value)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"material": fem.NeoHookean(1000.0, 1e4, 0.5)},
            "NeoHookean.poisson is 0.5: it must be above -1 and below 0.5",
        ),
        ({"material": fem.Corotated(1000.0, each(1e4, 4, -1.0), 0.3)}, "young is -1.0, first in element 4.*above 0"),
        ({"material": fem.Corotated(0.0, 1e4, 0.3)}, "Corotated.density is 0.0"),
        ({"material": fem.Corotated(np.nan, 1e4, 0.3)}, "Corotated.density is nan"),
        ({"timestep": 0.0}, "params.timestep is 0.0: it must be positive, or infinite"),
        ({"gravity": (0.0, np.nan)}, r"params.gravity is \[0.0, nan\]: it must be finite"),
        ({"damping": -1.0}, "params.damping is -1.0"),
        ({"stiffness_damping": -1.0}, "params.stiffness_damping is -1.0"),
        ({"contact": fem.Contact(thickness=0.0)}, "params.contact.thickness is 0.0"),
        ({"mesh": SHEET, "gravity": 0.0, "thickness": 0.0}, "params.thickness is 0.0: it must be finite and positive"),
        ({"mesh": SHEET, "gravity": 0.0, "thickness": 0.01, "bending": -1.0}, "params.bending is -1.0: it must be"),
        ({"timestep": np.inf, "order": 2}, "for the equilibrium leave the order at 1"),
        ({"timestep": np.inf, "explicit": True}, "is infinite and params.explicit set"),
        ({"stiffness_damping": 0.1, "explicit": True}, "explicit steps are damped by mass only"),
        ({"timestep": 0.1, "explicit": True}, "params.timestep is 0.1 s: explicit steps of this body are stable below"),
        (
            {"mesh": SHEET, "gravity": 0.0, "thickness": 0.01, "material": fem.NeoHookean(1000.0, 1e4, -0.72)},
            "above -0.714286 and below 0.5, or this law is unstable in a sheet",
        ),
        (
            {"mesh": SHEET, "gravity": 0.0, "thickness": 0.01, "material": fem.NeoHookean(1000.0, 1e4, 0.6)},
            "above -0.714286 and below 0.5$",
        ),
        ({"mesh": BODY.replace(vertices=BODY.vertices * [-1, 1])}, "element 0 of the mesh is inside out"),
    ],
)
def test_numbers_that_cannot_be_simulated_are_refused_by_name(changed: Any, message: str):
    with pytest.raises(ValueError, match=message):
        fem.init(beam(**changed))


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: beam(pinned=(0, N)), ValueError, rf"params.pinned has {N}: the mesh has {N} vertices, 0 to {N - 1}"),
        (lambda: beam(pinned=(-1,)), ValueError, "params.pinned has -1"),
        (lambda: beam(iterations=0), ValueError, "params.iterations is 0"),
        (lambda: beam(order=3), ValueError, "params.order is 3"),
        (
            lambda: beam(fem.StVenantKirchhoff(1000.0, 1e4, 0.3), mean_dilatation=True),
            UnsupportedError,
            "StVenantKirchhoff has none",
        ),
        (lambda: beam(mesh=mesh.cloth((2, 2), (1.0, 1.0))), ValueError, "params.thickness is missing: a sheet"),
        (lambda: beam(thickness=0.01), ValueError, "params.thickness is for sheets"),
        (lambda: beam(bending=0.01), ValueError, "params.bending is for sheets"),
        (
            lambda: beam(mesh=mesh.cloth((2, 2), (1.0, 1.0)), thickness=0.01, mean_dilatation=True),
            UnsupportedError,
            "a sheet is in plane stress",
        ),
        (lambda: beam(contact=fem.Contact(pairs=9)), UnsupportedError, "in the plane a body does not meet itself"),
        (lambda: beam(explicit=True, order=2), UnsupportedError, "explicit steps do not take order=2"),
        (lambda: beam(mesh=mesh.rope(2, 1.0)), UnsupportedError, "elements of edge kind with 3 coordinates"),
        (
            lambda: beam(
                fem.StVenantKirchhoff(1000.0, 1e4, 0.3, plane_stress=True), mesh=mesh.box((1, 1, 1), (1.0, 1.0, 1.0))
            ),
            ValueError,
            "plane_stress is for triangles",
        ),
    ],
)
def test_a_body_that_cannot_be_is_refused(make: Any, error: Any, message: str):
    with pytest.raises(error, match=message):
        make()


def test_a_vertex_that_is_not_finite_is_named():
    x = np.array(np.broadcast_to(BODY.vertices, (2, N, 2)))
    x[1, 5, 0] = np.nan
    with pytest.raises(ValueError, match=r"positions of vertex 5 in world 1 are \[nan"):
        fem.init(beam(), x)
    with pytest.raises(ValueError, match="velocities of vertex 5 in world 1"):
        fem.init(beam(), np.nan_to_num(x), x)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda s: fem.init(beam(), np.zeros((1, N + 1, 2))), ValueError, "positions have shape"),
        (lambda s: fem.init(beam(), np.zeros((1, N, 2), int)), TypeError, "make them float32 or float64"),
        (lambda s: fem.init(beam(), jnp.zeros((1, N, 2), jnp.float16)), TypeError, "positions are float16: make them"),
        (lambda s: fem.init(beam(3.0)), TypeError, r"params\.material is a float: give fem\.NeoHookean"),
        (lambda s: fem.init(beam(contact=-1.0)), TypeError, r"params\.contact is a float: give fem\.Contact"),
        (
            lambda s: fem.step(beam(mpm.NeoHookean(1000.0, 1e4, 0.3)), s),
            TypeError,
            r"params\.material is a fphys\.particles\.materials\.NeoHookean: give fem\.NeoHookean\(\.\.\.\), or",
        ),
        (lambda s: fem.step(beam(), s, force=jnp.zeros((1, N, 3))), ValueError, "force has shape"),
        (
            lambda s: fem.step(beam(pinned=(0, 1)), s, pins=jnp.zeros((3, 2))),
            ValueError,
            "one row for each of params.pinned",
        ),
        (lambda s: fem.step(beam(timestep=jnp.ones(3)), s), ValueError, "timestep is given for 3 worlds, there are 1"),
        (lambda s: fem.step(beam(fem.Corotated(1e3, np.ones(E + 1), 0.3)), s), ValueError, "material.young has shape"),
        (lambda s: fem.step(beam(gravity=jnp.zeros(2, jnp.float32)), s), TypeError, "nothing is cast silently"),
        (lambda s: fem.step(s, s), TypeError, r"step takes \(fem.Params, fem.State"),
        (lambda s: fem.step(beam(), s, actuation=jnp.zeros((1, 1, 2, 2))), ValueError, "actuation has shape"),
        (
            lambda s: fem.step(beam(), s, colliders=(boundary.sphere((0.0, 0.0), 0.1, contact="slip"),)),
            UnsupportedError,
            r'colliders\[0\].contact is \'slip\': fem has "separate" and "sticky"',
        ),
        (
            lambda s: fem.step(beam(explicit=True), s, colliders=(boundary.sphere((0.0, 0.0), 0.1),)),
            UnsupportedError,
            "explicit steps do not meet colliders",
        ),
        (
            lambda s: fem.step(
                beam(timestep=np.inf), s, colliders=(boundary.sphere((0.0, 0.0), 0.1, contact="sticky"),)
            ),
            UnsupportedError,
            "an equilibrium has no friction, pin its vertices",
        ),
    ],
)
def test_arguments_that_do_not_fit(call: Any, error: Any, message: str):
    with pytest.raises(error, match=message):
        call(fem.init(beam()))


def test_one_collider_needs_no_tuple():
    state, floor = fem.init(beam()), boundary.plane((0.0, 0.05), (0.0, 1.0))
    one, several = (jax.tree.leaves(step(beam(), state, colliders=c)) for c in (floor, (floor,)))
    for a, b in zip(one, several, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("solver", [pbd, rod])
def test_nor_does_one_beside_cloth_or_rods(solver: Any):
    ball = boundary.sphere((0.3, 0.0, 0.0), 0.1)
    params = soft(solver)
    one, several = (solver.step(params, solver.init(params), colliders=c) for c in (ball, (ball,)))
    np.testing.assert_array_equal(one.x, several.x)
    assert not np.array_equal(one.x, solver.init(params).x)


ROPE = mesh.rope(4, 1.0)


def soft(solver: Any = rod, **changes: Any) -> Any:
    """Parameters of a rope."""
    numbers: Any = {"radius": 0.01, "bend": 1.0, "twist": 1.0} if solver is rod else {}
    return solver.Params(**{"mesh": ROPE, "density": 0.2, "timestep": 0.01, "substeps": 2, **numbers, **changes})


@pytest.mark.parametrize("solver", [pbd, rod])
@pytest.mark.parametrize("name", ["timestep", "density"])
def test_parameters_of_other_worlds_are_named(solver: Any, name: str):
    """One value for each of three worlds, where there are two."""
    given = jnp.full((3, 4) if name == "density" else 3, 0.01)
    with pytest.raises(ValueError, match=f"params.{name} is given for 3 worlds, there are 2: give one for all"):
        solver.step(soft(solver, **{name: given}), solver.init(soft(solver), num_worlds=2))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: rod.init(soft(gravity=(0, 0, np.nan))), r"params.gravity is \[0.0, 0.0, nan\]: it must be finite"),
        (lambda: pbd.init(soft(pbd, gravity=(0, np.inf, 0))), "params.gravity is .*: it must be finite"),
        (lambda: rod.init(soft(), np.zeros((1, 5, 3))), "the vertices 0 and 1 of positions are in one place"),
        (
            lambda: rod.init(soft(mesh=ROPE.replace(vertices=np.eye(5, 3)))),
            "the vertices 3 and 4 of params.mesh are in one",
        ),
    ],
)
def test_what_could_not_be_simulated_is_named_at_once(call: Any, message: str):
    with pytest.raises(ValueError, match=message):
        call()


def worlds() -> tuple[fem.Params, fem.State]:
    params = beam(pinned=(0, 1, 2))
    return params, fem.init(params, num_worlds=WORLDS)


def held_alone(params: fem.Params, state: fem.State, bit: fem.Status, **loads: Any) -> None:
    good, start = worlds()
    after, clean = step(params, state, **loads), step(good, start)
    assert np.asarray(after.status).tolist() == [0, int(bit), 0]
    for name in ("x", "v"):
        ours, theirs = np.asarray(getattr(after, name)), np.asarray(getattr(clean, name))
        np.testing.assert_array_equal(ours[[0, 2]], theirs[[0, 2]])
        np.testing.assert_array_equal(ours[BAD], np.asarray(getattr(state, name))[BAD])
    with pytest.raises(StateError, match=f"world {BAD}: {bit.name}: ."):
        fem.check(params, after)


def test_a_faulty_world_is_held_alone():
    params, state = worlds()
    held_alone(params, state.replace(x=state.x.at[BAD, 7].set(jnp.nan)), fem.Status.NONFINITE)
    pins = jnp.broadcast_to(state.x[:, :3], (WORLDS, 3, 2)).at[BAD, 0, 0].set(jnp.nan)
    held_alone(params, state, fem.Status.BADCTRL, pins=pins)
    young = jnp.full((WORLDS, 1), 1e4).at[BAD].set(-1.0)
    held_alone(params.replace(material=params.material.replace(young=young)), state, fem.Status.BADPARAM)
    rest = jnp.broadcast_to(jnp.asarray(BODY.vertices), (WORLDS, N, 2)).at[BAD, 7].set(jnp.nan)
    held_alone(params.replace(mesh=BODY.replace(vertices=rest)), state, fem.Status.BADPARAM)
    ball = boundary.sphere(jnp.full((WORLDS, 2), 9.0).at[BAD].set(jnp.nan), 0.1)
    held_alone(params, state, fem.Status.BADCTRL, colliders=(ball,))
    ball = boundary.sphere((9.0, 9.0), 0.1, contact="sticky")
    endless = params.replace(timestep=jnp.full(WORLDS, 1e-2).at[BAD].set(jnp.inf))
    held_alone(endless, state, fem.Status.BADPARAM, colliders=(ball,))


def test_a_faulty_world_pushes_no_collider():
    """And passes no gradient, also where parameters are shared."""
    params, state = worlds()
    ball, state = boundary.sphere((0.15, -0.09), 0.1), state.replace(x=state.x.at[BAD, 7].set(jnp.nan))

    def pushes(young: Any) -> Any:
        given = params.replace(material=params.material.replace(young=young))
        return fem.reactions(given, state, fem.step(given, state, colliders=(ball,)), (ball,))[:, 0, 1]

    found = jax.jit(pushes)(jnp.asarray(1e4))
    assert (found[jnp.array([0, 2])] < 0).all() and found[BAD] == 0
    slope = jax.jit(jax.grad(lambda young: pushes(young).sum()))(jnp.asarray(1e4))
    assert np.isfinite(slope) and slope != 0


def test_a_rest_shape_that_cannot_be_passes_no_gradient():
    """By parameters that all worlds share, the others' gradient."""
    params, state = worlds()

    def loss(young: Any, rest: Any) -> Any:
        given = params.replace(mesh=BODY.replace(vertices=rest), material=params.material.replace(young=young))
        return (fem.step(given, state).x[jnp.array([0, 2])] ** 2).sum() + fem.step(given, state).x[BAD].sum()

    gradient, rest = jax.jit(jax.grad(loss, argnums=(0, 1))), jnp.broadcast_to(BODY.vertices, (WORLDS, N, 2))
    for wrong in (jnp.nan, 0.1):
        by_young, by_rest = gradient(jnp.asarray(1e4), rest.at[BAD, 7:].set(wrong))
        assert np.isfinite(by_young) and by_young != 0 and np.isfinite(by_rest).all() and not by_rest[BAD].any()


def test_a_body_that_nothing_holds_has_no_equilibrium():
    params = beam(timestep=jnp.inf)
    after = step(params, fem.init(params))
    assert int(after.status[0]) & int(fem.Status.UNCONVERGED) and float(after.residual[0]) > 1e-3
    with pytest.raises(StateError, match=r"UNCONVERGED: Newton's method stopped.*hold the body by pins"):
        fem.check(params, after)


def test_too_few_iterations_are_reported():
    params = beam(pinned=(0, 1, 2), timestep=jnp.inf, iterations=1, material=fem.NeoHookean(1000.0, 2e4, 0.3))
    after = step(params, fem.init(params))
    assert np.asarray(after.status).tolist() == [int(fem.Status.UNCONVERGED)]
    more = params.replace(iterations=50)
    done = step(more, fem.init(more))
    fem.check(more, done)
    later = step(more, after)  # the bit stays, and what it points to
    assert later.status == after.status and later.residual == after.residual > 1e3 * done.residual


def test_an_inverted_element_is_named_and_the_body_goes_on():
    params = beam(pinned=(0, 1, 2, N - 1), gravity=0.0)
    state = fem.init(params)
    beyond = state.x[:, jnp.array(params.pinned)].at[:, -1, 0].add(-0.25)
    after = step(params, state, pins=beyond)
    assert np.asarray(after.status).tolist() == [int(fem.Status.INVERTED)]
    with pytest.raises(StateError) as found:
        fem.check(params, after)
    element = int(re.findall(r"the first is element (\d+)", str(found.value))[0])
    assert mesh.measures(np.asarray(after.x[0]), BODY.elements)[element] <= 0
    back = step(params, after, pins=state.x[:, jnp.array(params.pinned)])
    assert (mesh.measures(np.asarray(back.x[0]), BODY.elements) > 0).all()


def test_a_sheet_that_cannot_be_is_held_alone():
    """Of three worlds one has no thickness."""
    thick = jnp.full((WORLDS, 1), 0.01).at[BAD].set(0.0)
    params = beam(mesh=SHEET, gravity=(0.0, 0.0, -9.81), thickness=thick, pinned=(0, 1))
    state = fem.init(params.replace(thickness=0.01), num_worlds=WORLDS)
    after = step(params, state)
    assert np.asarray(after.status).tolist() == [0, int(fem.Status.BADPARAM), 0]
    assert np.array_equal(after.x[BAD], state.x[BAD]) and np.array_equal(after.x[0], after.x[2])
    slope = jax.grad(lambda t: step(params.replace(thickness=t), state).x.sum())(thick)
    assert np.isfinite(slope).all() and not slope[BAD].any()


def test_more_pairs_than_there_is_room_for_are_reported():
    """Two blocks, in one world near to each other: that world alone has the bit, and goes on; with room it has none.

    Which pairs act changes from one iteration to the next, so that it may be UNCONVERGED, too.
    """
    cube = mesh.box((1, 1, 1), (0.2, 0.2, 0.2))
    x = np.concatenate([cube.vertices, cube.vertices + [0.03, 0.02, 0.203]])
    both = mesh.build(x, np.concatenate([cube.elements, cube.elements + 8]))
    contact = fem.Contact(1e5, 5e-3, pairs=2)
    params = beam(mesh=both, gravity=0.0, contact=contact)
    apart = x + (np.arange(16) >= 8)[:, None] * [0.0, 0.0, 0.2]
    state = fem.init(params, jnp.asarray(np.stack([apart, x])))
    after = step(params, state)
    assert int(after.status[0]) == 0 and int(after.status[BAD]) & int(Status.CONTACT_OVERFLOW)
    assert np.array_equal(after.x[0], step(params, fem.init(params, apart[None])).x[0])
    assert np.isfinite(after.x).all() and (after.x[BAD, 8:, 2] > state.x[BAD, 8:, 2]).any()
    with pytest.raises(
        StateError, match=r"CONTACT_OVERFLOW: the body met itself in more than 2 pairs.*contact.pairs=4"
    ):
        fem.check(params, after)
    more = params.replace(contact=contact.replace(pairs=200))
    fem.check(more, step(more, state))


# --- position-based dynamics

CURVED = SHEET.replace(vertices=SHEET.vertices + np.array([0, 0, 1]) * SHEET.vertices[:, :1] ** 2)


def sheet(**changed: Any) -> pbd.Params:
    return pbd.Params(**{"mesh": SHEET, "density": 0.2, "timestep": 1e-2, "stretch": 1e-3, "substeps": 2, **changed})


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"density": np.r_[np.full(9, 0.2), -1.0]}, "params.density of element 9 is -1.0: it must be positive"),
        ({"stretch": -1e-3}, "params.stretch is -0.001: it must be finite and not negative"),
        ({"bend": np.nan}, "params.bend is nan"),
        ({"squeeze": -1.0}, "params.squeeze is -1.0"),
        ({"timestep": 0.0}, "params.timestep is 0.0: it must be positive"),
        ({"thickness": -1.0}, "params.thickness is -1.0"),
        ({"stretch": np.ones(3)}, r"params.stretch has shape \(3,\)"),
        ({"bend": 1e-3, "mesh": CURVED}, "the mesh is bent at rest, first at the vertices"),
        ({"pinned": (99,)}, "params.pinned has 99"),
        ({"substeps": 0}, "params.substeps is 0"),
        ({"mesh": mesh.rope(2, 1.0), "squeeze": 0.0}, "params.squeeze is for triangles and tetrahedra"),
        ({"mesh": mesh.box((1, 1, 1), (1.0, 1.0, 1.0)), "bend": 1.0}, "params.bend is for ropes and cloth"),
    ],
)
def test_a_sheet_that_cannot_be_is_refused_by_name(changed: Any, message: str):
    with pytest.raises(ValueError, match=message):
        pbd.init(sheet(**changed))


def test_a_collider_that_sticks_out_of_the_rules_is_named():
    state = pbd.init(sheet())
    slip = boundary.sphere((0, 0, 0), 0.1, contact="slip")
    with pytest.raises(ValueError, match=r'colliders\[0\].contact is \'slip\': pbd has "separate" and "sticky"'):
        pbd.step(sheet(), state, colliders=(slip,))


@pytest.mark.parametrize("what", ["force", "pins", "collider"])
def test_a_load_that_is_not_finite_skips_the_step_of_its_world(what: str):
    params = sheet(pinned=(0,))
    state = pbd.init(params, num_worlds=3)
    wrong = lambda shape: jnp.zeros(shape).at[BAD].set(jnp.nan)  # noqa: E731
    ball = boundary.sphere((0.0, 0.0, -1.0), 0.1)
    loads: Any = {
        "force": {"force": wrong(state.x.shape)},
        "pins": {"pins": state.x[:, :1] + wrong((3, 1, 1))},
        "collider": {"colliders": (ball.replace(velocity=wrong((3, 3))),)},
    }[what]
    after = jax.jit(pbd.step)(params, state, **loads)  # what is known on the host is refused at once
    assert np.asarray(after.status).tolist() == [0, int(Status.BADCTRL), 0]
    assert np.array_equal(after.x[BAD], state.x[BAD]) and np.isfinite(after.x).all()
    with pytest.raises(StateError, match="BADCTRL: force, pins or a collider were not finite"):
        pbd.check(params, after)


def test_more_neighbours_than_there_is_room_for_are_reported():
    """A sheet that is crumpled in one world: that world alone has the bit, and goes on; with room it has none."""
    params = sheet(stretch=1e3, apart=0.05, neighbors=2)  # soft, so that it stays so
    flat = np.broadcast_to(SHEET.vertices, (WORLDS, *SHEET.vertices.shape)).copy()
    crumpled = flat.copy()
    crumpled[BAD] *= 0.2
    start, clean = pbd.init(params, jnp.asarray(crumpled)), pbd.init(params, jnp.asarray(flat))
    after = jax.jit(pbd.step)(params, start)
    assert np.asarray(after.status).tolist() == [0, int(Status.NEIGHBOR_OVERFLOW), 0]
    assert np.array_equal(after.x[0], jax.jit(pbd.step)(params, clean).x[0]) and np.isfinite(after.x).all()
    assert not np.array_equal(after.x[BAD], start.x[BAD])
    with pytest.raises(StateError, match=r"world 1: NEIGHBOR_OVERFLOW: .*more than 2 others.*params.neighbors=4"):
        pbd.check(params, after)
    pbd.check(params.replace(neighbors=24), jax.jit(pbd.step)(params.replace(neighbors=24), start))


def test_numbers_that_are_not_whole_are_refused():
    """A mask would be vertices 0 and 1, two and a half substeps too much gravity."""
    body = mesh.cloth((2, 2), (1.0, 1.0))
    with pytest.raises(TypeError, match=r"np\.flatnonzero"):
        pbd.Params(body, 1.0, 0.01, pinned=body.vertices[:, 0] == 0)
    with pytest.raises(TypeError, match=r"given as 2\.9"):
        pbd.Params(body, 1.0, 0.01, pinned=(0, 2.9))
    with pytest.raises(TypeError, match=r"vertices are given as 3: give their numbers"):
        pbd.Params(body, 1.0, 0.01, pinned=3)
    with pytest.raises(TypeError, match=r"one of the edges is given as True: .*np\.flatnonzero"):
        soft(clamped=np.array([True, False, False, False]))
    with pytest.raises(ValueError, match="a whole number"):
        pbd.Params(body, 1.0, 0.01, substeps=2.5)
    for make in (
        lambda: mesh.rope(2.5, 1.0),
        lambda: mesh.box((2, 2.5, 1), (1.0, 1.0, 1.0)),
        lambda: mesh.cloth((2, 2.5), (1.0, 1.0)),
        lambda: pbd.init(pbd.Params(body, 1.0, 0.01), num_worlds=2.5),
        lambda: fem.Params(BODY, fem.NeoHookean(1000.0, 1e4, 0.3), 0.01, contact=fem.Contact(pairs=2.5)),
    ):
        with pytest.raises(TypeError, match=r" is (of type float|2\.5).*, must be a whole number"):
            make()
    with pytest.raises(ValueError, match="num_worlds is 0"):
        pbd.init(pbd.Params(body, 1.0, 0.01), num_worlds=0)


def test_files_are_read_by_vertex_or_refused_by_name(tmp_path):
    """Two places in a texture do not make two vertices; a file that is none does not end Python."""
    seam = tmp_path / "seam.obj"
    seam.write_text(
        "v 0 0 0\nv 1 0 0\nv 1 1 0\nv 0 1 0\nvt 0 0\nvt 1 0\nvt 1 1\nvt 0 1\nf 1/1 2/2 3/3\nf 1/2 3/1 4/4\n"
    )
    assert mesh.load(seam).topology.num_vertices == 4
    for name, text in {"hello.msh": "hello", "far.obj": "v 0 0 0\nv 1 0 0\nv 0 1 0\nf 1 2 7\n"}.items():
        (tmp_path / name).write_text(text)
        with pytest.raises(ModelError, match=name):
            mesh.load(tmp_path / name)
