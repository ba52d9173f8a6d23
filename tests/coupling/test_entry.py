"""Bodies that fall into water, against measurements: a wedge and a cylinder, in the plane; what a step takes."""

from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fphys
from fphys import coupling, units
from fphys.deformables import mesh, pbd
from fphys.errors import ModelError
from fphys.particles import sph
from fphys.worlds import Status

from .scenes import STEP, Scene, ball, clear, grid, in_fem, in_mpm, in_sph, in_tank, sides

FALL = """<mujoco><option timestep="{step}" gravity="0 -9.81 0"/><worldbody><body>
<joint type="slide" axis="0 1 0"/><inertial pos="0 0 0" mass="{mass}" diaginertia="1 1 1"/></body>
</worldbody></mujoco>"""


def entry(
    body: np.ndarray, mass: float, speed: float, spacing: float, size: Any, sound: float, seconds: float, step: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Times [s], depths of the lowest point below the water's level [m], and speeds [m/s], downwards.

    Args:
        body: particles in its frame, whose origin is its lowest point.
        mass: for a metre [kg/m].
        size: width and depth of the water [m].
    """
    (width, deep), real = size, {"dtype": jnp.float64}
    lower, upper = np.array([-width / 2, -deep]), np.array([width / 2, 0.0])
    params = sph.Params(spacing, step, sound, gravity=(0, -9.81), artificial=0.05)
    at = np.array([0.0, 0.0])
    water = clear(grid(lower, upper, spacing), body + at, spacing)
    tank = sides(lower, upper, 0.5 * deep, spacing)
    pressure = np.concatenate([-9810.0 * water[:, 1], np.zeros(len(tank) + len(body))])[None]
    kinds = sph.SLIP_WALL, sph.SLIP_WALL
    given = {"pressure": jnp.asarray(pressure), "max_neighbors": 80}
    medium, matter, substeps = in_tank(params, 3 * speed, water, tank, body, at, kinds, **given)
    model = fphys.load(FALL.format(step=step, mass=mass), **real)
    state = fphys.init(model, 1).replace(qvel=jnp.full((1, 1), -speed))

    @jax.jit
    def roll(state: Any, matter: Any) -> Any:
        def advance(now: Any, _: None) -> Any:
            state, (matter,) = coupling.step(model, now[0], (medium,), (now[1],), substeps=substeps)
            return (state, matter), (state.qpos[0, 0], state.qvel[0, 0])

        return jax.lax.scan(advance, (state, matter), None, round(seconds / step))

    (state, matter), (y, v) = roll(state, matter)
    faults = int(matter.status[0]) & ~int(sph.Status.CFL)
    assert not faults and not np.asarray(state.status).any()
    return step * np.arange(1, len(y) + 1), -np.asarray(y), -np.asarray(v)


def wedge(spacing: float, deadrise: float = 25.0, beam: float = 1.2) -> np.ndarray:
    """Rows of particles along both faces."""
    slope = np.radians(deadrise)
    along, inwards = np.array([np.cos(slope), np.sin(slope)]), np.array([-np.sin(slope), np.cos(slope)])
    s = spacing * (np.arange(round(beam / 2 / np.cos(slope) / spacing)) + 0.5)
    rows = np.concatenate([s[:, None] * along + (k + 0.5) * spacing * inwards for k in range(3)])
    right = rows[rows[:, 0] > 0.25 * spacing]
    return np.concatenate([right, right * [-1, 1]])


def cylinder(spacing: float, radius: float) -> np.ndarray:
    """Rings of particles, above the origin."""
    rings = []
    for r in radius - spacing * (np.arange(min(round(radius / spacing), 4)) + 0.5):
        count = max(round(2 * np.pi * r / spacing), 1)
        angle = 2 * np.pi * (np.arange(count) + 0.5) / count
        rings.append(r * np.stack([np.cos(angle), np.sin(angle)], -1))
    return np.concatenate(rings) + [0.0, radius]


YETTOU = np.array([(5.9, 4.73), (10.8, 3.96), (15.4, 3.07), (20.9, 2.50), (26.0, 2.29), (30.5, 2.07), (39.9, 1.78)])
"""Times [ms] and speeds [m/s] of a wedge of 94 kg that falls at 5.05 m/s (Yettou, Desrochers and Champoux 2006).

The plane problem takes 94 kg/m, with which the theory beside it agrees; its own mass for a metre was not found.
"""

ZHAO = np.array([(4.9, 4.68), (10.7, 3.83), (15.4, 3.25), (20.2, 2.77), (40.1, 1.76)])
"""The same by the theory of Zhao and Faltinsen, digitised."""

CYLINDER = {
    0.5: np.array([(0.277, 0.50), (0.378, 0.61), (0.797, 1.07), (1.131, 1.22)]),
    1.0: np.array([(0.843, 1.68), (1.032, 2.01), (1.881, 2.72)]),
}
"""t (g / D)^(1/2) and depth / D of a cylinder by its density: D = 0.11 m, 2.955 m/s, digitised with an error of 10 %.

Of density 1, the points (0.138, 0.40) and (0.282, 0.94) are left out: free flight without any water reaches 0.403 and
0.84 at these times.
"""


def cylinder_depths(density: float, across: int, sound: float, until: float) -> np.ndarray:
    """Relative errors of the depths at the measured times up to a time."""
    size, spacing = 0.11, 0.11 / across
    points = CYLINDER[density]
    points, rate = points[points[:, 0] <= until], np.sqrt(9.81 / size)
    mass, water = 1000 * density * np.pi * size**2 / 4, (8 * size, 6 * size)
    body = cylinder(spacing, size / 2)
    t, y, _ = entry(body, mass, 2.955, spacing, water, sound, points[-1, 0] / rate + 2e-3, 1e-3)
    return np.interp(points[:, 0], t * rate, y / size) / points[:, 1] - 1


def test_a_light_cylinder(full: bool):
    assert np.abs(cylinder_depths(0.5, 12, 25.0, 2.0 if full else 0.4)).max() < 0.1


@pytest.mark.slow
def test_a_cylinder_as_dense_as_water():
    """A miss: 8 to 15 % less deep than measured, with twenty particles across; 12 to 18 % with twelve."""
    errors = cylinder_depths(1.0, 20, 40.0, 2.0)
    assert (errors < 0).all() and np.abs(errors).max() < 0.16 and abs(errors[-1]) < 0.1


@pytest.mark.slow
def test_a_wedge():
    """Within 5 % of theory; of the measurement only early and late, for in between the two differ by 10 %."""
    t, _, v = entry(wedge(0.01), 94.0, 5.05, 0.01, (3.0, 1.0), 80.0, 0.0405, 5e-4)
    theory, measured = (np.interp(a[:, 0], 1e3 * t, v) / a[:, 1] - 1 for a in (ZHAO, YETTOU))
    assert np.abs(theory).max() < 0.05
    assert np.abs(measured[[0, 1, 5, 6]]).max() < 0.05 and np.abs(measured).max() < 0.14


def step(scene: Scene, **given: Any) -> Any:
    """A step of the scene, with other arguments."""
    named = {"media": scene.media, "matter": scene.matter, "substeps": scene.substeps} | given
    return coupling.step(scene.model, scene.state, named.pop("media"), named.pop("matter"), **named)


def held_cloth(**given: Any) -> Scene:
    """A ball above a cloth that is held at two corners, whose holders rise."""
    cloth = mesh.cloth((2, 2), (0.6, 0.6))
    params = pbd.Params(cloth, 0.5, STEP / 4, stretch=1e-5, thickness=0.01, substeps=1, pinned=(0, 2))
    medium = coupling.PBD(params, (0,), pins=jnp.asarray([[0.0, 0.0, 1.0]] * 2)).replace(**given)
    matter = pbd.init(params, jnp.asarray(cloth.vertices - [0.3, 0.3, 0.0])[None])
    return Scene(*ball("0 0 0.5", (0.0,) * 6, 100.0, 0.3), (medium,), (matter,), 4)


def on_cloth() -> Scene:
    """Rubber and a cloth, which no body touches."""
    rubber, cloth = in_mpm(), held_cloth(geoms=(), pins=None)
    media = rubber.media[0].replace(geoms=()), *cloth.media
    return rubber._replace(media=media, matter=(*rubber.matter, *cloth.matter))


def test_quantities_are_taken():
    """Time steps, walls and the velocities of pins, as without units."""
    for scene in (in_sph(), held_cloth()):
        (medium,) = scene.media
        own = {"params": medium.params.replace(timestep=units.duration("1 ms"))}
        own |= {"walls": units.length(medium.walls)} if isinstance(medium, coupling.SPH) else {}
        own |= {"pins": units.velocity(medium.pins)} if isinstance(medium, coupling.PBD) else {}
        found, wanted = step(scene, media=(medium.replace(**own),)), step(scene)
        assert not np.asarray(wanted[1][0].status).any()
        jax.tree.map(np.testing.assert_array_equal, found, wanted)


def test_quantities_are_taken_by_soft_bodies_and_surfaces():
    for scene, border in ((in_fem(), ()), (on_cloth(), coupling.Surface(flow=0, mesh=1, reach=0.02))):
        h = units.duration(STEP / scene.substeps)
        media = tuple(m.replace(params=m.params.replace(timestep=h)) for m in scene.media)
        jax.eval_shape(lambda s, scene=scene, media=media: step(scene, media=media, surfaces=s), border)


def test_walls_have_names_and_may_be_lists():
    scene = in_sph()
    (medium,) = scene.media
    named = medium.replace(body=("ball",) * len(medium.body), walls=np.asarray(medium.walls).tolist())
    jax.tree.map(np.testing.assert_array_equal, step(scene, media=(named,)), step(scene))


@pytest.mark.parametrize("kind", [coupling.MPM, coupling.PBD, coupling.FEM])
def test_one_geom_needs_no_tuple(kind: Any):
    box = '<worldbody><body name="plate"><geom name="box" size="1 1 1"/></body></worldbody>'
    model, params = fphys.load(f"<mujoco>{box}</mujoco>"), cast(Any, None)
    for one in ("box", 0, np.int64(0)):
        alone, listed = kind(params, one), kind(params, (one,))
        assert jax.tree.structure(alone) == jax.tree.structure(listed) == jax.tree.structure(kind(params, [one]))
        assert hash(alone.geoms) == hash(listed.geoms) and alone.bodies(model) == {1}


def test_one_body_may_carry_all_walls():
    scene = in_sph()
    (medium,) = scene.media
    for walls in (medium.walls, units.length(medium.walls), list(medium.walls)):
        for one in ("ball", 1):
            alone = coupling.SPH(medium.params, walls, one)
            listed = coupling.SPH(medium.params, walls, (one,) * len(medium.walls))
            assert jax.tree.structure(alone) == jax.tree.structure(listed)
            assert alone.prepared("it", scene.model, scene.matter[0]).body == medium.body
    jax.tree.map(np.testing.assert_array_equal, step(scene, unmoved=1), step(scene, unmoved=("ball",)))


def fluid_first(medium: Any) -> dict[str, Any]:
    return {"walls": jnp.concatenate([medium.walls[:3], medium.walls]), "body": (1,) * (len(medium.body) + 3)}


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        (fluid_first, ValueError, r"media\[0\]: particle 189 of world 0 is fluid, but the last 35 of 224"),
        (lambda m: {"walls": m.walls[:1]}, ValueError, r"media\[0\].walls have shape \(1, 3\), must be \(32, 3\)"),
        (lambda m: {"walls": m.walls[:-1]}, ValueError, r"walls have shape \(31, 3\)"),
        (lambda m: {"walls": m.walls[:, :2]}, ValueError, "three coordinates, also in the plane"),
        (lambda m: {"walls": jnp.zeros((500, 3)), "body": (1,) * 500}, ValueError, "500 walls, but its state 224"),
        (lambda m: {"body": (99,) * 32}, ModelError, r"media\[0\].body: the model has no body 99: it has 2"),
        (lambda m: {"body": (-1,) * 32}, ModelError, "no body -1"),
        (lambda m: {"body": ("bal",) * 32}, ModelError, "did you mean 'ball'"),
        (lambda m: {"body": (1.5,) * 32}, TypeError, r"media\[0\].body is 1.5, must be a whole number"),
        (lambda m: {"walls": units.mass(m.walls)}, units.UnitError, r"media\[0\].walls is a mass"),
    ],
)
def test_walls_that_cannot_be_are_refused(change: Any, error: type[Exception], text: str):
    scene = in_sph()
    (medium,) = scene.media
    with pytest.raises(error, match=text):
        step(scene, media=(medium.replace(**change(medium)),))


def turned(matter: Any, count: int) -> Any:
    """The same particles, the last ones first."""
    return matter.replace(**{k: jnp.roll(getattr(matter, k), count, 1) for k in ("x", "v", "kind", "rho", "p")})


def test_walls_come_last():
    """Fluid in their place is refused; if kinds are traced, its world is held, and others go on."""
    scene = in_sph()
    (matter,), count = scene.matter, len(scene.media[0].body)
    wrong = turned(matter, count)
    with pytest.raises(ValueError, match="put the fluid first"):
        step(scene, matter=(wrong,))
    begun = jax.tree.map(lambda *a: jnp.concatenate(a), (scene.state, matter), (scene.state, wrong))
    run = jax.jit(lambda s, m: step(scene._replace(state=s), matter=(m,)))
    state, (after,) = run(*begun)
    assert after.status.tolist() == [0, int(Status.BADPARAM)]
    np.testing.assert_array_equal(after.x[1], wrong.x[0])
    np.testing.assert_array_equal(state.qpos[1], scene.state.qpos[0])
    assert not np.array_equal(state.qpos[0], scene.state.qpos[0])


def test_walls_that_no_body_carries_stand_still():
    scene = in_sph()
    (medium,), (matter,) = scene.media, scene.matter
    x = step(scene, media=(medium.replace(walls=medium.walls[-4:], body=(1,) * 4),))[1][0].x
    np.testing.assert_array_equal(x[:, -32:-4], matter.x[:, -32:-4])
    assert not np.array_equal(x[:, -4:], matter.x[:, -4:])


@pytest.mark.parametrize("shape", [(3, 3), (3,), (1, 3), (2, 2), (2, 2, 3)])
def test_pins_of_another_shape_are_refused(shape: tuple[int, ...]):
    with pytest.raises(ValueError, match=r"media\[0\].pins have shape .*, must be \(2, 3\) or"):
        step(held_cloth(pins=jnp.ones(shape)))


def test_pins_where_nothing_is_pinned_are_refused():
    scene = held_cloth()
    (medium,) = scene.media
    with pytest.raises(ValueError, match=r"media\[0\].pins have shape \(2, 3\), must be \(0, 3\)"):
        step(scene, media=(medium.replace(params=medium.params.replace(pinned=())),))


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"mesh": "cloth"}, r"surfaces\[0\].mesh is 'cloth', must be a whole number"),
        ({"mesh": 1.0}, r"surfaces\[0\].mesh is 1.0"),
        ({"flow": False}, r"surfaces\[0\].flow is False"),
    ],
)
def test_numbers_of_media_are_whole(given: dict[str, Any], text: str):
    with pytest.raises(TypeError, match=text):
        step(on_cloth(), surfaces=coupling.Surface(**{"flow": 0, "mesh": 1, "reach": 0.02} | given))


def test_no_surfaces_and_one_unmoved_body():
    scene = in_mpm()
    jax.tree.map(
        np.testing.assert_array_equal,
        step(scene, surfaces=None, unmoved="ball"),
        step(scene, surfaces=(), unmoved=("ball",)),
    )


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        ({"substeps": True}, ValueError, "substeps is True: give a whole number"),
        ({"unmoved": (1.0,)}, TypeError, "unmoved is 1.0, must be a whole number"),
        ({"surfaces": 5}, TypeError, r"surfaces\[0\] is a int"),
    ],
)
def test_arguments_of_another_kind_are_refused(given: dict[str, Any], error: type[Exception], text: str):
    with pytest.raises(error, match=text):
        step(in_mpm(), **given)


@pytest.mark.parametrize("name", ["media", "matter"])
def test_media_and_matter_are_tuples(name: str):
    scene = in_mpm()
    with pytest.raises(TypeError, match=f"{name} is one .*, must be a tuple: give \\({name},\\)"):
        step(scene, **{name: getattr(scene, name)[0]})
