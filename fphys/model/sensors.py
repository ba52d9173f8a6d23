"""Sensors of a MuJoCo model: what they measure, and which of them are not simulated."""

import enum
from collections.abc import Iterator
from typing import Any

import numpy as np

from .structure import GeomType, Sensors

SensorType = enum.IntEnum(
    "SensorType",
    "TOUCH ACCELEROMETER VELOCIMETER GYRO FORCE TORQUE MAGNETOMETER RANGEFINDER CAMPROJECTION JOINTPOS JOINTVEL "
    "TENDONPOS TENDONVEL ACTUATORPOS ACTUATORVEL ACTUATORFRC JOINTACTUATORFRC TENDONACTUATORFRC BALLQUAT BALLANGVEL "
    "JOINTLIMITPOS JOINTLIMITVEL JOINTLIMITFRC TENDONLIMITPOS TENDONLIMITVEL TENDONLIMITFRC FRAMEPOS FRAMEQUAT "
    "FRAMEXAXIS FRAMEYAXIS FRAMEZAXIS FRAMELINVEL FRAMEANGVEL FRAMELINACC FRAMEANGACC SUBTREECOM SUBTREELINVEL "
    "SUBTREEANGMOM INSIDESITE DISTANCE NORMAL FROMTO CONTACT E_POTENTIAL E_KINETIC CLOCK TACTILE PLUGIN USER",
    start=0,
)
"""MuJoCo's ``mjtSensor``, under the names that a file gives the sensors."""

_S = SensorType
_NEVER = {_S.CAMPROJECTION, _S.DISTANCE, _S.NORMAL, _S.FROMTO, _S.TACTILE, _S.PLUGIN, _S.USER}
_SITE, _CAMERA = 6, 7  # mjtObj
_BODY = 5  # mjTRN_BODY: adhesion
_POSITIVE = 1  # mjDATATYPE_POSITIVE; mjDATATYPE_REAL is 0
_DISTANCE = 1  # bit of mjRAYDATA_DIST


def read_sensors(m: Any) -> Sensors:
    """The sensors of a compiled model."""
    bounded = (m.sensor_cutoff > 0) & (m.sensor_datatype <= _POSITIVE)  # neither axes nor quaternions
    bounded &= m.sensor_type != _S.CONTACT
    cutoff = np.where(bounded, m.sensor_cutoff, np.inf)
    watched = np.full(m.nsensor, -1)
    watched[m.sensor_type == _S.TOUCH] = m.sensor_objid[m.sensor_type == _S.TOUCH]
    on_site = (m.sensor_type == _S.CONTACT) & (m.sensor_objtype == _SITE)
    watched[on_site] = m.sensor_objid[on_site]
    watched[m.sensor_type == _S.INSIDESITE] = m.sensor_refid[m.sensor_type == _S.INSIDESITE]
    visible = visible_geoms(m)
    ints = lambda values: np.array(values, np.int32)  # noqa: E731
    return Sensors(
        type=ints(m.sensor_type),
        kind=ints(m.sensor_objtype),
        target=ints(m.sensor_objid),
        reference_kind=ints(m.sensor_reftype),
        reference=ints(m.sensor_refid),
        adr=ints(m.sensor_adr),
        dim=ints(m.sensor_dim),
        low=np.where(m.sensor_datatype == _POSITIVE, -np.inf, -cutoff),
        high=cutoff,
        zone=ints([m.site_type[i] if i >= 0 else -1 for i in watched]),
        zone_size=np.array([m.site_size[i] if i >= 0 else np.zeros(3) for i in watched]).reshape(-1, 3),
        contact=ints(m.sensor_intprm[:, :2]),
        visible=visible,
        missing=tuple(", ".join(_missing(m, i, visible)) for i in range(m.nsensor)),
    )


def visible_geoms(m: Any) -> np.ndarray:
    """Geoms that are not fully transparent."""
    alpha = m.geom_rgba[:, 3].copy()
    painted = m.geom_matid >= 0
    alpha[painted] *= m.mat_rgba[m.geom_matid[painted], 3]
    return np.flatnonzero(alpha != 0).astype(np.int32)


def _missing(m: Any, i: int, visible: np.ndarray) -> Iterator[str]:
    """The reasons why a sensor is not simulated."""
    kind = SensorType(int(m.sensor_type[i]))
    if kind in _NEVER:
        yield "not simulated"
    if _CAMERA in (m.sensor_objtype[i], m.sensor_reftype[i]):
        yield "attached to a camera"
    if kind == _S.RANGEFINDER:
        if m.sensor_intprm[i, 0] != _DISTANCE:
            yield "data other than the distance"
        fields = [int(g) for g in visible if m.geom_type[g] == GeomType.SDF]
        if fields:
            yield f"rays on SDFs (geom {m.geom(fields[0]).name or fields[0]})"
    if kind in (_S.ACTUATORVEL, _S.JOINTACTUATORFRC) and (m.actuator_trntype == _BODY).any():
        yield "beside adhesion, whose moments are those of contacts"
    if m.sensor_delay[i] or m.sensor_interval[i].any() or m.sensor_history[i].any():
        yield "delay, interval and history"
