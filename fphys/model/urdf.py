"""URDFs that other programs read and MuJoCo refuses: they are mended, and every change is named.

The document is mended first: what it says twice, in other words, or about looks only. Then bodies are, if the user asks
for it: everything that moves needs a mass, and an inertia that a solid can have.
"""

import contextlib
import importlib
import importlib.util
import re
import warnings
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..errors import ModelError

LIGHT = 1e-3
"""Mass of a moving body that has none [kg]."""
SMALL = 1e-6
"""Its inertia [kg m²]; and the least principal inertia of any body, relative to its largest."""
WATER = 1000.0
"""Density of the ball whose inertia a body gets that has a mass and no inertia [kg/m³]."""

_MESHES = (".dae", ".glb", ".gltf", ".ply", ".off", ".3mf")
_TRIPLES = ("xyz", "rpy", "size", "scale")


class Mended(NamedTuple):
    """A compiled model of a URDF that MuJoCo refuses, and what was changed."""

    model: Any
    read: list[str]
    """What the document says in other words."""
    bodies: list[str]
    """What bodies were given: masses and inertias that the document does not have."""


def is_urdf(xml: bytes) -> bool:
    """Whether a document's root is <robot>."""
    first = re.search(rb"<\s*([\w:]+)", re.sub(rb"<!--.*?-->|<\?.*?\?>", b"", xml, flags=re.DOTALL))
    return first is not None and first[1] == b"robot"


def compiled(read: Callable[[bytes], Any], xml: bytes, folder: Path | None, label: str, why: str, mend: bool) -> Any:
    """The compiled model of a URDF that MuJoCo refuses, with what was changed as a warning.

    Args:
        read, xml, folder: as for :func:`mended`.
        label: the document's name in errors.
        why: what MuJoCo says.
        mend: give bodies what they lack.

    Raises:
        ModelError: it cannot be mended, or only by giving bodies what they lack.
    """
    found = mended(read, xml, folder)
    if found is None:
        raise ModelError(why)
    if found.bodies and not mend:
        raise ModelError("\n  ".join([f"{why}\nload(..., mend=True) reads it with these changes:", *found.bodies]))
    if changes := [*found.read, *found.bodies]:
        title = f"{label}: MuJoCo refuses this URDF as it is; it is read with these changes:"
        warnings.warn("\n  ".join([title, *changes]), UserWarning, stacklevel=2)
    return found.model


def mended(read: Callable[[bytes], Any], xml: bytes, folder: Path | None) -> Mended | None:
    """The compiled model of a URDF that MuJoCo refuses; None if it cannot be mended.

    Args:
        read: makes a ``mujoco.MjSpec`` of a document.
        xml: the document.
        folder: of its meshes; None if it names no files.
    """
    root = ET.fromstring(xml)
    bodies, changes, meshes = mend_masses(root), mend_document(root), mend_meshes(root, folder)
    faults: dict[str, str] = {}
    while True:
        try:
            spec = read(ET.tostring(root))
            spec.assets = meshes
            given = [*bodies, *mend_inertias(spec), *mend_named(spec, faults)]
            return Mended(spec.compile(), changes, given)
        except Exception as error:
            fault = named(str(error))
            if fault is None or fault[0] in faults:
                return None
            faults[fault[0]] = fault[1]


def mend_masses(root: ET.Element) -> list[str]:
    """Give links with an inertial element and no mass in it that of their shapes; what was changed."""
    changes = []
    for link in root.iter("link"):
        for inertial in link.findall("inertial"):
            if inertial.find("mass") is None:
                link.remove(inertial)
                name = link.get("name", "")
                changes.append(f'link "{name}": it has no mass: taken from its shapes, at {WATER:g} kg/m³')
    return changes


def mend_document(root: ET.Element) -> list[str]:
    """Rewrite what MuJoCo cannot read, and drop looks, which it does not need; what was changed."""
    changes = []
    looks = [compiler.get("discardvisual") == "false" for compiler in root.iter("compiler")]
    for link in root.iter("link"):
        for visual in link.findall("visual") if not any(looks) else []:  # MuJoCo drops it once it has understood it
            link.remove(visual)
    for joint in root.iter("joint"):
        name = f'joint "{joint.get("name", "")}"'
        for tag in ("axis", "origin", "limit", "dynamics"):
            for extra in joint.findall(tag)[1:]:
                joint.remove(extra)
                changes.append(f"{name}: only the first <{tag}> counts")
    for element in root.iter():
        for key in _TRIPLES:
            numbers = element.get(key, "").replace(",", " ").split()
            if len(numbers) > 3 or "," in element.get(key, ""):
                changes.append(f'<{element.tag} {key}="{element.get(key)}">: read as {" ".join(numbers[:3])}')
                element.set(key, " ".join(numbers[:3]))
    return changes


def mend_meshes(root: ET.Element, folder: Path | None) -> dict[str, bytes]:
    """Name meshes that MuJoCo has no reader for as binary STL; these files by name."""
    meshes: dict[str, bytes] = {}
    if folder is None:
        return meshes
    for mesh in root.iter("mesh"):
        file = mesh.get("filename", "")
        if _is_foreign(folder / file) and (data := _as_stl(folder / file)):
            mesh.set("filename", f"{len(meshes)}-{Path(file).stem}.stl")
            meshes[mesh.get("filename", "")] = data
    return meshes


def _is_foreign(file: Path) -> bool:
    """Whether MuJoCo has no reader for a mesh: it reads binary STL, OBJ and its own format."""
    if file.suffix.lower() != ".stl" or not file.is_file():
        return file.suffix.lower() in _MESHES
    with file.open("rb") as opened:
        head = opened.read(84)
    return head.startswith(b"solid") and file.stat().st_size != 84 + 50 * int.from_bytes(head[80:84], "little")


def _as_stl(file: Path) -> bytes | None:
    """A mesh as a binary STL in metres; None if it cannot be read, or trimesh is not installed."""
    if importlib.util.find_spec("trimesh") is None:
        return None
    trimesh = importlib.import_module("trimesh")
    with contextlib.suppress(Exception):  # whatever is wrong with it, MuJoCo says that it cannot read it
        mesh = trimesh.load(str(file), force="mesh")
        if mesh.units not in (None, "m", "meter", "meters"):
            mesh.convert_units("meters")
        return mesh.export(file_type="stl")
    return None


def mend_inertias(spec: Any) -> list[str]:
    """Give every body of a spec an inertia that a solid can have; what was changed."""
    return [change for body in spec.bodies[1:] if body.explicitinertial for change in _mend_inertia(body)]


def _mend_inertia(body: Any) -> list[str]:
    full = np.array(body.fullinertia)
    if not np.isfinite(full).all():  # of a diagonal one
        full = np.concatenate([body.inertia, np.zeros(3)])
    if not body.mass > 0:
        return []
    xx, yy, zz, xy, xz, yz = full
    own, axes = np.linalg.eigh([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
    if own[2] <= 0:
        moment = 0.4 * body.mass * (3 * body.mass / (4 * np.pi * WATER)) ** (2 / 3)
        body.fullinertia = [moment, moment, moment, 0, 0, 0]
        return [f'link "{body.name}": it has no inertia: that of a ball of water of its mass, {moment:.2g} kg m²']
    if own[0] > 0 and own[0] + own[1] >= own[2]:
        return []
    new = np.maximum(own, SMALL * own[2])
    new[:2] += 0.5 * max(0.0, (1 + SMALL) * new[2] - new[0] - new[1])
    m = (axes * new) @ axes.T
    body.fullinertia = [m[0, 0], m[1, 1], m[2, 2], m[0, 1], m[0, 2], m[1, 2]]
    was, now = (" ".join(f"{x:.3g}" for x in values) for values in (own, new))
    return [f'link "{body.name}": no solid has the principal inertia {was}: read as {now}']


def mend_named(spec: Any, faults: dict[str, str]) -> list[str]:
    """Give bodies and meshes that MuJoCo named what they lack; what was changed."""
    changes = []
    for name, fault in faults.items():
        if fault == "mass":
            body = spec.body(name)
            body.explicitinertial, body.mass = True, LIGHT
            body.fullinertia = [SMALL, SMALL, SMALL, 0, 0, 0]
            changes.append(f'link "{name}": it moves and has no mass: {LIGHT:g} kg and {SMALL:g} kg m²')
        else:
            spec.mesh(name).inertia = 3  # mjMESH_INERTIA_SHELL
            changes.append(f'mesh "{name}": it encloses no volume: its inertia is that of a shell')
    return changes


def named(message: str) -> tuple[str, str] | None:
    """The element that MuJoCo's error names and what it lacks, if it can be mended."""
    name = re.search(r"Element name '([^']*)'", message)
    for text, fault in (("mass and inertia of moving bodies", "mass"), ("mesh volume is too small", "volume")):
        if text in message and name:
            return name[1], fault
    return None
