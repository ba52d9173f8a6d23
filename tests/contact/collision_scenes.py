"""One mechanism with a pair of geoms of every kind, each pair apart from all others, and poses in which they touch."""

import functools
import itertools
from typing import Any, NamedTuple

import mujoco
import numpy as np

import fphys

SHAPES = {
    "plane": ("1 1 1",),
    "sphere": ("0.11", "0.15"),
    "capsule": ("0.08 0.2", "0.06 0.15"),
    "ellipsoid": ("0.1 0.15 0.2", "0.12 0.08 0.17"),
    "cylinder": ("0.12 0.18", "0.15 0.1"),
    "box": ("0.12 0.2 0.15", "0.16 0.1 0.22"),
    "mesh": ("rock", "pebble"),
}
KINDS = (
    ("plane", "sphere"),
    ("plane", "capsule"),
    ("plane", "ellipsoid"),
    ("plane", "cylinder"),
    ("plane", "box"),
    ("sphere", "sphere"),
    ("sphere", "capsule"),
    ("sphere", "cylinder"),
    ("sphere", "box"),
    ("capsule", "capsule"),
    ("capsule", "box"),
    ("box", "box"),
    ("plane", "mesh"),
    ("sphere", "mesh"),
    ("sphere", "ellipsoid"),
    ("capsule", "ellipsoid"),
    ("capsule", "cylinder"),
    ("capsule", "mesh"),
    ("ellipsoid", "ellipsoid"),
    ("ellipsoid", "cylinder"),
    ("ellipsoid", "box"),
    ("ellipsoid", "mesh"),
    ("cylinder", "cylinder"),
    ("cylinder", "box"),
    ("cylinder", "mesh"),
    ("box", "mesh"),
    ("mesh", "mesh"),
)
CONVEX = KINDS[KINDS.index(("sphere", "ellipsoid")) :]
"""Kinds that have no closed form, here or in MuJoCo."""
MARGIN = 0.021
CENTRED = 'pos="0 0 0"'
"""Placement of geoms that sit straight in their bodies."""


def text(centred: bool) -> str:
    """Pair k collides by bit k alone. Planes are fixed; every other geom has a free body. Unless ``centred``, planes
    are tilted and geoms sit askew in their bodies."""
    still, moving = [], []
    for k, kind in enumerate(KINDS):
        for side, shape in enumerate(kind):
            askew = f'pos="0.01 0.02 -0.03" quat="0.9 0.1 0.3 {-0.2 * side}"'
            size = f'{"mesh" if shape == "mesh" else "size"}="{SHAPES[shape][side]}"'
            geom = (
                f'<geom type="{shape}" {size} contype="{1 << k}" conaffinity="{1 << k}" '
                f'margin="{MARGIN if side else 0}" {CENTRED if centred else askew}/>'
            )
            if shape == "plane":
                still.append(geom)
            else:
                moving.append(f"<body><freejoint/>{geom}</body>")
    search = 'jacobian="dense" ccd_tolerance="1e-13" ccd_iterations="500"'  # MuJoCo's errors are its tolerance's
    one = '<flag multiccd="disable"/>'  # flat sides on one another: tests/contact/test_flat_sides.py
    stones = stone("pebble", 0, 30, (0.12, 0.15, 0.2)) + stone("rock", 7, 22, (0.16, 0.1, 0.13))
    return (
        f"<mujoco><option {search}>{one}</option>{stones}<worldbody>{''.join([*still, *moving])}</worldbody></mujoco>"
    )


def stone(name: str, seed: int, points: int, size: tuple[float, float, float]) -> str:
    """A mesh of points on a sphere, squashed, and six inside that its hull leaves out."""
    at = np.random.default_rng(seed).normal(size=(points, 3))
    at[:-6] /= np.linalg.norm(at[:-6], axis=1, keepdims=True)
    at[-6:] *= 0.1
    values = " ".join(f"{x:.4f}" for x in (at * size).ravel())
    return f'<asset><mesh name="{name}" vertex="{values}"/></asset>'


@functools.cache
def model(centred: bool = False, dtype: str | None = None) -> Any:
    return fphys.load(text(centred), dtype=dtype)


def kinds(model: Any) -> np.ndarray:
    """Index into KINDS of every pair."""
    return np.log2(model.structure.source.geom_contype[model.structure.geom.pair[:, 1]]).astype(int)


def bodies() -> list[tuple[int, int]]:
    """Kind and side of every body."""
    return [(k, side) for k, kind in enumerate(KINDS) for side, shape in enumerate(kind) if shape != "plane"]


def poses(worlds: int, seed: int, spread: float = 0.17) -> np.ndarray:
    """Random poses, all near one another."""
    rng = np.random.default_rng(seed)
    qpos = rng.normal(size=(worlds, len(bodies()), 7))
    qpos[..., :3] *= spread
    qpos[..., 3:] /= np.linalg.norm(qpos[..., 3:], axis=-1, keepdims=True)
    return qpos.reshape(worlds, -1)


PLACES = [(0, 0, 0), (0, 0, 0.2), (0.2, 0, 0), (0, 0.15, 0), (0.1, 0.1, 0), (0, 0, 0.31), (0.2, 0.2, 0.2), (0, 0, -0.1)]
HALF = 0.5**0.5
TURNS = [
    (1, 0, 0, 0),
    (HALF, HALF, 0, 0),
    (HALF, 0, HALF, 0),
    (HALF, 0, 0, HALF),
    (0, 0, 1, 0),
    (np.cos(np.pi / 8), np.sin(np.pi / 8), 0, 0),
    (np.cos(np.pi / 8), 0, 0, np.sin(np.pi / 8)),
    (1 - 1e-16, 1e-8, 0, 0),
]


def square_poses() -> np.ndarray:
    """Every place and turn of the second geom, the first at the origin: parallel, aligned, inside, coincident."""
    cases = list(itertools.product(PLACES, TURNS))
    qpos = np.zeros((len(cases), len(bodies()), 7))
    qpos[..., 3] = 1
    for w, (place, turn) in enumerate(cases):
        for b, (_, side) in enumerate(bodies()):
            if side == 1:
                qpos[w, b] = [*place, *turn]
    return qpos.reshape(len(cases), -1)


class Contact(NamedTuple):
    """Contacts of one pair in one world."""

    distance: np.ndarray
    pos: np.ndarray
    frame: np.ndarray

    def errors(self, other: "Contact") -> np.ndarray:
        """Largest errors of distance, position and frame, each contact against the nearest of the other set."""
        gap = np.abs(self.pos[:, None] - other.pos[None]).max(-1) + np.abs(self.distance[:, None] - other.distance)
        there, back = gap.argmin(axis=1), gap.argmin(axis=0)
        pairs = zip(self, other, strict=True)
        return np.array([max(np.abs(a - b[there]).max(), np.abs(a[back] - b).max()) for a, b in pairs])


def of_mujoco(source: Any, qpos: np.ndarray) -> list[dict[tuple[int, int], Contact]]:
    """MuJoCo's contacts: for each world, pair of geoms -> contacts."""
    d, out = mujoco.MjData(source), []
    for q in np.asarray(qpos):
        d.qpos[:] = q
        mujoco.mj_kinematics(source, d)
        mujoco.mj_comPos(source, d)
        mujoco.mj_collision(source, d)
        geoms = d.contact.geom.reshape(-1, 2)
        found = {}
        for pair in {tuple(g) for g in geoms.tolist()}:
            which = (geoms == pair).all(axis=1)
            found[pair] = Contact(*(np.array(x)[which] for x in (d.contact.dist, d.contact.pos, d.contact.frame)))
        out.append(found)
    return out


def of_ours(model: Any, contacts: Any) -> list[dict[tuple[int, int], Contact]]:
    """Our contacts in the same form."""
    pair, _, distance, pos, frame = (np.asarray(x) for x in contacts)
    out = []
    for w in range(len(pair)):
        found = {}
        for p in set(pair[w][pair[w] >= 0].tolist()):
            which = pair[w] == p
            parts = distance[w][which], pos[w][which], frame[w][which].reshape(-1, 9)
            found[tuple(model.structure.geom.pair[p].tolist())] = Contact(*parts)
        out.append(found)
    return out


class Parity(NamedTuple):
    contacts: int
    miscounted: list[int]  # worlds
    errors: np.ndarray  # (world, 3) where both found the same number of contacts


def parity(model: Any, qpos: np.ndarray, contacts: Any) -> dict[tuple[str, str], Parity]:
    """How our contacts of every kind compare with MuJoCo's."""
    theirs, ours, out = of_mujoco(model.structure.source, qpos), of_ours(model, contacts), {}
    for kind, pair in zip(kinds(model), model.structure.geom.pair.tolist(), strict=True):
        count, wrong, errors = 0, [], np.zeros((len(ours), 3))
        for w, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            mine, other = a.get(tuple(pair)), b.get(tuple(pair))
            if (0 if mine is None else len(mine.pos)) != (0 if other is None else len(other.pos)):
                wrong.append(w)
            elif mine is not None:
                errors[w] = mine.errors(other)
                count += len(mine.pos)
        out[KINDS[kind]] = Parity(count, wrong, errors)
    return out
