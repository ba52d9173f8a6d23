"""What force and torque sensors read where connections and welds hold bodies together, against MuJoCo C."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import fphys
from fphys.rigid.solve import equality
from fphys.testing import check_grads

from ..contact.mechanism import EQUALITIES, XML
from .test_ground_sensors import on_the_ground

GIVEN = {"cone": "elliptic", "impratio": 3, "condim": 3, "pair": ""}
READ = "".join(f'<force site="{site}"/><torque site="{site}"/>' for site in ("shoulder", "tip", "end"))
READ += '<force site="post"/><torque site="post"/>'
"""On the ground MuJoCo adds up torques about several points, those of the trees: there its wrenches are moved first."""


@functools.cache
def model(name: str) -> fphys.Model:
    """An arm and a load, held together at the arm's end; sensors at both, on the shoulder and on the ground."""
    xml = XML.format(equality=EQUALITIES[name], **GIVEN).replace(
        '<joint name="hinge"', '<site name="shoulder" euler="10 20 30"/><joint name="hinge"'
    )
    xml = xml.replace("<worldbody>", '<worldbody><site name="post" pos="1 1 1"/>', 1)
    return fphys.load(xml.replace("</mujoco>", f"<sensor>{READ}</sensor></mujoco>"))


@functools.cache
def states(name: str, count: int) -> tuple[np.ndarray, ...]:
    """Random positions and velocities, the bonds torn apart, and MuJoCo's readings."""
    m = model(name).structure.source
    rng, d, rows = np.random.default_rng(0), mujoco.MjData(m), []
    for _ in range(count):
        mujoco.mj_resetData(m, d)
        mujoco.mj_integratePos(m, d.qpos, 0.2 * rng.standard_normal(m.nv), 1)
        d.qvel[:] = rng.standard_normal(m.nv)
        mujoco.mj_forward(m, d)
        ground = on_the_ground(m, d, model(name).id("site", "post"))
        rows.append((d.qpos.copy(), d.qvel.copy(), np.concatenate([d.sensordata[:-6], ground])))
    return tuple(np.array(x) for x in zip(*rows, strict=True))


def wrong(name: str, count: int) -> float:
    """The largest error among the readings, relative to the largest of each sensor's."""
    qpos, qvel, expected = states(name, count)
    found = jax.jit(fphys.sensors)(model(name), fphys.init(model(name), count, qpos=qpos, qvel=qvel))
    assert (np.abs(expected[:, :12]).max(0) > 0.1).all()
    assert name == "to the world" or np.abs(expected[:, 12:18]).max() < 1e-9  # the load is free but for the bond
    return float((np.abs(found - expected) / np.maximum(1, np.abs(expected).max(0))).max())


@pytest.mark.parametrize("name", ["connect", "weld", "sites", "to the world"])
def test_readings_equal_mujocos(name: str, full: bool):
    assert wrong(name, 200 if full else 20) < 1e-10


def test_gradients():
    """By the state and by what holds the bodies: anchors, reference and impedance."""
    m = model("weld")
    qpos, qvel, _ = (x[:2] for x in states("weld", 20))

    def read(qpos: Any, qvel: Any, data: Any, solref: Any, solimp: Any) -> Any:
        changed = m.replace({"equality.data": data, "equality.solref": solref, "equality.solimp": solimp})
        return fphys.sensors(changed, fphys.init(m, 2).replace(qpos=qpos, qvel=qvel)) / 100

    e = m.equality
    args = (jnp.asarray(qpos), jnp.asarray(qvel), e.data, e.solref, e.solimp)
    check_grads(jax.jit(read), args, tol=1e-6, directions=3)


@pytest.mark.usefixtures("fresh_traces")
def test_a_torque_the_wrong_way_is_noticed(monkeypatch: pytest.MonkeyPatch):
    pulls = equality.weld_pulls

    def turned(*args: Any) -> Any:
        found = pulls(*args)
        return found._replace(torque=-found.torque)

    assert wrong("weld", 20) < 1e-10
    monkeypatch.setattr("fphys.rigid.measure.weld_pulls", turned)
    jax.clear_caches()
    assert wrong("weld", 20) > 1e-2
