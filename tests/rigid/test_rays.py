"""Rays against shapes, meshes and height fields: MuJoCo's distances, gradients, and that no ray slips through."""

from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
import trimesh

import fphys
from fphys.rigid.collide.rays import Met, ray_lengths, shapes
from fphys.testing import check_grads, check_transforms

SHAPES = {"sphere": 2, "capsule": 3, "ellipsoid": 4, "cylinder": 5, "box": 6, "plane": 0}


@pytest.mark.parametrize("shape", SHAPES)
def test_rays_meet_shapes_where_mujocos_do(shape: str):
    """From outside and inside, at random; planes bounded and not."""
    rng = np.random.default_rng(SHAPES[shape])
    size = rng.uniform(0.3, 1.0, (2000, 3)) * (rng.random((2000, 1)) < 0.5 if shape == "plane" else 1.0)
    start, ray = rng.standard_normal((2, 2000, 3))
    frame = (np.zeros(3), np.eye(3).ravel())
    kind = SHAPES[shape]
    expected = np.array([mujoco.mju_rayGeom(*frame, *row, kind, None) for row in zip(size, start, ray, strict=True)])
    model = fphys.load("<mujoco><worldbody/></mujoco>")
    upright = jnp.broadcast_to(jnp.array([1.0, 0.0, 0.0, 0.0]), (1, 2000, 4))
    every = shapes(
        model, np.full(2000, kind), np.zeros(2000, int), jnp.zeros((1, 2000, 3)), upright, jnp.asarray(size)[None]
    )
    which = jnp.arange(2000, dtype=jnp.int32)[None]
    found = ray_lengths(
        model,
        fphys.init(model, 1),
        every,
        Met(which, 0 * which, jnp.zeros(which.shape)),
        jnp.asarray(start)[None],
        jnp.asarray(ray)[None],
    )[0]
    assert 0.1 < (expected >= 0).mean() < 0.9
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_rays_meet_the_first_of_a_crowd_where_mujocos_do(dtype: str):
    """From outside and inside, past and through shapes of every kind; those of their own body they do not see."""
    rng = np.random.default_rng(7)
    geom = (
        '<geom type="{}" pos="{:.3f} {:.3f} {:.3f}" axisangle="{:.2f} {:.2f} {:.2f} 50" size="{:.3f} {:.3f} {:.3f}"/>'
    )
    kinds = [kind for kind in SHAPES if kind != "plane"]
    crowd = "".join(
        geom.format(kinds[i % 5], *rng.uniform(-2, 2, 3), *rng.standard_normal(3), *rng.uniform(0.05, 0.5, 3))
        for i in range(40)
    )
    poses = np.c_[rng.uniform(-2, 2, (100, 3)), rng.standard_normal((100, 3))]
    sites = [f'<site name="{i}" pos="{x} {y} {z}" zaxis="{a} {b} {c}"/>' for i, (x, y, z, a, b, c) in enumerate(poses)]
    own = '<body name="own"><joint type="slide"/><geom size="0.4"/>' + "".join(sites[50:]) + "</body>"
    eyes = "".join(f'<rangefinder site="{i}"/>' for i in range(100))
    ground = '<geom type="plane" size="3 0 1" pos="0 0 -1" euler="10 0 0"/>'
    xml = f"<mujoco><worldbody>{''.join(sites[:50])}<body>{crowd}</body>{ground}{own}</worldbody>"
    model = fphys.load(f"{xml}<sensor>{eyes}</sensor></mujoco>", dtype=dtype)
    m = model.structure.source
    d = mujoco.MjData(m)
    mujoco.mj_forward(m, d)
    found = np.asarray(fphys.sensors(model, fphys.init(model, 1)))[0]
    assert 0.3 < (d.sensordata >= 0).mean() < 0.95
    grazing = {"float64": 0, "float32": 1}[dtype]  # at an edge, rounding decides
    bound = {"float64": 1e-12, "float32": 1e-4}[dtype]
    assert (np.abs(found - d.sensordata) > bound).sum() <= grazing


@pytest.mark.parametrize("shape", SHAPES)
def test_gradients_of_rays(shape: str):
    """By the shape's pose and size, and by the ray's; from outside and inside; those that miss have none."""
    rng = np.random.default_rng(SHAPES[shape])
    kind, n = SHAPES[shape], 12
    model = fphys.load("<mujoco><worldbody/></mujoco>")
    state, which = fphys.init(model, 1), jnp.arange(n, dtype=jnp.int32)[None]
    size = np.full((n, 3), -1.0) if shape == "plane" else rng.uniform(0.6, 1.4, (n, 3))
    pos, start = rng.standard_normal((n, 3)), 0.8 * rng.standard_normal((n, 3))
    rays = np.c_[pos, rng.standard_normal((n, 4)), size, pos + start, rng.standard_normal((n, 3))]

    def lengths(rays: Any) -> Any:
        pos, quat, size, start, ray = jnp.split(rays[None], (3, 7, 10, 13), 2)
        every = shapes(model, np.full(n, kind), np.zeros(n, int), pos, quat, size)
        return ray_lengths(model, state, every, Met(which, 0 * which, jnp.zeros(which.shape)), start, ray)

    found = lengths(jnp.asarray(rays))
    assert (found > 0).any() and (found < 0).any()
    check_grads(lengths, (jnp.asarray(rays),), tol=1e-7, directions=16)


HILLS = (
    '<hfield name="hills" nrow="7" ncol="12" size="2 1.5 0.7 0.3" elevation="{}"/>'
    '<mesh name="ring" vertex="{}" face="{}"/><mesh name="wedge" vertex="0 0 0  1 0 0  0 1 0  0 0 1"/>'
)
SURFACES = {
    "hills": '<geom type="hfield" hfield="hills"/>',
    "ring": '<geom type="mesh" mesh="ring" pos="0.3 0 0" euler="20 10 5"/>',
    "both": '<geom type="hfield" hfield="hills"/><geom type="mesh" mesh="ring" pos="0.3 0 1"/><geom size="0.3"/>'
    '<geom type="mesh" mesh="wedge" pos="-1 0 0.5"/>',
}


def landscape(what: str, start: np.ndarray, ray: np.ndarray) -> str:
    """Hills and a ring, which is not convex, on a tilted body, and range finders of the world."""
    rng = np.random.default_rng(3)
    ring = trimesh.creation.torus(1.0, 0.4, major_sections=12, minor_sections=7)
    numbers = (" ".join(map(repr, np.ravel(x).tolist())) for x in (rng.random((7, 12)), ring.vertices, ring.faces))
    sites = "".join(
        f'<site name="{i}" pos="{x} {y} {z}" zaxis="{a} {b} {c}"/>'
        for i, (x, y, z, a, b, c) in enumerate(np.c_[start, ray].tolist())
    )
    eyes = "".join(f'<rangefinder site="{i}"/>' for i in range(len(start)))
    thing = (
        f'<body name="thing" pos="0.1 0.2 0.3" euler="12 -8 30"><freejoint/>{SURFACES[what]}<geom size="0.1"/></body>'
    )
    parts = f"<asset>{HILLS.format(*numbers)}</asset><worldbody>{sites}{thing}</worldbody><sensor>{eyes}</sensor>"
    return f"<mujoco>{parts}</mujoco>"


def some(n: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(4)
    return rng.standard_normal((n, 3)) * [2.0, 2.0, 1.0], rng.standard_normal((n, 3))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("what", SURFACES)
def test_rays_meet_meshes_and_height_fields_where_mujocos_do(what: str, dtype: str):
    """From outside and inside: tops, sides and ground of the hills, and the hole of the ring."""
    model = fphys.load(landscape(what, *some(1000)), disable=("contact",), dtype=dtype)
    m = model.structure.source
    d = mujoco.MjData(m)
    mujoco.mj_forward(m, d)
    found = np.asarray(fphys.sensors(model, fphys.init(model, 1)))[0]
    assert 0.1 < (d.sensordata >= 0).mean() < 0.9
    grazing = {"float64": 0, "float32": 1}[dtype]  # at an edge, rounding decides
    bound = {"float64": 1e-12, "float32": 1e-4}[dtype]
    assert (np.abs(found - d.sensordata) > bound).sum() <= grazing


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_no_ray_slips_through(dtype: str):
    """Straight down on corners and edges of the grid, and from within the ring at its own: triangles share them."""
    x, y = np.meshgrid(np.linspace(-2, 2, 45), np.linspace(-1.5, 1.5, 25))  # a quarter of a cell
    start = np.stack([x, y, np.full_like(x, 3.0)], -1).reshape(-1, 3)
    level = landscape("hills", start, np.tile([0.0, 0.0, -1.0], (len(start), 1)))
    level = level.replace('pos="0.1 0.2 0.3" euler="12 -8 30"', 'pos="0 0 0"')
    model = fphys.load(level, disable=("contact",), dtype=dtype)
    found = np.asarray(fphys.sensors(model, fphys.init(model, 1)))[0]
    heights = 0.7 * np.asarray(model.hfield.data).reshape(7, 12)
    corners = 3.0 - found.reshape(25, 45)[::4, ::4]
    np.testing.assert_allclose(corners, heights, atol={"float64": 1e-14, "float32": 1e-6}[dtype])
    assert found.min() >= 3.0 - heights.max() - 1e-6 and found.max() <= 3.0 - heights.min() + 1e-6

    ring = trimesh.creation.torus(1.0, 0.4, major_sections=12, minor_sections=7)
    ends = np.concatenate([ring.vertices, ring.vertices[ring.edges_unique].mean(1)])
    across = np.hypot(ends[:, 0], ends[:, 1])
    start = 0.98 * np.c_[ends[:, :2] / across[:, None], 0 * across]  # in the tube, near its middle
    closed = landscape("ring", start, ends - start)
    closed = closed.replace('pos="0.1 0.2 0.3" euler="12 -8 30"', 'pos="0 0 0"').replace(
        'pos="0.3 0 0" euler="20 10 5"', ""
    )
    model = fphys.load(closed, disable=("contact",), dtype=dtype)
    found = np.asarray(fphys.sensors(model, fphys.init(model, 1)))[0]
    bound = {"float64": 1e-6, "float32": 1e-5}[dtype]  # vertices are float32 numbers in the file's mesh
    np.testing.assert_allclose(found, np.linalg.norm(ends - start, axis=1), atol=bound)


def test_heights_of_level_ground_have_gradients():
    """Heights of zero lie on the box that the field stands on, and rays meet them, not the box."""
    start = np.c_[np.random.default_rng(6).uniform([0.5, -1.2], [1.4, 0.8], (50, 2)), np.full(50, 2.0)]
    level = landscape("hills", start, np.tile([0.1, 0.2, -1.0], (50, 1))).replace('euler="12 -8 30"', "")
    model = fphys.load(level, disable=("contact",))

    def total(data: Any) -> Any:
        return fphys.sensors(model.replace(hfield=model.hfield.replace(data=data)), fphys.init(model, 1)).sum()

    slope = jax.grad(total)(jnp.zeros_like(model.hfield.data))
    assert float(slope.sum()) == pytest.approx(-50 * 0.7 * np.sqrt(1.05), rel=1e-9)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_no_ray_slips_through_a_sheet_far_away(dtype: str):
    """Aimed at an inner edge from 500 m, where float32 rounds a box of the tree away."""
    y, x = (a.ravel() for a in np.meshgrid([-1, 0, 1], [-1, 0, 1], indexing="ij"))
    corner = np.array([[0], [1], [3], [4]])
    faces = np.concatenate([corner + [0, 1, 4], corner + [0, 4, 3]])
    numbers = [" ".join(map(str, np.ravel(array).tolist())) for array in (np.c_[x, y, 0 * x], faces)]
    rng, n = np.random.default_rng(9), 2000
    around, up = rng.uniform(0, 2 * np.pi, n), rng.uniform(0.3, 1.4, n)
    ray = -np.c_[np.cos(up) * np.cos(around), np.cos(up) * np.sin(around), np.sin(up)]
    start = np.c_[np.zeros(n), rng.uniform(-0.9, 0.9, n), np.zeros(n)] - 500 * ray
    sites = "".join(
        f'<site name="{i}" pos="{p[0]} {p[1]} {p[2]}" zaxis="{d[0]} {d[1]} {d[2]}"/>'
        for i, (p, d) in enumerate(zip(start.tolist(), ray.tolist(), strict=True))
    )
    eyes = "".join(f'<rangefinder site="{i}"/>' for i in range(len(start)))
    sheet = f'<asset><mesh name="sheet" inertia="shell" vertex="{numbers[0]}" face="{numbers[1]}"/></asset>'
    body = '<body><geom type="mesh" mesh="sheet" contype="0" conaffinity="0"/></body>'
    xml = f"<mujoco>{sheet}<worldbody>{sites}{body}</worldbody><sensor>{eyes}</sensor></mujoco>"
    found = np.asarray(fphys.sensors(model := fphys.load(xml, dtype=dtype), fphys.init(model, 1)))[0]
    np.testing.assert_allclose(found, 500.0, rtol=1e-5)  # a miss is -1; float32 rounds places at 500 m to 3e-5 m


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_rays_in_the_plane_of_a_plateau(dtype: str):
    """Rounding says whether they meet it; if so, it is where it lies, as for MuJoCo, and gradients are finite."""
    rng = np.random.default_rng(8)
    turn = rng.uniform(0, 2 * np.pi, 400)
    start = np.c_[rng.uniform(-6, 6, (400, 2)), np.full(400, 0.35)]
    level = landscape("hills", start, np.c_[np.cos(turn), np.sin(turn), 0 * turn])
    level = level.replace('pos="0.1 0.2 0.3" euler="12 -8 30"', 'pos="0 0 0"')
    model = fphys.load(level, disable=("contact",), dtype=dtype)
    heights = np.full((7, 12), 0.5)
    heights[3, 4], heights[2, 8] = 0.0, 1.0
    state = fphys.init(model, 1)

    def read(qpos: Any) -> Any:
        data = jnp.asarray(heights.reshape(1, -1), qpos.dtype)
        changed = model.replace(hfield=model.hfield.replace(data=data))
        return fphys.sensors(changed, state.replace(qpos=qpos))[0]

    found = np.asarray(read(state.qpos))
    near = np.hypot(*np.maximum(np.abs(start[:, :2]) - [2.0, 1.5], 0.0).T)  # to the field, from above
    far = np.hypot(*(np.abs(start[:, :2]) + [2.0, 1.5]).T)
    met = found != -1
    assert met.any() and (found[met] >= near[met] - 1e-5).all() and (found[met] <= far[met]).all()
    assert np.isfinite(jax.jacrev(read)(state.qpos)).all()


def test_gradients_and_transforms_of_rays_on_meshes_and_height_fields():
    """By heights, sizes, and poses, worlds with fields of their own."""
    model = fphys.load(landscape("both", *some(60)), disable=("contact",))
    state = fphys.init(model, 2)
    rng = np.random.default_rng(5)
    data = jnp.asarray(rng.random((2, model.hfield.data.shape[1])))
    size = model.hfield.size * jnp.asarray(rng.uniform(0.9, 1.1, (2, 1, 4)))
    qpos = state.qpos + jnp.asarray(0.1 * rng.standard_normal(state.qpos.shape))

    def read(data: Any, size: Any, qpos: Any) -> Any:
        changed = model.replace(hfield=model.hfield.replace(data=data, size=size))
        return fphys.sensors(changed, fphys.init(model, len(qpos)).replace(qpos=qpos))

    found = np.asarray(read(data, size, qpos))
    assert ((found > 0).mean(1) > 0.2).all() and np.abs(found[0] - found[1]).max() > 0.1
    for world in (slice(0, 1), slice(1, 2)):
        np.testing.assert_array_equal(read(data[world], size[world], qpos[world]), found[world])
    check_grads(jax.jit(read), (data, size, qpos), tol=1e-6, directions=4)
    slopes = jax.grad(lambda *args: read(*args).sum(), (0, 1, 2))(data, size, qpos)
    assert all(np.abs(slope).max(1).min() > 0 for slope in map(np.asarray, slopes))
    check_transforms(read, (data, size, qpos), batches=(2,), max_patterns=4)
