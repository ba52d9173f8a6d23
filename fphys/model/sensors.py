"""Sensors of a MuJoCo model: what they measure, and which of them are not simulated."""

import enum
from collections.abc import Iterator
from typing import Any

import numpy as np

from .structure import Cameras, GeomType, Sensors

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
APART = (_S.DISTANCE, _S.NORMAL, _S.FROMTO)
"""What is measured between geoms that need not touch."""
_NEVER = {_S.TACTILE, _S.PLUGIN, _S.USER}
_GEOM, _SITE, _CAMERA = 5, 6, 7  # mjtObj
_BODY = 5  # mjTRN_BODY: adhesion
_POSITIVE = 1  # mjDATATYPE_POSITIVE; mjDATATYPE_REAL is 0
RAY_DATA = {"distance": 1, "direction": 3, "origin": 3, "point": 3, "normal": 3, "depth": 1}
"""What a rangefinder reports of a ray, and how many numbers each is; the bits of MuJoCo's ``mjtRayDataField``."""
_NORMAL = 1 << list(RAY_DATA).index("normal")


def read_sensors(m: Any) -> Sensors:
    """The sensors of a compiled model."""
    bounded = (m.sensor_cutoff > 0) & (m.sensor_datatype <= _POSITIVE)  # neither axes nor quaternions
    bounded &= ~np.isin(m.sensor_type, (_S.CONTACT, _S.FROMTO))
    cutoff = np.where(bounded, m.sensor_cutoff, np.inf)
    watched = np.full(m.nsensor, -1)
    watched[m.sensor_type == _S.TOUCH] = m.sensor_objid[m.sensor_type == _S.TOUCH]
    on_site = (m.sensor_type == _S.CONTACT) & (m.sensor_objtype == _SITE)
    watched[on_site] = m.sensor_objid[on_site]
    watched[m.sensor_type == _S.INSIDESITE] = m.sensor_refid[m.sensor_type == _S.INSIDESITE]
    visible = visible_geoms(m)
    pairs = [measured_pairs(m, i) for i in range(m.nsensor)]
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
        data=ints(np.where(m.sensor_type == _S.RANGEFINDER, m.sensor_intprm[:, 0], 0)),
        pair=ints(np.concatenate([np.zeros((0, 2)), *pairs])),
        pair_adr=ints(np.cumsum([0, *map(len, pairs)])),
        within=np.where(np.isin(m.sensor_type, APART), m.sensor_cutoff, 0.0),
        visible=visible,
        missing=tuple(", ".join(_missing(m, i, visible)) for i in range(m.nsensor)),
    )


def read_cameras(m: Any) -> Cameras:
    """The cameras of a compiled model."""
    tall = m.cam_resolution[:, 1:] / 2 / np.tan(np.deg2rad(m.cam_fovy[:, None]) / 2)
    chip = m.cam_sensorsize.all(1, keepdims=True)
    own = m.cam_intrinsic[:, :2] / np.where(chip, m.cam_sensorsize, 1.0) * m.cam_resolution
    return Cameras(
        body=np.array(m.cam_bodyid, np.int32),
        pos=np.array(m.cam_pos),
        quat=np.array(m.cam_quat),
        resolution=np.array(m.cam_resolution, np.int32),
        focal=np.where(chip, own, tall),
    )


def measured_pairs(m: Any, i: int) -> np.ndarray:
    """Pairs of geoms whose distance sensor i measures, (k, 2): one of its first thing, one of its second."""
    if m.sensor_type[i] not in APART:
        return np.zeros((0, 2), np.int32)
    things = (m.sensor_objtype[i], m.sensor_objid[i]), (m.sensor_reftype[i], m.sensor_refid[i])
    first, second = ([j] if kind == _GEOM else np.flatnonzero(m.geom_bodyid == j) for kind, j in things)
    return np.stack(np.meshgrid(first, second, indexing="ij"), -1).reshape(-1, 2).astype(np.int32)


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
    attached = (m.sensor_objtype[i], m.sensor_objid[i]), (m.sensor_reftype[i], m.sensor_refid[i])
    for camera in (j for own, j in attached if own == _CAMERA):
        if m.cam_mode[camera]:
            yield "attached to a camera that follows a body"
        if m.cam_projection[camera] and kind in (_S.CAMPROJECTION, _S.RANGEFINDER):
            yield "attached to an orthographic camera"
        if m.cam_sensorsize[camera].all() and kind == _S.RANGEFINDER:
            yield "attached to a camera with a sensorsize"
    for geom in np.unique(measured_pairs(m, i)):
        if m.geom_type[geom] in (GeomType.HFIELD, GeomType.SDF):
            yield f"distances to height fields and SDFs (geom {m.geom(int(geom)).name or geom})"
    if kind == _S.RANGEFINDER:
        if m.sensor_intprm[i, 0] & _NORMAL:
            yield "the normal of what it hits"
        fields = [int(g) for g in visible if m.geom_type[g] == GeomType.SDF]
        if fields:
            yield f"rays on SDFs (geom {m.geom(fields[0]).name or fields[0]})"
    if kind in (_S.ACTUATORVEL, _S.JOINTACTUATORFRC) and (m.actuator_trntype == _BODY).any():
        yield "beside adhesion, whose moments are those of contacts"
    if m.sensor_delay[i] or m.sensor_interval[i].any() or m.sensor_history[i].any():
        yield "delay, interval and history"
