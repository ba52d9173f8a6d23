"""Meshes: what is joined to what (topology, on the host, fixed) and where it is at rest (an array, differentiable).

Elements are tetrahedra (4 vertices), triangles (3) or edges (2). A tetrahedron's volume is positive if its vertices
1, 2 and 3, seen from vertex 0, turn clockwise; a triangle's area in a plane, if they turn anticlockwise.
"""

import functools
import hashlib
import io
import itertools
import re
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..errors import MissingDependencyError, ModelError, install
from ..model.arguments import whole_number
from ..tree import Tree, pytree, static

__all__ = ["Mesh", "Topology", "ball", "box", "build", "cloth", "load", "measures", "rope"]

NAMES = {2: "edge", 3: "triangle", 4: "tetrahedron"}

FLAT = 1e-10
"""An element is degenerate if its measure is below this times that of a cube of its longest edge."""

FACES = {4: ((1, 2, 3), (0, 3, 2), (0, 1, 3), (0, 2, 1)), 3: ((1, 2), (2, 0), (0, 1)), 2: ((1,), (0,))}
"""Sides of an element; the normal points outwards. Side k is opposite to vertex k."""


class Topology:
    """Which vertices form which element: immutable, hashed by content, so that it can be static under ``jit``."""

    def __init__(self, elements: Any, num_vertices: int):
        self.elements = np.array(elements, np.int32)
        self.num_vertices = int(num_vertices)
        self.elements.setflags(write=False)
        self._digest = hashlib.blake2b(self.elements.tobytes(), digest_size=16).digest()

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Topology) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        return f"Topology({len(self.elements)} elements of {self.corners} vertices, {self.num_vertices} vertices)"

    def _key(self) -> tuple[Any, ...]:
        return self.elements.shape, self.num_vertices, self._digest

    @property
    def corners(self) -> int:
        """Vertices of an element: 4, 3 or 2."""
        return self.elements.shape[1]

    @functools.cached_property
    def surface(self) -> np.ndarray:
        """Sides that belong to one element only, normals outwards, int32, shape (side, corners - 1)."""
        sides, count = self._sides()
        return sides[count == 1].astype(np.int32)

    @functools.cached_property
    def incidence(self) -> tuple[np.ndarray, np.ndarray]:
        """Elements of each vertex: those of vertex i are ``elements[first[i]:first[i + 1]]``; (first, elements).

        Both int32, shapes (vertex + 1,) and (element * corners,).
        """
        owner = self.elements.ravel()
        order = np.argsort(owner, kind="stable")
        first = np.searchsorted(owner[order], np.arange(self.num_vertices + 1))
        return first.astype(np.int32), (order // self.corners).astype(np.int32)

    @functools.cached_property
    def sparsity(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Blocks of a matrix that couples the vertices of each element, in compressed rows.

        Returns:
            first: int32, shape (vertex + 1,): row i has the blocks first[i] to first[i + 1].
            column: int32, shape (block,): ascending in each row.
            slot: int32, shape (element, corners * corners): the block of corners a and b, at a * corners + b.
        """
        first, column, (slot,) = self._blocks(self.elements)
        return first, column, slot

    @functools.cached_property
    def bent_sparsity(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """As :attr:`sparsity`, with the vertices of each hinge coupled, too; and slots of hinges, (hinge, 16)."""
        first, column, (slot, fold) = self._blocks(self.elements, self.hinges)
        return first, column, slot, fold

    def _blocks(self, *groups: np.ndarray) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
        """Compressed rows of a matrix that couples the vertices of each row of some tables, and slots of each table."""
        n = self.num_vertices
        pairs = [np.repeat(g, g.shape[1], axis=1).astype(np.int64) * n + np.tile(g, g.shape[1]) for g in groups]
        blocks, slot = np.unique(np.concatenate([p.ravel() for p in pairs]), return_inverse=True)
        parts = np.split(slot.reshape(-1), np.cumsum([p.size for p in pairs])[:-1])
        slots = [part.reshape(p.shape).astype(np.int32) for part, p in zip(parts, pairs, strict=True)]
        first = np.searchsorted(blocks // n, np.arange(n + 1))
        return first.astype(np.int32), (blocks % n).astype(np.int32), slots

    @functools.cached_property
    def hinges(self) -> np.ndarray:
        """Pairs of triangles with an edge in common: the edge's two vertices, then the opposite ones.

        int32, shape (hinge, 4); none in meshes of other elements.
        """
        if self.corners != 3:
            return np.zeros((0, 4), np.int32)
        sides, count = self._sides()
        opposite = self.elements.T.reshape(-1)
        keys = np.sort(sides, axis=1)
        order = np.lexsort(keys.T[::-1])
        order = order[count[order] == 2].reshape(-1, 2)
        return np.column_stack([sides[order[:, 0]], opposite[order]]).astype(np.int32)

    def _sides(self) -> tuple[np.ndarray, np.ndarray]:
        """All sides, those opposite to corner 0 first, and how many elements each belongs to."""
        sides = np.concatenate([self.elements[:, list(face)] for face in FACES[self.corners]])
        _, which, count = np.unique(np.sort(sides, axis=1), axis=0, return_inverse=True, return_counts=True)
        return sides, count[which.reshape(-1)]


@pytree
class Mesh(Tree):
    """A body's mesh. Make it with :func:`build`, which checks it, or with a function that makes a shape."""

    vertices: Any  # Positions at rest [m], shape (vertex, dim) or (1 | world, vertex, dim); they get a gradient.
    topology: Topology = static()

    @property
    def elements(self) -> np.ndarray:
        """Vertices of each element, int32, shape (element, corners)."""
        return self.topology.elements

    @property
    def dim(self) -> int:
        """2 or 3."""
        return self.vertices.shape[-1]

    @property
    def has_no_worlds(self) -> bool:
        """Whether all worlds share the vertices, so that :mod:`fphys.distributed` copies them to every device."""
        return np.ndim(self.vertices) == 2


def build(vertices: Any, elements: Any) -> Mesh:
    """A mesh of checked vertices and elements.

    Args:
        vertices: positions at rest [m], shape (vertex, 2 | 3); float32 or float64.
        elements: vertices of each element, whole numbers, shape (element, corners), with 4 (tetrahedra), 3 (triangles)
            or 2 (edges) corners.

    Raises:
        ModelError: a shape does not fit; or naming the vertex or element: NaN or infinite, out of range, twice in one
            element, inside out, without extent, used by no element; an element that is there twice, or overlaps one
            with which it shares a side; or a side that belongs to three elements.
    """
    x, e = np.asarray(vertices), np.asarray(elements)
    if x.ndim != 2 or x.shape[1] not in (2, 3):
        raise ModelError(f"vertices have shape {x.shape}, must be (vertex, 2) or (vertex, 3)")
    if e.ndim != 2 or e.shape[1] not in NAMES or not np.issubdtype(e.dtype, np.integer):
        raise ModelError(
            f"elements are {e.dtype} of shape {e.shape}, must be whole numbers of shape (element, 4) for tetrahedra, "
            "(element, 3) for triangles, or (element, 2) for edges"
        )
    if x.shape[1] < e.shape[1] - 1:
        raise ModelError("tetrahedra need vertices in space: these have two coordinates")
    if not len(e):
        raise ModelError("the mesh has no elements: give at least one")
    x = x if x.dtype in (np.float32, np.float64) else x.astype(float)
    name = NAMES[e.shape[1]]
    _refuse(~np.isfinite(x).all(1), "vertex", "is NaN or infinite", "give finite positions", x)
    outside = (e < 0) | (e >= len(x))
    _refuse(outside.any(1), name, f"names a vertex that is not there ({len(x)} vertices)", "count from zero", e)
    twice = (np.diff(np.sort(e, axis=1), axis=1) == 0).any(1)
    _refuse(twice, name, "has one vertex twice", "remove it", e)
    used = np.zeros(len(x), bool)
    used[e] = True
    _refuse(~used, "vertex", "belongs to no element", "remove it, and number the others again", x)
    size = measures(x.astype(float), e)
    longest = np.max(
        [np.linalg.norm(x[e[:, a]] - x[e[:, b]], axis=1) for a, b in itertools.combinations(range(e.shape[1]), 2)], 0
    )
    flat = np.abs(size) <= FLAT * longest ** (e.shape[1] - 1)
    _refuse(flat, name, "has no extent: it is degenerate", "remove it, or move its vertices apart", e)
    _refuse(size < 0, name, "is inside out", "swap two of its vertices", e)
    _, first = np.unique(np.sort(e, axis=1), axis=0, return_index=True)
    again = np.isin(np.arange(len(e)), first, invert=True)
    _refuse(again, name, "has the vertices of another", "give each element once", e)
    topology = Topology(e, len(x))
    if e.shape[1] > 2:
        sides, count = topology._sides()
        many = (count > 2).reshape(e.shape[1], -1).any(0)
        _refuse(many, name, "has a side that belongs to three elements or more", "each side may join two at most", e)
        if e.shape[1] == x.shape[1] + 1:
            over = _turned_alike(sides).reshape(e.shape[1], -1).any(0)
            _refuse(over, name, "overlaps another: both lie on one side of what they share", "remove one of them", e)
    return Mesh(x, topology)


def _turned_alike(sides: np.ndarray) -> np.ndarray:
    """Which sides are there twice with their vertices in the same sense, bool, shape (side,)."""
    pairs = itertools.combinations(range(sides.shape[1]), 2)
    odd = sum((sides[:, a] > sides[:, b]).astype(int) for a, b in pairs) % 2
    keys = np.column_stack([np.sort(sides, axis=1), odd])
    order = np.lexsort(keys.T)
    pair = np.flatnonzero((keys[order[1:]] == keys[order[:-1]]).all(1))
    found = np.zeros(len(sides), bool)
    found[order[pair]] = found[order[pair + 1]] = True
    return found


def measures(vertices: Any, elements: np.ndarray) -> Any:
    """Signed volume [m^3], or area [m^2] in a plane, of each element; unsigned area or length of elements in space.

    Args:
        vertices: [m], shape (..., vertex, dim), NumPy's or JAX's. Gradients flow.
        elements: shape (element, corners).

    Returns:
        Shape (..., element).
    """
    x = [vertices[..., elements[:, a], :] for a in range(elements.shape[1])]
    d = [y - x[0] for y in x[1:]]
    if len(d) == 1:
        return ((d[0] ** 2).sum(-1)) ** 0.5
    if vertices.shape[-1] == 2:
        return 0.5 * (d[0][..., 0] * d[1][..., 1] - d[0][..., 1] * d[1][..., 0])
    a, b = d[0], d[1]
    normal = [a[..., i] * b[..., j] - a[..., j] * b[..., i] for i, j in ((1, 2), (2, 0), (0, 1))]
    if len(d) == 2:
        return 0.5 * (normal[0] ** 2 + normal[1] ** 2 + normal[2] ** 2) ** 0.5
    return sum(n * d[2][..., k] for k, n in enumerate(normal)) / 6.0


def shared(whole: jax.Array, elements: np.ndarray, num_vertices: int) -> jax.Array:
    """What each vertex has of a quantity of elements, which give their corners equal parts. Gradients flow.

    Args:
        whole: a mass or an area, for example, shape (1 | world, element).

    Returns:
        The same quantity, shape (1 | world, vertex).
    """
    part = whole / elements.shape[1]
    return jnp.zeros((len(part), num_vertices), part.dtype).at[:, elements.T].add(part[:, None])


def box(cells: tuple[int, ...], size: tuple[float, ...], lower: tuple[float, ...] = ()) -> Mesh:
    """A block of tetrahedra, six a cell; or with two numbers a rectangle of triangles in the plane, two a cell.

    Args:
        cells: along each axis. size: edges [m]. lower: the lower corner [m]; the origin by default.

    Raises:
        ModelError: a number is missing or not positive.
    """
    cells, dim = tuple(whole_number("cells", n) for n in cells), len(cells)
    lower = tuple(lower) or (0.0,) * dim
    if dim not in (2, 3) or len(size) != dim or len(lower) != dim or min(cells) < 1 or not min(size) > 0:
        raise ModelError(
            f"a box of cells {cells}, size {size} and lower corner {lower}: give two or three numbers of each, cells "
            "and sizes positive"
        )
    axes = [low + s * np.arange(n + 1) / n for low, s, n in zip(lower, size, cells, strict=True)]
    vertices = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, dim)
    number = np.arange(len(vertices)).reshape([n + 1 for n in cells])
    corner = np.stack(np.meshgrid(*map(np.arange, cells), indexing="ij"), -1).reshape(-1, dim)

    def at(*offset: int) -> np.ndarray:
        return number[tuple((corner + np.array(offset)).T)]

    if dim == 2:
        a, b, c, d = at(0, 0), at(1, 0), at(1, 1), at(0, 1)
        rising, falling = [(a, b, c), (a, c, d)], [(a, b, d), (b, c, d)]
        even = corner.sum(1) % 2 == 0
        triangles = [
            np.where(even[:, None], np.stack(r, 1), np.stack(f, 1)) for r, f in zip(rising, falling, strict=True)
        ]
        return build(vertices, np.stack(triangles, 1).reshape(-1, 3))
    tetrahedra = []
    for order in itertools.permutations(range(3)):  # along the edges from corner to opposite corner (Kuhn 1960)
        path, offset = [at(0, 0, 0)], np.zeros(3, int)
        for axis in order:
            offset[axis] = 1
            path.append(at(*offset))
        even = order in ((0, 1, 2), (1, 2, 0), (2, 0, 1))
        tetrahedra.append(np.stack(path if even else [path[1], path[0], *path[2:]], 1))
    return build(vertices, np.stack(tetrahedra, 1).reshape(-1, 4))


def ball(radius: float, cells: int = 4) -> Mesh:
    """A ball of tetrahedra about the origin: a block of ``cells`` cells along each edge, drawn onto the sphere.

    Raises:
        ModelError: a number is not positive.
    """
    if not radius > 0 or cells < 2:
        raise ModelError(f"a ball of radius {radius} and {cells} cells: the radius must be positive, cells 2 or more")
    cube = box((cells,) * 3, (2.0,) * 3, (-1.0,) * 3)
    x = cube.vertices
    most = np.abs(x).max(1, keepdims=True)
    round_ = x * most / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-300)
    return build(radius * round_, cube.elements)


def cloth(cells: tuple[int, int], size: tuple[float, float]) -> Mesh:
    """A rectangle of triangles in space, at z = 0, its lower corner at the origin.

    Every other row of vertices is shifted by half a cell. With rows 0.87 times as high as a cell is wide the triangles
    are equilateral, and the sheet bends alike in all directions; with others it does not.

    Args:
        cells: along a row, and rows. size: edges [m].

    Raises:
        ModelError: a number is missing or not positive.
    """
    cells = tuple(whole_number("cells", n) for n in cells)  # type: ignore[assignment]
    if len(cells) != 2 or len(size) != 2 or min(cells) < 1 or not min(size) > 0:
        raise ModelError(f"a cloth of cells {cells} and size {size}: give two positive numbers of each")
    (n, rows), (width, height) = cells, size
    even, odd = np.arange(n + 1) / n, np.r_[0, (np.arange(n) + 0.5) / n, 1]
    lines = [odd if j % 2 else even for j in range(rows + 1)]
    begin = np.cumsum([0, *map(len, lines)])
    vertices = [np.stack([width * x, np.full(len(x), height * j / rows), 0 * x], 1) for j, x in enumerate(lines)]
    up, down = [], []  # triangles with two vertices on their row's lower line, and on its upper one
    for j in range(rows):
        short, long = (begin[j + 1], begin[j]) if j % 2 else (begin[j], begin[j + 1])
        wide = np.stack([short + np.arange(n), short + np.arange(n) + 1, long + np.arange(n) + 1], 1)
        narrow = np.stack([long + np.arange(n + 1), long + np.arange(n + 1) + 1, short + np.arange(n + 1)], 1)
        up.append(narrow if j % 2 else wide)
        down.append(wide if j % 2 else narrow)
    elements = [part for u, d in zip(up, down, strict=True) for part in (u, d[:, [1, 0, 2]])]
    return build(np.concatenate(vertices), np.concatenate(elements))


def rope(cells: int, length: float) -> Mesh:
    """A straight line of edges along x from the origin. ``length``: [m].

    Raises:
        ModelError: a number is not positive.
    """
    if whole_number("cells", cells) < 1 or not length > 0:
        raise ModelError(f"a rope of {cells} cells and length {length}: both must be positive")
    x = np.zeros((cells + 1, 3))
    x[:, 0] = length * np.arange(cells + 1) / cells
    number = np.arange(cells)
    return build(x, np.stack([number, number + 1], 1))


def load(path: str | Path) -> Mesh:
    """A mesh from a file: .stl, .obj, .ply and .off by trimesh, all others (.msh, .vtk, .vtu, ...) by meshio.

    Of a file with elements of several kinds those of the highest dimension are taken. Vertices that they do not use are
    left out, and tetrahedra that are inside out are turned.

    Raises:
        ModelError: the file cannot be read, or is cut short; it has no tetrahedra, triangles or edges, or beside them
            elements of another kind and of no lower dimension, such as hexahedra; or they are faulty: see
            :func:`build`.
        MissingDependencyError: the package that reads it is not installed. FileNotFoundError: there is no such file.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: there is no such file")
    try:
        vertices, kinds, dims = _read(path)
    except ImportError as error:
        raise MissingDependencyError(f"{path}: {error.name} reads this file: {install('meshes')}") from error
    except (Exception, SystemExit) as error:  # meshio ends Python where it knows no format
        raise ModelError(f"{path} cannot be read ({type(error).__name__}: {error}): export it again") from error
    there = sorted(kind for kind, elements in kinds.items() if len(elements))
    if not there:
        raise ModelError(f"{path} has no elements: it is cut short, or nothing was exported; export it again")
    takes = "fphys takes tetrahedra, triangles or lines of straight edges"
    for name, corners in (("tetra", 4), ("triangle", 3), ("line", 2)):
        if name in there:
            if lost := [kind for kind in there if kind != name and dims[kind] >= corners - 1]:
                raise ModelError(
                    f"{path} has elements {lost} beside {name!r}: {takes}; split the others, or remove them"
                )
            return _compact(path, np.asarray(vertices, float), np.asarray(kinds[name]), corners)
    raise ModelError(f"{path} has elements {there}: {takes}")


def _read(path: Path) -> tuple[Any, dict[str, Any], dict[str, int]]:
    """Vertices of a file, elements of each kind, and each kind's dimension; ValueError: the file is cut short."""
    suffix = path.suffix.lower()
    if suffix in (".stl", ".obj", ".ply", ".off"):
        import trimesh

        # In order, or trimesh takes a corner with two places in a texture for two vertices.
        own: dict[str, Any] = {"maintain_order": True} if suffix == ".obj" else {}
        found: Any = trimesh.load(path, force="mesh", process=suffix == ".stl", **own)
        if suffix in (".off", ".ply"):
            _expect_lines(suffix, path.read_bytes(), len(found.faces))
        return found.vertices, {"triangle": found.faces}, {"triangle": 2}
    import meshio

    if suffix != ".msh":
        found = meshio.read(path)
    elif not (text := path.read_bytes().strip()).startswith(b"$"):
        with _Whole(io.FileIO(path)) as file:
            found = meshio.ansys.read(file)
    elif text.rpartition(b"\n")[2].startswith(b"$End"):
        found = meshio.gmsh.read(path)
    else:
        raise ValueError("it ends within a section: it is cut short")
    return found.points, found.cells_dict, {block.type: block.dim for block in found.cells}


class _Whole(io.BufferedReader):
    """A file that is not read on at its end; ValueError. Meshio's reader of Ansys's .msh would wait there for ever."""

    ended = False

    def read(self, size: int | None = -1, /) -> bytes:
        return self._found(super().read(size))

    def readline(self, size: int | None = -1, /) -> bytes:
        return self._found(super().readline(size))

    def _found(self, data: bytes) -> bytes:
        if not data and self.ended:
            raise ValueError("it ends within a section: it is cut short")
        self.ended = not data
        return data


def _expect_lines(suffix: str, text: bytes, triangles: int) -> None:
    """Refuse an .off or a .ply of text with fewer lines than its header counts, which trimesh reads; ValueError."""
    count = {}
    if suffix == ".off":
        body = re.sub(rb"#[^\r\n]*", b"", text).partition(b"OFF")[2].strip()
        header, *_ = body.splitlines()
        body = body[len(header) :]
        count = dict(zip((b"vertex", b"face"), map(int, header.split()), strict=False))
    else:
        header, _, body = text.partition(b"end_header")
        if b"format ascii" in header:
            count = {kind: int(n) for kind, n in re.findall(rb"element\s+(\S+)\s+(\d+)", header)}
    lines = sum(bool(line.strip()) for line in body.splitlines())
    if lines < sum(count.values()) or triangles < count.get(b"face", 0):  # the last line may be half there
        given = ", ".join(f"{n} of {kind.decode()}" for kind, n in count.items())
        raise ValueError(f"its header counts {given}, but it has {lines} lines: it is cut short")


def _compact(path: Path, x: np.ndarray, e: np.ndarray, corners: int) -> Mesh:
    """Without vertices that no element uses, and with all tetrahedra the right way round."""
    if e.ndim != 2 or e.shape[1] != corners or e.min() < 0 or e.max() >= len(x):
        raise ModelError(f"{path}: its elements name vertices that are not there ({len(x)} vertices): export it again")
    used, number = np.unique(e, return_inverse=True)
    x, e = x[used], number.reshape(e.shape)
    if corners == 4:
        turned = measures(x, e) < 0
        e[turned] = e[turned][:, [1, 0, 2, 3]]
    return build(x, e)


def _refuse(faulty: Any, what: str, why: str, fix: str, values: np.ndarray) -> None:
    found = np.flatnonzero(faulty)
    if len(found):
        others = f" ({len(found)} such)" if len(found) > 1 else ""
        raise ModelError(f"{what} {found[0]} {why}{others}: it is {values[found[0]].tolist()}; {fix}")
