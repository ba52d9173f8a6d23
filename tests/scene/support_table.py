"""The table in ``docs/scene-support.md``: what each back end simulates.

``python -m tests.scene.support_table`` writes it. A test checks that the committed table is current.
"""

from pathlib import Path
from typing import Any

import numpy as np

import fphys
from fphys.deformables import fem
from fphys.errors import UnsupportedError
from fphys.particles.materials import Corotated, Liquid, MohrCoulomb, NeoHookean, Sand, Snow, VonMises
from fphys.scene import (
    FEM,
    IMU,
    MJCF,
    MPM,
    PBD,
    SPH,
    URDF,
    USD,
    Box,
    Camera,
    Capsule,
    Cloth,
    Contact,
    Cylinder,
    Domain,
    Drain,
    JointState,
    Mesh,
    Plane,
    Rays,
    Rigid,
    Rope,
    Scene,
    Source,
    Sphere,
    Terrain,
)
from fphys.scene.scene import BACKENDS
from fphys.scene.support import refuse

PAGE = Path(__file__).parents[2] / "docs" / "scene-support.md"
HEAD = """# What each back end simulates

`python -m tests.scene.support_table` writes this page. A cell holds "yes", or the reason that `Scene.build` gives when
it refuses such a scene. The tests in `tests/scene/` say what is compared with what.

| scene | native | genesis | physx |
|---|---|---|---|
"""
ROOM = Domain((-1.0, -1.0, -1.0), (1.0, 1.0, 1.0), 0.1)
LAWS = {
    "Corotated": Corotated(1000.0, 1e4, 0.3),
    "NeoHookean": NeoHookean(1000.0, 1e4, 0.3),
    "Liquid": Liquid(1000.0, 1e4),
    "Snow": Snow(),
    "Sand": Sand(),
    "MohrCoulomb": MohrCoulomb(),
    "VonMises": VonMises(1000.0, 1e4, 0.3, 1e3),
}
YES = "yes"
CLOTH = Cloth((1.0, 1.0), (2, 2))
RAY = ((0.0, 0.0, 1.0),)


class Wedge(Mesh):
    """A mesh without its file."""

    def __post_init__(self) -> None: ...


def scenes() -> dict[str, Scene]:
    """One scene for each feature."""
    box, ball = Box((0.4, 0.4, 0.4)), Sphere(0.1, pos=(0, 0, 0.5))
    morphs: dict[str, tuple[Any, ...]] = {
        "Plane": (Plane(),),
        "Box": (box,),
        "Sphere": (ball,),
        "Capsule": (Capsule(0.1, 0.2),),
        "Cylinder": (Cylinder(0.1, 0.2),),
        "Mesh, as its convex hull": (Wedge("wedge.obj"),),
        "MJCF": (MJCF("<mujoco/>"),),
        "URDF": (URDF(fphys.asset("arm-urdf")),),
        "USD": (USD("robot.usd"),),
        "Terrain": (Terrain(np.zeros((3, 3)), 1.0),),
        "a mass for each world": (box, Rigid(mass=(1.0, 2.0))),
        "friction for each world": (box, Rigid(friction=(0.5, 1.0))),
        "friction of 0": (box, Rigid(friction=0.0)),
        **{f"MPM({law})": (box, MPM(LAWS[law])) for law in LAWS},
        "SPH": (box, SPH(10.0)),
        "a Source": (Source(0.2, 1.0, 10), SPH(10.0)),
        "Mesh, FEM": (Wedge("wedge.msh"), FEM(fem.NeoHookean(1000.0, 1e5, 0.4))),
        "Mesh, PBD": (Wedge("wedge.msh"), PBD(1000.0)),
        "Cloth": (CLOTH, PBD(0.2)),
        "Rope": (Rope(1.0, 4), PBD(0.1)),
        "Cloth, FEM": (CLOTH, FEM(fem.NeoHookean(1000.0, 1e5, 0.4), thickness=1e-3)),
    }
    sensors = {
        "JointState": JointState(),
        "IMU": IMU("box"),
        "Contact": Contact("box"),
        "Rays in the world": Rays(RAY),
        "Rays on a link": Rays(RAY, "box"),
        "Camera": Camera((1, 0, 1)),
    }
    made = {}
    for name, given in morphs.items():
        made[name] = Scene(domain=ROOM)
        made[name].add(*given)
    for name, sensor in sensors.items():
        made[name] = Scene()
        made[name].add(box)
        made[name].add_sensor(sensor)
    mixed: dict[str, list[tuple[Any, ...]]] = {
        "particles and a fixed body": [(box, MPM(LAWS["Snow"])), (Sphere(0.1, pos=(0, 0, 0.5), fixed=True),)],
        "particles and a moving body that they push": [(box, MPM(LAWS["Snow"])), (ball,)],
        "particles and a moving body, `Rigid(pushed=False)`": [(box, MPM(LAWS["Snow"])), (ball, Rigid(pushed=False))],
    }
    stiff = (Wedge("wedge.msh"), FEM(fem.NeoHookean(1000.0, 1e5, 0.4)))
    mixed |= {
        "cloth and a fixed body": [(CLOTH, PBD(0.2)), (Sphere(0.1, fixed=True),)],
        "cloth and a moving body that it pushes": [(CLOTH, PBD(0.2)), (ball,)],
        "cloth and a moving body, `Rigid(pushed=False)`": [(CLOTH, PBD(0.2)), (ball, Rigid(pushed=False))],
        "FEM and a fixed body": [stiff, (Sphere(0.1, fixed=True),)],
        "cloth and particles": [(CLOTH, PBD(0.2)), (box, MPM(LAWS["Snow"]))],
    }
    sheet = Cloth((1.0, 1.0), (2, 2), pos=(2.0, 0.0, 0.0)), FEM(fem.NeoHookean(1000.0, 1e5, 0.4), thickness=1e-3)
    mixed["cloth and FEM, which do not feel each other"] = [(CLOTH, PBD(0.2)), sheet]
    mixed["SPH and a Drain"] = [(box, SPH(10.0)), (Sphere(0.1), Drain())]
    mixed["MPM and SPH, which do not feel each other"] = [(box, MPM(LAWS["Snow"])), (ball, SPH(10.0))]
    seen = {"particles seen by a camera": Camera((1, 0, 1)), "particles seen by rays": Rays(RAY)}
    mixed |= {name: [(box, SPH(10.0))] for name in seen}
    for name, parts in mixed.items():
        made[name] = Scene(domain=ROOM)
        for part in parts:
            made[name].add(*part)
        if name in seen:
            made[name].add_sensor(seen[name])
    return made


def verdict(scene: Scene, backend: str) -> str:
    """Yes, or the reason of a back end's refusal."""
    try:
        refuse(scene, backend)
    except UnsupportedError as error:
        reasons = [line.strip() for line in str(error).splitlines()[1:]]
        return "; ".join(reason.partition(": ")[2] or reason for reason in reasons)
    return YES


def table() -> str:
    """The page, from the current refusals."""
    rows = [(name, *(verdict(scene, backend) for backend in BACKENDS)) for name, scene in scenes().items()]
    return HEAD + "".join(f"| {' | '.join(row)} |\n" for row in rows)


if __name__ == "__main__":
    PAGE.write_text(table())
