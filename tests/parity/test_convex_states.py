"""Contacts that MuJoCo searches for, along its own trajectories: accelerations and contact sets.

MuJoCo follows a curved surface by a polytope until its tolerance, which leaves its normals 1e-6 to 1e-5 off; ours solve
for them. Two hulls have no curved surface, and agree to rounding.
"""

import copy
from typing import Any

import mujoco
import numpy as np
import pytest

from fphys.model.pairs import CAPSULE, CYLINDER, MESH, PLANE
from fphys.oracle import Row, answer, error, strict
from fphys.rigid.collide.collision import detection_distance

from .corpus import CONVEX, case, searched, states
from .rims import at, solved_again
from .test_contact_states import compare, nearest, ours

NORMALS = 3e-5
"""Largest error of MuJoCo's normals in these states: measured 1.3e-5."""
AGREE = 0.88
"""Share of states in which flat sides make the same accelerations; measured 0.9 to 1."""
COUNTED = 0.8
"""Share of states that none of the causes below leaves out."""
POINTS = 2e-6
"""Largest error of its points [m]: measured 8.8e-7."""
ROUNDED = 1e-8
"""How far MuJoCo's corners lie off its sides of a mesh [m]: it rounds them to float32 after it has the normals."""
ALIGNED = 0.996
"""Cosine between normals that MuJoCo takes for one, where it gives a pair several contacts."""
TURNED = "MuJoCo's edge or line is that of its single contact's normal, its normal that of a face"
ORDER = "MuJoCo's contacts depend on the order of the geoms"


def bar(name: str, rows: list[Row]) -> float:
    """What 99 % of the accelerations must agree to: 1e-6, or five times MuJoCo's own disagreement, in as many of these
    states, with its search to a tenth of its tolerance; never more than its normals account for."""
    finer = copy.copy(case(name).structure.source)
    finer.opt.ccd_tolerance *= 0.1
    again, first = (np.array([r.qacc for r in found]) for found in ([answer(finer, row) for row in rows], rows))
    own = np.quantile(error(again, first), 0.99)
    print(f"{name}: MuJoCo disagrees with itself by {own:.1e}")
    return min(max(1e-6, 5 * own), NORMALS)


def compared(name: str, full: bool) -> tuple[np.ndarray, list[Any], Any]:
    rows = states(name, 2000 if full else 100)
    answer = ours(name, rows)
    reach = np.asarray(detection_distance(case(name)))[0]
    sets = [compare(name, row, answer.info, w, reach) for w, row in enumerate(rows)]
    assert np.mean([row.active for row in rows]) >= 0.5
    assert not answer.info.status.any()
    return error(answer.qacc, np.array([row.qacc for row in rows])), sets, answer


@pytest.mark.parametrize("name", list(CONVEX))
def test_one_contact_for_each_pair(name: str, full: bool):
    errors, sets, _ = compared(f"{name}, one contact", full)
    geometry = np.concatenate([c.geometry for c in sets])
    assert np.mean([c.same for c in sets]) >= 0.99
    assert len(geometry) > 40
    assert np.quantile(geometry[:, 0], 0.99) < 1e-9 and geometry[:, 0].max() < 1e-5
    assert np.quantile(geometry[:, 1], 0.99) < NORMALS and geometry[:, 1].max() < 1e-3
    assert np.median(errors) < 1e-9
    assert np.quantile(errors, 0.99) < bar(f"{name}, one contact", states(f"{name}, one contact", len(errors)))
    if "mesh" in name:
        assert np.quantile(errors, 0.99) < 1e-8


def left_out(name: str, rows: list[Row]) -> list[str]:
    """For each state why MuJoCo's contacts are not what they are made from, or nothing; MuJoCo alone is asked."""
    m = case(name).structure.source
    single = copy.copy(m)
    single.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_MULTICCD)
    swapped, found = strict(last_first(searched()[name])) if name in searched() else m, []
    for row in rows:
        alone, why = answer(single, row).contacts, []
        for geoms, frame in zip(alone.geom, alone.frame, strict=True):
            mine = (np.sort(row.contacts.geom, 1) == np.sort(geoms)).all(1)
            if PLANE not in m.geom_type[geoms] and (np.abs(row.contacts.frame[mine, 0] - frame[0]) > 1e-5).any():
                why.append(TURNED)
        if error(answer(swapped, row).qacc[None], row.qacc[None])[0] > NORMALS:
            why.append(ORDER)
        found.append(why[0] if why else "")
    return found


def last_first(text: str) -> str:
    """The same scene with the geom that stands still, the first of a pair, as the last; bodies keep their numbers."""
    start, end = text.index("/><geom type") + 2, text.index("\n", text.index("/><geom type"))
    return (text[:start] + text[end:]).replace("</worldbody>", f"<body>{text[start:end]}</body></worldbody>")


def with_ours(name: str, row: Row, info: Any, w: int) -> Row:
    """MuJoCo's answer from contacts that lie where ours do, which is within the error of its search."""
    g, m = case(name).structure.geom, case(name).structure.source
    d, here = at(m, row), np.flatnonzero(info.contacts.pair[w] >= 0)
    mine = np.sort(g.pair[info.contacts.pair[w][here]], 1)
    for key in np.unique(mine, axis=0):
        i = here[(mine == key).all(1)]
        j = np.flatnonzero((np.sort(d.contact.geom, 1) == key).all(1))
        assert len(i) == len(j)
        j = j[nearest(info.contacts.pos[w][i], d.contact.pos[j])]
        pos, frame, distance = info.contacts.pos[w][i], info.contacts.frame[w][i], info.contacts.distance[w][i]
        known = ROUNDED if MESH in m.geom_type[key] else 1e-11
        assert np.abs(d.contact.dist[j] - distance).max() < known, "the depth is known to MuJoCo's tolerance"
        assert np.abs(d.contact.pos[j] - pos).max() < POINTS
        assert np.abs(d.contact.frame[j] - frame.reshape(-1, 9)).max() < NORMALS
        d.contact.dist[j], d.contact.pos[j], d.contact.frame[j] = distance, pos, frame.reshape(-1, 9)
    return solved_again(m, d, row)


@pytest.mark.parametrize("name", list(CONVEX))
def test_flat_sides(name: str, full: bool):
    """Where nothing is amiss with MuJoCo's own contacts, ours make the same accelerations."""
    name = f"{name}, flat sides"
    errors, sets, answer = compared(name, full)
    rows = states(name, len(errors))
    causes, limit = np.array(left_out(name, rows)), bar(name, rows)
    agree, counted, same = errors < limit, causes == "", np.array([c.same for c in sets])
    print(f"  {agree.mean():.1%} agree to {limit:.1e}, {np.mean(errors < NORMALS):.1%} to {NORMALS}")
    print(f"  {same.mean():.1%} have as many contacts, {same[counted].mean():.2%} of")
    print(f"  {counted.mean():.1%} that count, of which {agree[counted].mean():.2%} agree; left out, and disagree:")
    for why in set(causes) - {""}:
        print(f"  {why}: {np.mean(causes == why):.1%}, {np.mean((causes == why) & ~agree):.1%}")
    rest = np.flatnonzero(counted & ~agree).tolist()
    exact = {w: error(answer.qacc[[w]], with_ours(name, rows[w], answer.info, w).qacc[None])[0] for w in rest}
    print(*(f"  state {w}: {errors[w]:.1e}; from our points and normals {e:.1e}" for w, e in exact.items()), sep="\n")
    assert all(e < 1e-9 for e in exact.values())
    assert agree[counted].mean() >= 0.99 and counted.mean() >= COUNTED
    assert np.mean(errors < NORMALS) >= AGREE
    assert np.isfinite(answer.qacc).all()


def pushing(name: str, count: int) -> list[Any]:
    """States of Gymnasium's pusher in which a capsule of its arm touches the cylinder, which random actions rarely
    bring about: poses of the arm, the object put beneath its tip."""
    m = case(name).structure.source
    rng, d, rows = np.random.default_rng(0), mujoco.MjData(m), []
    tip, thing = m.body("tips_arm").id, m.body("object").id
    slides = [m.joint(f"obj_slide{axis}").qposadr[0] for axis in "xy"]
    while len(rows) < count:
        mujoco.mj_resetData(m, d)
        d.qpos[:7] += 0.3 * rng.standard_normal(7)
        mujoco.mj_kinematics(m, d)
        d.qpos[slides] = (d.xpos[tip] - d.xpos[thing])[:2] + rng.uniform(-0.1, 0.1, 2)
        d.qvel[:] = 0.3 * rng.standard_normal(m.nv)
        mujoco.mj_forward(m, d)
        kinds = np.sort(m.geom_type[d.contact.geom], axis=1)
        if (kinds == (CAPSULE, CYLINDER)).all(axis=1).any():
            rows.append(answer(m, d))
    return rows


def contradicts(name: str, row: Row) -> bool:
    """Whether MuJoCo's contacts of a pair lie along another normal than the one along which it says that the pair is
    least deep, apart by more than its own tolerance."""
    m = case(name).structure.source
    single = copy.copy(m)
    single.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_MULTICCD)
    alone, all_ = answer(single, row).contacts, row.contacts
    same = (np.sort(alone.geom, 1)[:, None] == np.sort(all_.geom, 1)).all(2)
    cosine = np.einsum("ik,jk->ij", alone.frame[:, 0], all_.frame[:, 0])
    searched_for = ~(m.geom_type[alone.geom] == PLANE).any(1)
    return bool((same & (cosine < ALIGNED))[searched_for].any())


@pytest.mark.extra("gymnasium")
def test_the_pusher_touches_its_object(full: bool):
    """As many contacts in 99 % of the states, or in all but five times those in which MuJoCo contradicts itself."""
    name = "gymnasium-pusher_v5"
    rows = pushing(name, 500 if full else 60)
    found = ours(name, rows)
    reach = np.asarray(detection_distance(case(name)))[0]
    same = np.array([compare(name, row, found.info, w, reach).same for w, row in enumerate(rows)])
    errors = error(found.qacc, np.array([row.qacc for row in rows]))
    apart = np.array([contradicts(name, row) for row in rows])
    print(f"pusher: as many contacts in {same.mean():.1%}; MuJoCo contradicts itself in {apart.mean():.1%};")
    print(
        f"  as many in {same[~apart].mean():.2%} of the others; errors {np.quantile(errors[~apart], 0.99):.1e} at 99 %"
    )
    assert np.mean(~same) <= max(0.01, 5 * apart.mean())
    assert apart.mean() <= 0.05, "the oracle is too blunt to judge anything"
    assert np.mean(same[~apart]) >= 0.99
    assert np.median(errors) < 1e-8 and np.quantile(errors[~apart], 0.99) < NORMALS
