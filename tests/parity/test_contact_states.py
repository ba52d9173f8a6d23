"""Contact along MuJoCo's own trajectories: accelerations, velocities, contact sets, distances and frames.

A state is left out where rounding decides: where a contact is within rounding of the distance at which it is made.
Where a cylinder stands upright to rounding, MuJoCo is asked again with its rim where it is (``rims.py``). Everything
counts.
"""

import functools
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest

import fphys
from fphys.model.pairs import BOX
from fphys.oracle import GRAZING, Row, answer, error, to_state, touchable
from fphys.rigid.collide.collision import detection_distance

from .corpus import FEATURES, case, sources, states
from .rims import levelled

QUICK = {
    "ant",
    "humanoid",
    "gymnasium-half_cheetah",
    "elliptic cone, condim 4",
    "named pair",
    "stack of boxes, elliptic",
    "cylinder on a plane",
    "limit of a spatial tendon",
    "weld",
}
SINGLE = {"ant", "arm-urdf", "elliptic cone, condim 4", "pyramidal cone, condim 6"}
CAUSE = {"gymnasium-point": 1.0}
"""Share of states that rounding may leave out, where it is more than 1 %: point.xml's ball rests on its plane at a
distance of zero, exactly, in every state (the same file with its floor raised takes its place)."""


class Answer(NamedTuple):
    """What we say in all states of a mechanism."""

    qacc: Any
    after: Any
    info: fphys.Info


@functools.cache
def _answer(dtype: str) -> Any:
    def both(model: Any, state: Any, ctrl: Any) -> Answer:
        qacc, info = fphys.forward(model, state, ctrl)
        return Answer(qacc, fphys.step(model, state, ctrl).qvel, info)

    return jax.jit(both)


def ours(name: str, rows: list[Row], dtype: str = "float64") -> Answer:
    model = case(name, dtype)
    state, ctrl = to_state(model, rows)
    return jax.tree.map(np.asarray, _answer(dtype)(model, state, ctrl))


def marked(quick: set[str]) -> list[Any]:
    return [pytest.param(name, marks=[] if name in quick else pytest.mark.slow) for name in sources()]


def marked_single() -> list[Any]:
    return [p for p in marked(SINGLE) if p.values[0] != "gymnasium-point"]


def loaded(name: str) -> None:
    """Mechanisms with a pair that is not simulated yet are named, not left out of the list."""
    try:
        case(name)
    except fphys.errors.UnsupportedError as error:
        pytest.xfail(str(error).splitlines()[1].strip())


class Compared(NamedTuple):
    """Contacts of one state beside MuJoCo's."""

    same: bool  # the sets have as many contacts of each pair
    zones: bool  # the same of them press
    rounding: bool  # a contact is within rounding of being there or not
    geometry: np.ndarray  # errors of distance, frame and force
    boxes: np.ndarray  # errors of depth, normal and net wrench of box-box pairs


def compare(name: str, row: Row, info: fphys.Info, w: int, reach: np.ndarray) -> Compared:
    """``reach``: distance at which a contact of each pair is made."""
    if info.contacts is None:
        return Compared(True, True, False, np.zeros((0, 3)), np.zeros((0, 3)))
    g = case(name).structure.geom
    limits = {tuple(sorted(pair)): limit for pair, limit in zip(g.pair.tolist(), reach, strict=True)}
    here = np.flatnonzero(info.contacts.pair[w] >= 0)
    mine = [tuple(sorted(x)) for x in g.pair[info.contacts.pair[w][here]].tolist()]
    theirs = [tuple(sorted(x)) for x in row.contacts.geom.tolist()]
    geometry, boxes, same, zones, rounding = [], [], True, True, False
    for key in sorted({*mine, *theirs}):
        i, j = (np.array([k for k, x in enumerate(keys) if x == key], int) for keys in (mine, theirs))
        i = here[i]
        distance, other = info.contacts.distance[w][i], row.contacts.distance[j]
        rounding |= bool(np.abs(np.concatenate([distance, other]) - limits[key]).min() <= GRAZING)
        if len(i) != len(j):
            same = False
            continue
        j = j[nearest(info.contacts.pos[w][i], row.contacts.pos[j])]
        frame = info.contacts.frame[w][i]
        if (g.type[list(key)] == BOX).all():
            deep = (distance.argmin(), row.contacts.distance[j].argmin())
            depth = abs(distance[deep[0]] - row.contacts.distance[j[deep[1]]])
            normal = np.abs(frame[deep[0], 0] - row.contacts.frame[j[deep[1]], 0]).max()
            boxes.append([depth, normal, net_wrench(info, w, i, row, j)])
            continue
        gap = np.abs(distance - row.contacts.distance[j])
        force = np.abs(info.force[w][i] - row.contacts.force[j]).max(1) / max(1.0, np.abs(row.contacts.force).max())
        geometry += np.stack([gap, np.abs(frame - row.contacts.frame[j]).max((1, 2)), force], 1).tolist()
        if ((info.force[w][i, 0] > 0) != (row.contacts.force[j, 0] > 0)).any():
            zones = False
    return Compared(same, zones, rounding, np.reshape(geometry, (-1, 3)), np.reshape(boxes, (-1, 3)))


def nearest(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """An order of b in which every point has its own nearest of a."""
    far = np.linalg.norm(a[:, None] - b, axis=-1)
    order = np.zeros(len(a), int)
    for _ in a:
        i, j = np.unravel_index(far.argmin(), far.shape)
        order[i] = j
        far[i], far[:, j] = np.inf, np.inf
    return order


def net_wrench(info: Any, w: int, i: np.ndarray, row: Row, j: np.ndarray) -> float:
    """Difference of a pair's total force and torque about the origin, relative to the forces."""

    def total(force: np.ndarray, frame: np.ndarray, pos: np.ndarray) -> np.ndarray:
        linear = np.einsum("ci,cij->cj", force[:, :3], frame)
        angular = np.einsum("ci,cij->cj", force[:, 3:], frame) + np.cross(pos, linear)
        return np.concatenate([linear.sum(0), angular.sum(0)])

    mine = total(info.force[w][i], info.contacts.frame[w][i], info.contacts.pos[w][i])
    theirs = total(row.contacts.force[j], row.contacts.frame[j], row.contacts.pos[j])
    return float(np.abs(mine - theirs).max() / max(1.0, np.abs(row.contacts.force[j]).max()))


@pytest.mark.parametrize("name", marked(QUICK))
def test_states_along_mujocos_trajectories(name: str, full: bool):
    loaded(name)
    count = 2000 if full else 100
    rows = states(name, count)
    assert len(rows) == count
    active = np.mean([row.active for row in rows])
    assert active >= 0.5 or not touchable(case(name).structure.source), f"only {active:.0%} are in active contact"
    answer = ours(name, rows)
    reach = np.asarray(detection_distance(case(name)))[0]
    rows, rims = zip(*(levelled(case(name).structure.source, row) for row in rows), strict=True)
    compared = [compare(name, row, answer.info, w, reach) for w, row in enumerate(rows)]
    rounding = np.array([c.rounding for c in compared])
    assert rounding.mean() <= CAUSE.get(name, 0.01), f"rounding decides {rounding.mean():.1%} of the states"
    errors = error(answer.qacc, np.array([row.qacc for row in rows]))
    moved = error(answer.after, np.array([row.after for row in rows]))
    good = (errors <= 1e-6) & (moved <= 1e-6)
    bad = [f"state {w}: {errors[w]:.1e}, {cause(compared[w])}" for w in np.flatnonzero(~good)]
    print(f"{name}: worst of the rest {errors[good].max():.1e}; left out:", *bad, sep="\n  ")
    print(f"  in {np.count_nonzero(rims)} MuJoCo's rims were moved, by {max(rims):.0e} m at most")
    if rounding.all():
        return
    assert good[~rounding].mean() >= 0.99, bad
    assert np.mean([c.same and c.zones for c in compared if not c.rounding]) >= 0.99
    geometry = np.concatenate([c.geometry for c in compared if not c.rounding])
    boxes = np.concatenate([c.boxes for c in compared if not c.rounding])
    if len(geometry):
        assert geometry[:, :2].max() <= 1e-9 and np.quantile(geometry[:, 2], 0.99) <= 1e-6
    if len(boxes):
        assert np.quantile(boxes, 0.99) <= 1e-9
    assert not answer.info.status.any()


def cause(c: Compared) -> str:
    if c.rounding:
        return "a contact within rounding of its margin"
    return "the contact sets differ" if not c.same else "zones differ" if not c.zones else "no cause found"


@pytest.mark.parametrize("name", marked_single())
def test_float32_along_mujocos_trajectories(name: str, full: bool):
    """MuJoCo in float64 at the states that float32 can hold."""
    loaded(name)
    case(name, "float32")
    rows = [answer(case(name).structure.source, rounded(row)) for row in states(name, 2000 if full else 100)]
    single = ours(name, rows, "float32")
    errors = error(np.asarray(single.qacc, float), np.array([row.qacc for row in rows]))
    print(f"{name}: median {np.median(errors):.1e}, 99th percentile {np.quantile(errors, 0.99):.1e}")
    assert np.median(errors) <= 1e-5
    assert np.quantile(errors, 0.99) <= 1e-3


def rounded(row: Row) -> Row:
    """The same state and control, as float32 holds them."""
    return row._replace(**{k: np.float64(np.float32(getattr(row, k))) for k in Row._fields[:5]})


@pytest.mark.extra("gymnasium")
def test_the_corpus_is_whole():
    assert len(FEATURES) >= 20
    assert set(QUICK) <= set(sources()) and set(SINGLE) <= set(sources())
