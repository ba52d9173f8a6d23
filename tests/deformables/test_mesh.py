"""Meshes: shapes, what is derived of them, and what is refused by number."""

import importlib
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fphys.deformables import mesh
from fphys.errors import MissingDependencyError, ModelError

SOLIDS = [mesh.box((2, 3, 1), (1.0, 0.6, 0.5)), mesh.box((3, 2), (1.0, 0.5), (0.2, 0.1)), mesh.ball(0.5, 4)]


def test_shapes_fill_what_they_should():
    for body, volume in zip(SOLIDS[:2], (0.3, 0.5), strict=True):
        sizes = mesh.measures(body.vertices, body.elements)
        assert sizes.sum() == pytest.approx(volume) and sizes.min() == pytest.approx(sizes.max())
    volumes = [mesh.measures(b.vertices, b.elements) for b in (mesh.ball(0.5, 4), mesh.ball(0.5, 8))]
    gaps = [1 - v.sum() / (np.pi / 6) for v in volumes]
    assert 0 < gaps[1] < gaps[0] / 3 < 0.03 and min(v.min() for v in volumes) > 0
    sheet, line = mesh.cloth((3, 2), (0.6, 0.4)), mesh.rope(5, 2.0)
    assert sheet.dim == line.dim == 3 and sheet.topology.corners == 3 and line.topology.corners == 2
    assert mesh.measures(sheet.vertices, sheet.elements).sum() == pytest.approx(0.24)
    np.testing.assert_allclose(mesh.measures(line.vertices, line.elements), 0.4)


@pytest.mark.parametrize("body", SOLIDS)
def test_the_surface_is_closed_and_looks_outwards(body: mesh.Mesh):
    """Gauss: the volume is the flux of x / dim through the surface; a closed surface's normals add up to zero."""
    p = body.vertices[body.topology.surface]
    if body.dim == 2:
        d = p[:, 1] - p[:, 0]
        normal = np.stack([d[:, 1], -d[:, 0]], 1)
    else:
        normal = np.cross(p[:, 1] - p[:, 0], p[:, 2] - p[:, 0]) / 2
    np.testing.assert_allclose(normal.sum(0), 0, atol=1e-13)
    flux = (p.mean(1) * normal).sum() / body.dim
    assert flux == pytest.approx(mesh.measures(body.vertices, body.elements).sum())


@pytest.mark.parametrize("body", [*SOLIDS, mesh.cloth((3, 2), (1.0, 1.0)), mesh.rope(4, 1.0)])
def test_incidence_and_sparsity(body: mesh.Mesh):
    topology = body.topology
    first, elements = topology.incidence
    for i in range(topology.num_vertices):
        own = np.flatnonzero((body.elements == i).any(1))
        np.testing.assert_array_equal(elements[first[i] : first[i + 1]], own)
    first, column, slot = topology.sparsity
    row = np.repeat(np.arange(topology.num_vertices), np.diff(first))
    k = topology.corners
    np.testing.assert_array_equal(row[slot], np.repeat(body.elements, k, axis=1))
    np.testing.assert_array_equal(column[slot], np.tile(body.elements, (1, k)))
    assert len(np.unique(slot)) == len(column)


def test_a_cloth_faces_up_and_lies_flat():
    for cells in ((3, 2), (2, 5), (1, 1)):
        sheet = mesh.cloth(cells, (0.6, 0.4))
        p = sheet.vertices[sheet.elements]
        normal = np.cross(p[:, 1] - p[:, 0], p[:, 2] - p[:, 0]) / 2
        assert normal[:, 2].min() > 0 and normal[:, 2].sum() == pytest.approx(0.24) and not sheet.vertices[:, 2].any()


def test_hinges():
    """Each edge between two triangles, and the vertices opposite to it."""
    topology = mesh.cloth((3, 2), (1.0, 1.0)).topology
    triangles = [set(t.tolist()) for t in topology.elements]
    hinges = topology.hinges
    assert len(hinges) == (3 * len(triangles) - len(topology.surface)) // 2
    assert len({frozenset(h[:2]) for h in hinges.tolist()}) == len(hinges)
    for a, b, c, d in hinges.tolist():
        assert c != d and {a, b, c} in triangles and {a, b, d} in triangles
    assert len(mesh.box((1, 1, 1), (1.0, 1.0, 1.0)).topology.hinges) == 0


def test_a_topology_is_equal_by_content_and_cannot_change():
    one, other = (mesh.box((2, 2), (1.0, size)).topology for size in (1.0, 2.0))
    assert one == other and hash(one) == hash(other) and one != mesh.box((2, 3), (1.0, 1.0)).topology
    with pytest.raises(ValueError, match="read-only"):
        one.elements[0, 0] = 1


TETRAHEDRON = np.array([[0.0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]])
TWO = np.concatenate([TETRAHEDRON, [[1.0, 1, 1]]])
GOOD = [[0, 1, 2, 3], [1, 2, 3, 4]]


@pytest.mark.parametrize(
    ("vertices", "elements", "message"),
    [
        (np.where(np.arange(5)[:, None] == 3, np.nan, TWO), GOOD, "vertex 3 is NaN or infinite"),
        (TWO, [GOOD[0], [1, 2, 3, 5]], r"tetrahedron 1 names a vertex that is not there \(5 vertices\)"),
        (TWO, [GOOD[0], [1, 2, 3, -1]], "tetrahedron 1 names a vertex"),
        (TWO, [GOOD[0], [1, 2, 2, 4]], "tetrahedron 1 has one vertex twice"),
        (TWO, [GOOD[0], [2, 1, 3, 4]], "tetrahedron 1 is inside out.*swap two of its vertices"),
        (TWO, [GOOD[0]], "vertex 4 belongs to no element"),
        (TWO, [*GOOD, [1, 2, 0, 3]], "tetrahedron 2 has the vertices of another"),
        (TWO[:3], [[0, 1, 2], [1, 0, 2]], "triangle 1 has the vertices of another"),
        (TWO[:2], [[0, 1], [1, 0]], "edge 1 has the vertices of another"),
        (np.array([*TETRAHEDRON, [0.0, 0, 2]]), [GOOD[0], [0, 1, 2, 4]], "tetrahedron 0 overlaps another"),
        (TWO[[0, 1, 2, 4], :2], [[0, 1, 2], [0, 1, 3]], "triangle 0 overlaps another: both lie on one side"),
        (TWO * [1, 1, 0], GOOD, r"tetrahedron 0 has no extent.*\(2 such\)"),
        (TWO[:, :2], GOOD, "need vertices in space"),
        (TWO, np.zeros((0, 4), int), "no elements"),
        (TWO, np.array(GOOD, float), "whole numbers"),
        (TWO[None], GOOD, "vertices have shape"),
    ],
)
def test_what_is_refused(vertices, elements, message):
    with pytest.raises(ModelError, match=message):
        mesh.build(vertices, elements)
    assert len(mesh.build(TWO, GOOD).elements) == 2


def test_a_side_of_three_elements_is_refused():
    x = np.array([[0.0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1], [0, -1, 0]])
    with pytest.raises(ModelError, match=r"triangle 0 has a side that belongs to three elements or more \(3 such\)"):
        mesh.build(x, [[0, 1, 2], [0, 1, 3], [0, 1, 4]])


@pytest.mark.parametrize(
    "make",
    [
        lambda: mesh.box((2, 0), (1.0, 1.0)),
        lambda: mesh.box((2, 2, 2), (1.0, 1.0)),
        lambda: mesh.box((2, 2), (1.0, -1.0)),
        lambda: mesh.ball(-1.0),
        lambda: mesh.rope(0, 1.0),
        lambda: mesh.cloth((1, 1), (0.0, 1.0)),
    ],
)
def test_a_shape_that_cannot_be(make):
    with pytest.raises(ModelError, match="positive"):
        make()


@pytest.mark.extra("trimesh")
def test_a_surface_from_a_file(tmp_path):
    """An .obj file with a vertex that no triangle uses."""
    file = tmp_path / "sheet.obj"
    file.write_text("v 9 9 9\nv 0 0 0\nv 1 0 0\nv 1 1 0\nv 0 1 0\nf 2 3 4\nf 2 4 5\n")
    sheet = mesh.load(file)
    assert len(sheet.vertices) == 4 and mesh.measures(sheet.vertices, sheet.elements).sum() == pytest.approx(1)


def test_files_that_cannot_be_read(tmp_path, monkeypatch):
    with pytest.raises(FileNotFoundError, match="there is no such file"):
        mesh.load(tmp_path / "none.msh")
    for name, package in (("part.msh", "meshio"), ("part.stl", "trimesh")):
        (tmp_path / name).write_text("")
        monkeypatch.setitem(sys.modules, package, None)
        with pytest.raises(MissingDependencyError, match=rf"{package} reads this file: pip install .*meshes"):
            mesh.load(tmp_path / name)


@pytest.mark.extra("meshio")
@pytest.mark.parametrize("file", ["part.msh", "part.vtk", "part.vtu"])
def test_tetrahedra_from_a_file(file: str, tmp_path):
    """Tetrahedra before triangles, one of them inside out, and a vertex that is not used."""
    meshio: Any = importlib.import_module("meshio")
    points = np.concatenate([[[5.0, 5, 5]], TWO])
    cells = [("triangle", [[1, 2, 3]]), ("tetra", 1 + np.array([GOOD[0], [2, 1, 3, 4]]))]
    meshio.write(tmp_path / file, meshio.Mesh(points, cells))
    body = mesh.load(tmp_path / file)
    assert body.topology.corners == 4 and len(body.vertices) == 5
    assert (mesh.measures(body.vertices, body.elements) > 0).all()
    meshio.write(tmp_path / file, meshio.Mesh(np.eye(8, 3), [("hexahedron", [list(range(8))])]))
    with pytest.raises(ModelError, match=r"has elements \['hexahedron'\]"):
        mesh.load(tmp_path / file)


CORNERS = np.array([[0.0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0], [0, 0, 1], [1, 0, 1], [1, 1, 1], [0, 1, 1]])


@pytest.mark.extra("meshio")
@pytest.mark.parametrize(
    ("lost", "taken"),
    [
        (("hexahedron", [range(8)]), ("tetra", [[0, 1, 3, 4]])),
        (("hexahedron", [range(8)]), ("triangle", [[0, 1, 2], [0, 2, 3]])),
        (("wedge", [range(6)]), ("line", [[0, 1]])),
        (("quad", [range(4)]), ("triangle", [[4, 5, 6]])),
        (("quad", [range(4)]), ("line", [[0, 1]])),
        (("triangle6", [range(6)]), ("triangle", [[4, 5, 6]])),
    ],
)
def test_no_part_of_a_file_is_lost(lost: Any, taken: Any, tmp_path):
    """Elements of another kind, and of no lower dimension than those that are taken."""
    meshio: Any = importlib.import_module("meshio")
    cells = [(kind, [list(e) for e in elements]) for kind, elements in (lost, taken)]
    meshio.write(tmp_path / "part.vtk", meshio.Mesh(CORNERS, cells))
    with pytest.raises(ModelError, match=rf"has elements \['{lost[0]}'\] beside '{taken[0]}'"):
        mesh.load(tmp_path / "part.vtk")
    meshio.write(tmp_path / "part.vtk", meshio.Mesh(CORNERS, [("tetra", [[0, 1, 3, 4]]), ("quad", [[0, 1, 2, 3]])]))
    assert mesh.load(tmp_path / "part.vtk").topology.corners == 4


def cut(path: Path, text: bytes, number: int = 40) -> list[str]:
    """What is wrong with the file, read after it was cut at some places; it ends within its data."""
    found = []
    for end in np.linspace(len(text) // 4, len(text) - 12, number).astype(int):
        path.write_bytes(text[:end])
        with pytest.raises(ModelError) as error:
            mesh.load(path)
        found.append(str(error.value))
    return found


def waited(*_: Any) -> None:
    raise TimeoutError


@pytest.mark.extra("meshio")
@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("file_format", ["gmsh", "gmsh22", "ansys"])
def test_a_msh_that_is_cut_short(file_format: str, binary: bool, tmp_path):
    """Ansys's is what meshio writes by default."""
    meshio: Any = importlib.import_module("meshio")
    body, path = mesh.box((1, 1, 1), (1.0, 1.0, 1.0)), tmp_path / "part.msh"
    meshio.write(path, meshio.Mesh(body.vertices, [("tetra", body.elements)]), file_format, binary=binary)
    assert len(mesh.load(path).elements) == 6
    before = signal.signal(signal.SIGALRM, waited)
    signal.setitimer(signal.ITIMER_REAL, 10.0, 1.0)  # 10 s for all of them, then 1 s for each
    try:
        messages = cut(path, path.read_bytes())
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
    assert any("cut short" in m for m in messages) and not any("TimeoutError" in m for m in messages)


@pytest.mark.extra("trimesh")
@pytest.mark.parametrize("kind", ["off", "ply", "stl"])
def test_a_surface_that_is_cut_short(kind: str, tmp_path):
    trimesh: Any = importlib.import_module("trimesh")
    body, path = mesh.box((1, 1, 1), (1.0, 1.0, 1.0)), tmp_path / f"part.{kind}"
    own = {"encoding": "ascii"} if kind == "ply" else {}
    text = trimesh.Trimesh(body.vertices, body.topology.surface, process=False).export(file_type=kind, **own)
    text = text.encode() if isinstance(text, str) else text
    path.write_bytes(text)
    assert len(mesh.load(path).elements) == 12
    assert any("cut short" in message for message in cut(path, text))


@pytest.mark.extra("trimesh")
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_an_off_file_with_comments(end: str, tmp_path):
    file = tmp_path / "sheet.off"
    text = "# a sheet\nOFF # 4 points\n\n4 1 0\n0 0 0\n1 0 0\n1 1 0 # a corner\n0 1 0\n\n4 0 1 2 3\n"
    file.write_bytes(text.replace("\n", end).encode())
    assert len(mesh.load(file).elements) == 2


def test_elements_of_vertices_that_a_file_does_not_have(tmp_path, monkeypatch):
    (tmp_path / "part.vtk").write_text("")
    monkeypatch.setattr(mesh, "_read", lambda path: (TWO, {"tetra": [[0, 1, 2, 5]]}, {"tetra": 3}))
    with pytest.raises(ModelError, match=r"name vertices that are not there \(5 vertices\)"):
        mesh.load(tmp_path / "part.vtk")
