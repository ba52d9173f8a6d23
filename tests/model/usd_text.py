"""USD files written as text."""

import warnings
from pathlib import Path

import fphys

HEAD = '#usda 1.0\n(defaultPrim = "w"; metersPerUnit = {length}; kilogramsPerUnit = {mass}; upAxis = "{up}")\n'
BODY = 'prepend apiSchemas = ["PhysicsRigidBodyAPI", "PhysicsMassAPI"]'
SHAPE = 'prepend apiSchemas = ["PhysicsCollisionAPI"]'


def write(folder: Path, text: str, name="model.usda", length=1.0, mass=1.0, up="Z") -> str:
    text = text.replace(" }", "\n}").replace("}def", "}\ndef")
    (folder / name).write_text(HEAD.format(length=length, mass=mass, up=up) + f'def Xform "w" {{\n{text}\n}}\n')
    return str(folder / name)


def body(
    name: str, inner: str = "", at=(0, 0, 0), mass=1.0, inertia=(0.1, 0.2, 0.25), com=(0, 0, 0), quat=(1, 0, 0, 0)
):
    return f"""def Xform "{name}" ({BODY}) {{
        double3 xformOp:translate = {at}
        quatd xformOp:orient = {quat}
        uniform token[] xformOpOrder = ["xformOp:translate", "xformOp:orient"]
        float physics:mass = {mass}
        float3 physics:diagonalInertia = {inertia}
        point3f physics:centerOfMass = {com}
        {inner}
    }}"""


def joint(kind: str, one: str | None, two: str, inner: str = "", at0=(0, 0, 0), at1=(0, 0, 0), apis: str = "") -> str:
    first = f"rel physics:body0 = </w/{one}>" if one else ""
    return f"""def Physics{kind}Joint "{two}_joint" ({f"prepend apiSchemas = [{apis}]" if apis else ""}) {{
        {first}
        rel physics:body1 = </w/{two}>
        point3f physics:localPos0 = {at0}
        point3f physics:localPos1 = {at1}
        {inner}
    }}"""


def read(path: str, **options):
    """The compiled model, of a file that needs no warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return fphys.load(path, **options).structure.source
