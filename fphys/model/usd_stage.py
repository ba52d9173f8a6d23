"""USD files: opened only where that is allowed, and read in metres, kilograms and radians with z upwards.

Every layer is checked before the stage is composed: USD opens whatever a layer names. A float32 is read as the shortest
decimal that it stands for, so that 9.81 in a file is 9.81.
"""

import dataclasses
import functools
import importlib
import re
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import MissingDependencyError, ModelError, UnsupportedError, install
from .caps import MAX_ELEMENTS, MAX_TRIANGLES
from .guard import AUTO, inside, is_text, real, widened

SUFFIXES = (".usd", ".usda", ".usdc", ".usdz")
MAX_BYTES = 2**30  # of all layers
MAX_PRIMS = MAX_ELEMENTS  # of a layer, and of the stage with what its instances share
MAX_COMPOSED = 10 * MAX_PRIMS  # of all that a prim may be composed of, whatever its variants are
MAX_LAYERS = 1000
MAX_DEPTH = 490  # of nested prims, and of references in references
MAX_REACH = 1e12  # of transforms, and of units in SI units

MAX_BRACKETS = 10_000  # one in another in text; those in strings and comments count too

_BLOCK = 2**20
_BRACKETS = np.zeros(256, np.int64)
_BRACKETS[list(b"{[(")], _BRACKETS[list(b"}])")] = 1, -1
_SCHEME = re.compile(r"[A-Za-z][\w+.-]+:")
_OURS = re.compile(r"(physics|newton|mjc|physx\w*|drive|limit|state)$")
_HARMLESS = {"newton:jointsAddMobility", "mjc:group", "mjc:rgba", "mjc:width"}  # alone they change no motion
_HARMLESS |= {f"mjc:flag:{name}" for name in "autoreset energy fwdinv midphase nativeccd sensor".split()}
_HARMLESS |= {f"mjc:compiler:{name}" for name in "angle useThread fitAABB saveInertial".split()}
_Z_UP = np.array([[1.0, 0, 0], [0, 0, -1], [0, 1, 0]])
"""Turns a stage whose y axis points upwards."""


def is_usd(source: Any) -> bool:
    """Whether a model is given as the path of a USD file."""
    if not isinstance(source, str | Path) or (isinstance(source, str) and is_text(source)):
        return False
    return str(source).lower().endswith(SUFFIXES)


def pxr(module: str) -> Any:
    """A module of usd-core.

    Raises:
        MissingDependencyError: it is not installed.
    """
    try:
        return importlib.import_module(f"pxr.{module}")
    except ImportError as cause:
        raise MissingDependencyError(f"usd-core is not installed, and a USD file needs it: {install('usd')}") from cause


@dataclasses.dataclass
class Stage:
    """An open stage, and what was said about it so far."""

    stage: Any
    label: str  # its file
    cache: Any  # of transforms
    length: float  # metres per unit
    mass: float  # kilograms per unit
    asked: set[Any] = dataclasses.field(default_factory=set)  # paths of attributes that were looked for
    left: set[Any] = dataclasses.field(default_factory=set)  # paths of prims without effect
    notes: list[str] = dataclasses.field(default_factory=list)  # what is read otherwise than it is written
    refused: list[str] = dataclasses.field(default_factory=list)  # what is not simulated
    points: int = 0  # of all meshes so far

    @functools.cached_property
    def prims(self) -> list[Any]:
        """Every active, defined and loaded prim, and those of instances; not what lies below a point instancer."""
        usd, found = pxr("Usd"), []
        every = iter(self.stage.Traverse(usd.TraverseInstanceProxies(usd.PrimDefaultPredicate)))
        for prim in every:
            found.append(prim)
            if prim.IsA(pxr("UsdGeom").PointInstancer):
                every.PruneChildren()
                if any(map(_is_physical, self.targets(prim, "prototypes"))):
                    self.refuse(prim, "a point instancer of bodies or colliders: write its instances as prims")
            if len(found) > MAX_PRIMS:
                raise ModelError(f"{self.label}: the stage has more than {MAX_PRIMS} prims: open a part of it")
        return found

    @functools.cached_property
    def scenes(self) -> list[Any]:
        """The prims of physics scenes: only the first counts."""
        return [prim for prim in self.prims if prim.IsA(pxr("UsdPhysics").Scene)]

    @property
    def mujocos(self) -> bool:
        """Whether a physics scene has MuJoCo's schema, as what mujoco-usd-converter writes."""
        return any("MjcSceneAPI" in self.schemas(scene) for scene in self.scenes)

    def count(self, prim: Any, points: int) -> None:
        """Add a mesh's points to those of all meshes; raises ModelError if they are too many."""
        self.points += points
        if self.points > MAX_TRIANGLES:
            raise self.fault(prim, f"with it the meshes have more than {MAX_TRIANGLES} points: make them coarser")

    def schemas(self, prim: Any) -> list[str]:
        """Names of the schemas that are applied to a prim, also of those that USD does not know."""
        found = prim.GetMetadata("apiSchemas")
        return list(found.GetAddedOrExplicitItems()) if found else []

    def fault(self, prim: Any, why: str) -> ModelError:
        """An error that names a prim."""
        return ModelError(f"{self.label}: {path_of(prim)}: {why}")

    def refuse(self, prim: Any, why: str) -> None:
        """Note that a prim has what is not simulated."""
        self.refused.append(f"{path_of(prim)}: {why}")

    def note(self, prim: Any, why: str) -> None:
        """Note that something of a prim is read otherwise."""
        self.notes.append(f"{path_of(prim)}: {why}")

    def ask(self, prim: Any, *names: str) -> None:
        """Note that attributes or relationships of a prim are read, or need not be."""
        self.asked.update(map(prim.GetPath().AppendProperty, names))

    def leave(self, prim: Any) -> None:
        """Note that a prim is switched off, so that nothing of it need be read; not if it is both body and collider."""
        physics = pxr("UsdPhysics")
        if not (prim.HasAPI(physics.RigidBodyAPI) and prim.HasAPI(physics.CollisionAPI)):
            self.left.add(prim.GetPath())

    def has(self, prim: Any, name: str) -> bool:
        """Whether an attribute has a value in the file."""
        self.ask(prim, name)
        return bool(attribute := prim.GetAttribute(name)) and attribute.HasAuthoredValue()

    def get(self, prim: Any, name: str, default: Any = None, allowed: Iterable[str] = ()) -> Any:
        """An attribute's first value, of the default's kind, numbers in double precision; the default if it has none.

        Args:
            allowed: words that it may be.

        Raises:
            ModelError: the value is of another kind or size, not a number, or not allowed.
        """
        if not self.has(prim, name):
            return default
        attribute = prim.GetAttribute(name)
        value = attribute.Get(pxr("Usd").TimeCode.EarliestTime())
        if value is None:
            return default
        if isinstance(default, str):
            if not isinstance(value, str) or (allowed and value not in allowed):
                raise self.fault(
                    prim, f"{name} is {str(value)[:80]!r}, must be one of {', '.join(allowed) or 'the words'}"
                )
            return value
        try:
            numbers = _doubles(value, str(attribute.GetTypeName()))
        except (TypeError, ValueError, AttributeError):
            raise self.fault(prim, f"{name} is {str(value)[:80]!r}, must be a number or numbers") from None
        if np.isnan(numbers).any():
            raise self.fault(prim, f"{name} is not a number")
        if default is not None and not _fits(numbers, np.asarray(default)):
            raise self.fault(prim, f"{name} has {numbers.size} numbers in the shape {numbers.shape}")
        if isinstance(default, bool):
            return bool(numbers)
        return numbers if numbers.ndim else numbers.item()

    def put(self, prim: Any, name: str, element: Any, field: str) -> None:
        """Set a field of an element of a spec to an attribute of the same size, if the file has it."""
        own = np.asarray(getattr(element, field))
        if self.has(prim, name):
            setattr(element, field, self.get(prim, name, own if own.ndim else own.item()))

    def targets(self, prim: Any, name: str) -> list[Any]:
        """The prims that a relationship names.

        Raises:
            ModelError: there is no such prim.
        """
        self.ask(prim, name)
        relation = prim.GetRelationship(name)
        found = []
        for path in relation.GetForwardedTargets() if relation else ():
            target = self.stage.GetPrimAtPath(path)
            if not target:
                raise self.fault(prim, f"{name} names {path}, and there is no such prim")
            found.append(target)
        return found

    def transform(self, prim: Any) -> np.ndarray:
        """From a prim to the world, (4, 4): in metres and with z upwards."""
        matrix = np.array(self.cache.GetLocalToWorldTransform(prim)).T
        if not (np.abs(matrix).max() < MAX_REACH):
            raise self.fault(prim, f"its transform is not finite, or beyond {MAX_REACH:g}")
        return self.world @ matrix

    @functools.cached_property
    def world(self) -> np.ndarray:
        """From the stage's units and axes to metres and z upwards, (4, 4)."""
        upright = np.eye(4)
        if pxr("UsdGeom").GetStageUpAxis(self.stage) == "Y":
            upright[:3, :3] = _Z_UP
        upright[:3] *= self.length
        return upright

    def finish(self) -> list[str]:
        """What is read otherwise than it is written, with attributes of physics that nothing has looked for.

        Raises:
            UnsupportedError: something is not simulated.
        """
        if self.refused:
            raise UnsupportedError("\n  ".join([f"{self.label}: not simulated:", *self.refused]))
        unread: dict[str, list[Any]] = {}
        material = pxr("UsdPhysics").MaterialAPI
        for prim in self.prims:
            friction = prim.GetPath().AppendProperty("physics:dynamicFriction")
            unbound = prim.HasAPI(material) and friction not in self.asked
            if unbound or prim.GetPath() in self.left:
                continue
            for property_ in prim.GetAuthoredProperties():
                name = property_.GetName()
                if _OURS.match(name.split(":")[0]) and not (name in _HARMLESS or property_.GetPath() in self.asked):
                    unread.setdefault(name, []).append(prim)
        for name, prims in unread.items():
            more = f" and {len(prims) - 1} more" if len(prims) > 1 else ""
            self.notes.append(f"{path_of(prims[0])}{more}: {name} is not read")
        return self.notes


def _fits(numbers: np.ndarray, default: np.ndarray) -> bool:
    """Whether numbers have the shape of a default; its first axis may have any length if the default has none."""
    if default.shape[:1] == (0,):
        return numbers.ndim == default.ndim and numbers.shape[1:] == default.shape[1:]
    return numbers.shape == default.shape


def _is_physical(prim: Any) -> bool:
    """Whether a body or a collider is at or below a prim."""
    usd, physics = pxr("Usd"), pxr("UsdPhysics")
    below = usd.PrimRange(prim, usd.TraverseInstanceProxies(usd.PrimAllPrimsPredicate))
    return any(one.HasAPI(physics.RigidBodyAPI) or one.HasAPI(physics.CollisionAPI) for one in below)


def path_of(prim: Any) -> str:
    """A prim's path, for messages."""
    return f"<{prim.GetPath()}>"


def _doubles(value: Any, kind: str) -> np.ndarray:
    """A value of USD as float64; quaternions as (w, x, y, z)."""
    if kind.startswith("quat"):
        value = [value.GetReal(), *value.GetImaginary()]
    numbers = np.array(value, np.float64)
    if "float" in kind or kind[-1:] in "fh" or kind[-3:] in ("f[]", "h[]"):
        short = np.float16 if "half" in kind or kind[-1:] == "h" or kind[-3:] == "h[]" else np.float32
        return np.array([float(str(short(x))) for x in numbers.ravel()]).reshape(numbers.shape)
    return numbers


def open_stage(source: str | Path, root: str | Path | None) -> Stage:
    """Open a USD file and all that it is composed of.

    Args:
        source: the file.
        root: as in :func:`fphys.load`.

    Raises:
        ModelError: the file is malformed or too large, or names files that are missing or outside the roots.
        MissingDependencyError: usd-core is not installed.
    """
    if root == AUTO:
        return widened(lambda root: open_stage(source, root))
    label, sdf, usd, geom = str(source), pxr("Sdf"), pxr("Usd"), pxr("UsdGeom")
    file = real(Path(source).absolute(), label)
    if not file.is_file():
        raise ModelError(f"{label[:200]}: there is no such file")
    roots = [file.parent, *([real(Path(root), "root")] if root is not None else [])]
    with as_model_errors(label):
        layers = list(_layers(sdf, str(file), roots, label))
        _weigh(sdf, layers, label)
        stage = usd.Stage.Open(layers[0])
    faults = [str(error) for error in stage.GetCompositionErrors()]
    if faults:
        raise ModelError("\n  ".join([f"{label}: it cannot be composed:", *faults[:10]]))
    for layer in stage.GetUsedLayers():
        if layer not in layers and not layer.anonymous:
            inside(_bare(layer.realPath or layer.identifier), roots, label)
    with as_model_errors(label):
        mass = pxr("UsdPhysics").GetStageKilogramsPerUnit(stage)
        length = geom.GetStageMetersPerUnit(stage)
    found = Stage(stage, label, geom.XformCache(usd.TimeCode.EarliestTime()), length, mass)
    for name, value in (("metersPerUnit", found.length), ("kilogramsPerUnit", found.mass)):
        if not 1 / MAX_REACH < value < MAX_REACH:
            raise ModelError(f"{label}: {name} is {value}, must be positive and finite")
    return found


def layers_in(file: str) -> list[str]:
    """Names of the layers that a file's text names itself; none if it cannot be read."""
    try:
        layer = pxr("Sdf").Layer.FindOrOpen(file)
    except (ImportError, RuntimeError):
        return []
    return [name for name in layer.GetCompositionAssetDependencies() if name] if layer else []


def _layers(sdf: Any, first: str, roots: list[Path], label: str) -> Iterator[Any]:
    """Open a layer and those that it names, each after its check: the first one first."""
    todo, seen, size = [(first, label)], set(), 0
    while todo:
        identifier, by = todo.pop()
        if identifier in seen:
            continue
        seen.add(identifier)
        if len(seen) > MAX_LAYERS:
            raise ModelError(f"{label}: it has more than {MAX_LAYERS} layers")
        file = Path(_bare(identifier))
        if identifier == str(file):
            size += file.stat().st_size
            if size > MAX_BYTES:
                raise ModelError(f"{by}: with {file} the stage has more than {MAX_BYTES} bytes")
            _require_shallow(file)
        layer = sdf.Layer.FindOrOpen(identifier)
        if layer is None:
            raise ModelError(f"{by}: {identifier!r} is not a USD file")
        if not layer.dirty:  # USD keeps open layers: the file may have changed
            layer.Reload()
        count = 0

        def visit(path: Any, layer: Any = layer, identifier: str = identifier) -> None:
            nonlocal count
            count += path.IsPrimPath()
            if count > MAX_PRIMS:
                raise ModelError(f"{identifier}: it has more than {MAX_PRIMS} prims: open a part of it")
            if path.IsPrimPath() and layer.GetPrimAtPath(path).HasInfo("clips"):
                raise ModelError(f"{identifier}: <{path}>: value clips are not read: bake them")

        layer.Traverse("/", visit)
        yield layer
        for name in filter(None, layer.GetCompositionAssetDependencies()):  # "" is the layer itself
            if _SCHEME.match(name) or "`" in name or Path(_bare(name)).suffix.lower() not in SUFFIXES:
                raise ModelError(f"{identifier} names {name!r}: only USD files are read, no other resources")
            found = _found(layer, name)
            if inside(_bare(found), roots, identifier).is_file():
                todo.append((found, identifier))


def _require_shallow(file: Path) -> None:
    """Refuse text whose brackets are nested so deep that USD's reader would exhaust the process's stack."""
    try:
        if zipfile.is_zipfile(file):
            with zipfile.ZipFile(file) as package:
                for member in package.infolist():
                    if member.compress_type == zipfile.ZIP_STORED:  # USD reads no others
                        with package.open(member) as data:
                            _scan(data, f"{file}[{member.filename}]")
        else:
            with file.open("rb") as data:
                _scan(data, str(file))
    except (OSError, zipfile.BadZipFile) as error:
        raise ModelError(f"{file}: the file cannot be read: {error}") from None


def _scan(data: Any, label: str) -> None:
    depth, block = 0, data.read(_BLOCK)
    if not block.startswith(b"#"):  # binary
        return
    while block:
        levels = depth + np.cumsum(_BRACKETS[np.frombuffer(block, np.uint8)])
        if levels.max() > MAX_BRACKETS:
            raise ModelError(f"{label}: brackets are nested more than {MAX_BRACKETS} deep")
        depth, block = levels[-1], data.read(_BLOCK)


def _weigh(sdf: Any, layers: list[Any], label: str) -> None:
    """Refuse layers that compose more prims than are read: a few that name one another ten times each are millions."""
    known, counts = {layer.identifier: layer for layer in layers}, {}

    def target(layer: Any, arc: Any) -> tuple[Any, Any]:
        other = known.get(_found(layer, arc.assetPath)) if arc.assetPath else layer
        root = arc.primPath or (sdf.Path(f"/{other.defaultPrim}") if other and other.defaultPrim else None)
        return other, root

    def weigh(layer: Any, path: Any, depth: int) -> int:
        spec = layer.GetPrimAtPath(path) if layer and path else None
        if not spec or (layer.identifier, path) in counts:
            return counts.get((layer.identifier, path), 0) if spec else 0
        if depth > MAX_DEPTH:
            raise ModelError(f"{label}: {path}: prims are nested more than {MAX_DEPTH} deep")
        counts[layer.identifier, path] = 0  # of what names itself, which is refused later
        parts = [(layer, child.path) for child in spec.nameChildren]
        parts += [(layer, v.primSpec.path) for own in spec.variantSets.values() for v in own.variants.values()]
        for arcs in (spec.referenceList, spec.payloadList):
            parts += [target(layer, arc) for arc in arcs.GetAddedOrExplicitItems()]
        for arcs in (spec.inheritPathList, spec.specializesList):
            parts += [(layer, base) for base in arcs.GetAddedOrExplicitItems()]
        total = 1
        for part in parts:  # a generator would double the frames on the stack
            total += weigh(*part, depth + 1)
        counts[layer.identifier, path] = total
        if total > MAX_COMPOSED:
            raise ModelError(f"{label}: {path}: it is composed of more than {MAX_COMPOSED} prims: open a part of it")
        return total

    for layer in layers:
        for prim in layer.rootPrims:
            weigh(layer, prim.path, 0)


def _found(layer: Any, name: str) -> str:
    """The identifier of a layer that another one names."""
    found = layer.ComputeAbsolutePath(name)
    place = Path(_bare(layer.identifier)).parent / _bare(found)
    return str(place.resolve()) + found[len(_bare(found)) :]


def _bare(identifier: str) -> str:
    """The file of a layer: without the name inside a package, and without arguments of its format."""
    return identifier.split("[")[0].split(":SDF_FORMAT_ARGS:")[0]


class as_model_errors:
    """USD's errors as ours, and those of arithmetic with numbers that no model has."""

    def __init__(self, label: str) -> None:
        self.label = label

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, ArithmeticError | np.linalg.LinAlgError):
            raise ModelError(f"{self.label}: its numbers are too large or too small: {error}") from error
        if error is not None and isinstance(error, pxr("Tf").ErrorException):
            why = _plain(error)
            raise ModelError(why if why.startswith(self.label) else f"{self.label}: {why}") from error


def _plain(error: BaseException) -> str:
    """What USD says, without places in its own source."""
    found = re.findall(r"Error in '[^']*' at line \d+ in file \S+ : '(.*?)'(?=\n|$)", str(error), re.DOTALL)
    return "; ".join(text.strip() for text in found) or str(error).strip()
