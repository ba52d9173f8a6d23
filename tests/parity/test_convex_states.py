"""Contacts that MuJoCo searches for, along its own trajectories: accelerations and contact sets.

MuJoCo follows a curved surface by a polytope until its tolerance, which leaves its normals 1e-6 to 1e-5 off; ours solve
for them. Two hulls have no curved surface, and agree to rounding.
"""

import copy
import functools
from typing import Any

import mujoco
import numpy as np
import pytest

from fphys.model.pairs import CAPSULE, CYLINDER, PLANE
from fphys.rigid.collision import detection_distance

from .corpus import CONVEX, Row, answer, case, searched, states, strict
from .test_contact_states import compare, error, ours

NORMALS = 3e-5
"""Largest error of MuJoCo's normals in these states: measured 1.3e-5."""
AGREE = 0.88
"""Share of states in which flat sides make the same accelerations; measured 0.9 to 1."""
COUNTED = 0.8
"""Share of states that none of the causes below leaves out."""
TURNED = "MuJoCo's edge or line is that of its single contact's normal, its normal that of a face"
ORDER = "MuJoCo's contacts depend on the order of the geoms"


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
    assert np.median(errors) < 1e-9 and np.quantile(errors, 0.99) < NORMALS
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


@pytest.mark.parametrize("name", list(CONVEX))
def test_flat_sides(name: str, full: bool):
    """Where nothing is amiss with MuJoCo's own contacts, ours make the same accelerations."""
    name = f"{name}, flat sides"
    errors, sets, answer = compared(name, full)
    causes = np.array(left_out(name, states(name, len(errors))))
    agree, counted, same = errors < NORMALS, causes == "", np.array([c.same for c in sets])
    print(f"{name}: {agree.mean():.1%} agree, {same.mean():.1%} have as many contacts, {same[counted].mean():.2%} of")
    print(f"  {counted.mean():.1%} that count, of which {agree[counted].mean():.2%} agree; left out, and disagree:")
    for why in set(causes) - {""}:
        print(f"  {why}: {np.mean(causes == why):.1%}, {np.mean((causes == why) & ~agree):.1%}")
    print(*(f"  state {w}: {errors[w]:.1e}, no cause found" for w in np.flatnonzero(counted & ~agree)), sep="\n")
    assert agree[counted].mean() >= 0.99 and counted.mean() >= COUNTED
    assert agree.mean() >= AGREE
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


@functools.cache
def pusher(count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of each state: the error, whether the contacts are the same, and whether nothing is amiss with MuJoCo's own."""
    name = "gymnasium-pusher_v5"
    rows = pushing(name, count)
    found = ours(name, rows)
    reach = np.asarray(detection_distance(case(name)))[0]
    same = [compare(name, row, found.info, w, reach).same for w, row in enumerate(rows)]
    errors = error(found.qacc, np.array([row.qacc for row in rows]))
    return errors, np.array(same), np.array(left_out(name, rows)) == ""


@pytest.mark.extra("gymnasium")
def test_the_pusher_touches_its_object(full: bool, request: pytest.FixtureRequest):
    if full:  # as many contacts in 97 % of the states: an edge of MuJoCo's follows a normal that the contact has not
        request.applymarker(pytest.mark.xfail(strict=True, reason="not in 99 % of all states, see the test below"))
    errors, same, _ = pusher(500 if full else 60)
    assert np.mean(same) >= 0.99
    assert np.median(errors) < 1e-8 and np.quantile(errors, 0.99) < NORMALS


@pytest.mark.extra("gymnasium")
def test_the_pusher_where_mujocos_contacts_agree_with_one_another(full: bool):
    errors, same, counted = pusher(500 if full else 60)
    print(f"pusher: {counted.mean():.1%} count; MuJoCo's normal is not its single contact's in the others")
    assert counted.mean() >= 0.9
    assert np.mean(same[counted]) >= 0.99 and np.quantile(errors[counted], 0.99) < NORMALS
