"""Distance sensors: readings against MuJoCo's and against the definition of a distance, and their gradients."""

import functools
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import fphys
from fphys.rigid.collide.apart import apart
from fphys.testing import check_grads

RADIUS, SIZE = 0.12, np.array([0.1, 0.2, 0.15])
CORNERS = np.random.default_rng(0).normal(size=(14, 3))
CORNERS *= 0.2 / np.linalg.norm(CORNERS, axis=1, keepdims=True)
KINDS = {
    "sphere": f'type="sphere" size="{RADIUS}"',
    "capsule": 'type="capsule" size="0.08 0.2"',
    "ellipsoid": 'type="ellipsoid" size="0.1 0.2 0.15"',
    "cylinder": 'type="cylinder" size="0.1 0.2"',
    "box": 'type="box" size="0.1 0.2 0.15"',
    "mesh": 'type="mesh" mesh="rock"',
}
PAIRS = [*itertools.product(["plane"], KINDS), *itertools.product(KINDS, KINDS)]
DATA = {"distance": 1, "normal": 3, "fromto": 6}


def text(sensors: str, quiet: str = 'contype="0" conaffinity="0"') -> str:
    """Two free bodies of each kind that pass through everything, above a plane."""
    bodies = "".join(
        f'<body name="{kind}{i}"><freejoint/><geom name="{kind}{i}" {shape} {quiet}/></body>'
        for kind, shape in KINDS.items()
        for i in (1, 2)
    )
    corners = " ".join(map(str, CORNERS.ravel()))
    return f"""
<mujoco><option ccd_tolerance="1e-12"/><asset><mesh name="rock" vertex="{corners}"/></asset>
  <worldbody><geom name="plane1" type="plane" size="3 3 0.1" pos="0 0 -0.3" {quiet}/>{bodies}</worldbody>
  <sensor>{sensors}</sensor>
</mujoco>"""


def all_pairs(cutoff: float) -> str:
    return "".join(f'<{data} geom1="{a}1" geom2="{b}2" cutoff="{cutoff}"/>' for a, b in PAIRS for data in DATA)


def anywhere(m: mujoco.MjModel, count: int, seed: int = 0) -> np.ndarray:
    """Positions of free bodies, near each other and far apart in turns."""
    rng = np.random.default_rng(seed)
    pos = rng.normal(size=(count, m.njnt, 3)) * np.resize([0.15, 0.3, 0.6], count)[:, None, None]
    quat = rng.normal(size=(count, m.njnt, 4))
    return np.concatenate([pos, quat / np.linalg.norm(quat, axis=-1, keepdims=True)], -1).reshape(count, -1)


def theirs(m: mujoco.MjModel, qpos: np.ndarray) -> np.ndarray:
    d, out = mujoco.MjData(m), []
    for q in qpos:
        d.qpos[:] = q
        mujoco.mj_forward(m, d)
        out.append(d.sensordata.copy())
    return np.array(out)


def ours(model: fphys.Model, qpos: np.ndarray) -> np.ndarray:
    return np.asarray(jax.jit(fphys.sensors)(model, fphys.init(model, len(qpos), qpos=qpos)))


def test_readings_of_things_apart_are_mujocos(full: bool):
    model = fphys.load(text(all_pairs(1.5)))
    qpos = anywhere(model.structure.source, 300 if full else 12)
    both = ours(model, qpos), theirs(model.structure.source, qpos)
    found, expected = (x.reshape(len(qpos), -1, sum(DATA.values())) for x in both)
    free = expected[..., 0] > 0
    assert 0.6 < free.mean() < 0.95
    curved = np.array([bool({a, b} & {"ellipsoid", "cylinder"}) for a, b in PAIRS])
    error = np.abs(found - expected)
    assert error[free][:, 0].max() < 1e-10
    assert error[:, ~curved][~free[:, ~curved]][:, 0].max() < 1e-12  # of flat sides MuJoCo knows how deep they are
    assert np.median(error[free], 0).max() < 1e-12
    assert error[free][:, 1:].max() < 1e-5  # where two sides are level, one of many nearest points is named


def support(kind: str, direction: np.ndarray, corners: np.ndarray) -> np.ndarray:
    """How far a geom reaches along directions in its own frame (n, 3)."""
    x, y, z = direction.T
    across = np.hypot(x, y)
    return {
        "sphere": RADIUS + 0 * x,
        "capsule": 0.08 + 0.2 * np.abs(z),
        "ellipsoid": np.linalg.norm(direction * SIZE, axis=1),
        "cylinder": 0.1 * across + 0.2 * np.abs(z),
        "box": (np.abs(direction) * SIZE).sum(1),
        "mesh": (direction @ corners.T).max(1),
    }[kind]


def test_no_direction_has_a_larger_gap():
    """The signed distance of two convex things is the largest of their gaps along all directions."""
    pairs = list(itertools.combinations_with_replacement(KINDS, 2))
    model = fphys.load(text(all_pairs(5.0)))
    m, qpos = model.structure.source, anywhere(model.structure.source, 6)
    number = np.array([[m.geom(f"{a}1").id, m.geom(f"{b}2").id] for a, b in pairs])
    found = apart(model, fphys.init(model, len(qpos), qpos=qpos), number, np.full(len(pairs), 5.0))
    distance, normal, ends = (np.asarray(x) for x in found)
    rng, d, overlaps = np.random.default_rng(1), mujoco.MjData(m), 0
    for w, k in np.ndindex(distance.shape):
        d.qpos[:] = qpos[w]
        mujoco.mj_kinematics(m, d)
        near = normal[w, k] + rng.normal(size=(400, 3)) * np.repeat([1e-4, 1e-2, 0.3, 3.0], 100)[:, None]
        tried = np.concatenate([normal[w, k][None], near / np.linalg.norm(near, axis=1, keepdims=True)])
        gap = tried @ (d.geom_xpos[number[k, 1]] - d.geom_xpos[number[k, 0]])
        for kind, g, sign in zip(pairs[k], number[k], (1, -1), strict=True):
            gap -= support(kind, sign * tried @ d.geom_xmat[g].reshape(3, 3), m.mesh_vert)
        assert gap[0] == pytest.approx(distance[w, k], abs=1e-9)
        assert gap.max() < distance[w, k] + 1e-9
        np.testing.assert_allclose(ends[w, k, 1] - ends[w, k, 0], distance[w, k] * normal[w, k], atol=1e-12)
        overlaps += distance[w, k] < -0.05
    assert overlaps > 5


THINGS = {
    "bodies": 'body1="box1" body2="hand"',
    "the other way": 'body1="hand" body2="box1"',
    "a body and a geom": 'geom1="sphere1" body2="hand"',
    "the world": 'body1="world" body2="hand"',
    "of one body": 'geom1="thumb" geom2="palm"',
}


def test_the_nearest_geoms_of_bodies_count_up_to_the_cutoff():
    hand = """<body name="hand"><freejoint/><geom name="palm" type="box" size="0.1 0.1 0.03"/>
      <geom name="thumb" type="capsule" fromto="0.1 0 0.1 0.1 0 0.3" size="0.02"/></body></worldbody>"""
    cutoffs = (0.0, 0.04, 10.0)
    sensors = "".join(f'<{data} {of} cutoff="{c}"/>' for of in THINGS.values() for c in cutoffs for data in DATA)
    sparse = '<option jacobian="sparse"/><worldbody>'
    model = fphys.load(text(sensors).replace("</worldbody>", hand).replace("<worldbody>", sparse))
    qpos = anywhere(model.structure.source, 24)
    found, expected = ours(model, qpos), theirs(model.structure.source, qpos)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9)
    s = model.structure.sensor
    for of, cutoff in itertools.product(
        range(len(THINGS) - 1), range(3)
    ):  # each is within and beyond, but for the last
        column = expected[:, s.adr[3 * (3 * of + cutoff)]]
        beyond = column >= cutoffs[cutoff]
        assert beyond.any() == (cutoff < 2) and not beyond.all()


def test_float32():
    model = fphys.load(text(all_pairs(1.5)), dtype="float32")
    qpos = anywhere(model.structure.source, 6)
    found, expected = ours(model, qpos.astype(np.float32)), theirs(model.structure.source, qpos)
    assert found.dtype == np.float32
    distance = np.arange(0, found.shape[1], sum(DATA.values()))
    free = expected[:, distance] > 0
    assert np.abs(found - expected)[:, distance][free].max() < 5e-6  # some roundings of a metre


def test_gradients_and_transforms():
    """By the state and by sizes and places of geoms, apart and overlapping."""
    chosen = "sphere box, box box, capsule cylinder, mesh box, ellipsoid capsule, plane mesh"
    pairs = [pair.split() for pair in chosen.split(", ")]
    sensors = "".join(f'<{data} geom1="{a}1" geom2="{b}2" cutoff="3"/>' for a, b in pairs for data in DATA)
    model = fphys.load(text(sensors))
    state = fphys.init(model, 3, qpos=anywhere(model.structure.source, 3, seed=2))
    expected = np.asarray(fphys.sensors(model, state))[:, :: sum(DATA.values())]
    assert (expected < 0).any() and (expected > 0).any()

    def readings(qpos: Any, size: Any, pos: Any) -> Any:
        changed = model.replace(geom=model.geom.replace(size=size, pos=pos))
        return fphys.sensors(changed, state.replace(qpos=qpos))

    check_grads(jax.jit(readings), (state.qpos, model.geom.size, model.geom.pos), tol=1e-6, directions=3)
    read = functools.partial(readings, size=model.geom.size, pos=model.geom.pos)
    batch = jnp.stack([state.qpos, state.qpos[::-1]])
    slope = jax.jit(jax.grad(lambda qpos: (read(qpos) ** 2).sum()))
    np.testing.assert_allclose(jax.vmap(slope)(batch), [slope(qpos) for qpos in batch], rtol=1e-12, atol=1e-12)


def test_a_faulty_world_spoils_no_other():
    model = fphys.load(text('<distance geom1="box1" geom2="mesh2" cutoff="3"/>'))
    state = fphys.init(model, 3, qpos=anywhere(model.structure.source, 3))
    read = jax.jit(jax.value_and_grad(lambda q: fphys.sensors(model, state.replace(qpos=q)).sum(), has_aux=False))
    _, slope = read(state.qpos)
    found, spoilt = read(state.qpos.at[1].set(jnp.nan))
    assert np.isfinite(found) and not spoilt[1].any()
    np.testing.assert_array_equal(slope[::2], spoilt[::2])


def test_distances_to_height_fields_are_refused_by_name():
    xml = text('<distance body1="world" geom2="box1"/>')
    xml = xml.replace("</asset>", '<hfield name="hills" nrow="3" ncol="3" size="1 1 1 1"/></asset>')
    model = fphys.load(xml.replace("<worldbody>", '<worldbody><geom name="ground" type="hfield" hfield="hills"/>'))
    with pytest.raises(fphys.errors.UnsupportedError, match=r"distances to height fields and SDFs \(geom ground\)"):
        fphys.sensors(model, fphys.init(model, 1))
