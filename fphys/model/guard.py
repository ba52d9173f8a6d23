"""Safety of untrusted XML: what a model file may contain before MuJoCo sees it.

One pass of expat refuses entities, XML bombs and numbers that are empty or not finite, and collects the
files that the model would open; these must lie under an allowed root, with symbolic links resolved.
"""

import dataclasses
import itertools
import math
import os
import re
import stat
import xml.parsers.expat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar
from xml.sax.saxutils import escape

from ..errors import ModelError
from .caps import MAX_ELEMENTS, Element, Part, check, element, number, weight

MAX_XML = 2**26  # bytes of all XML documents; the largest robots have some 10 MB
MAX_DEPTH = 490  # of nested elements; MuJoCo's own reader stops at 500
MAX_FILES = 200  # XML files that one model may include
MAX_LOOKS = 100_000  # file look-ups, 40 us each; 300 meshes in 5 folders take 15,000

_DIRECTORIES = ("meshdir", "texturedir", "assetdir")
_TEXT = re.compile(
    r"(name|class|childclass|model|prefix|type|content_type|objname|refname|key|value|data|link|target|instance|plugin"
    r"|material|mesh|hfield|texture|camera|actuator|\w*dir|file\w*|joint\w*|body\w*|geom\w*|tendon\w*|\w*site\w*)$"
)
_SUSPECT = re.compile(r"nan|inf|e\+?\d{3}|\d{300}|0x", re.IGNORECASE)
_SCHEME = re.compile(r"[A-Za-z][\w+.-]+:")
_DOCUMENTS = ("include", "model")


@dataclasses.dataclass(frozen=True)
class Document:
    """A model's XML that has passed the checks."""

    label: str  # its name in errors: the file's path, or "XML text"
    path: Path | None  # the path that MuJoCo is given; None if it names no files
    xml: bytes


@dataclasses.dataclass(frozen=True)
class _Reference:
    """A file that a document names."""

    element: Element
    value: str
    visual: bool  # inside a URDF's <visual>, which MuJoCo drops unless told otherwise

    @property
    def tag(self) -> str:
        return self.element.tag

    @property
    def line(self) -> int:
        return self.element.line


@dataclasses.dataclass
class _Scan:
    elements: list[Element] = dataclasses.field(default_factory=list)
    files: list[_Reference] = dataclasses.field(default_factory=list)
    directories: list[str] = dataclasses.field(default_factory=list)
    root: str = ""
    looks: bool = False  # whether a compiler asks for what a URDF has in <visual>


def is_text(source: str) -> bool:
    """Whether a string is XML rather than a path."""
    return "<" in source or "\n" in source or not source.strip()


class OutsideError(ModelError):
    """A file lies outside the roots: ``folder`` holds it, and the model."""

    def __init__(self, message: str, folder: Path) -> None:
        super().__init__(message)
        self.folder = folder


AUTO = "auto"
T = TypeVar("T")


def admit(source: str | Path, root: str | Path | None = None) -> Document:
    """Read and check a model given as a path or as XML text, with every document that it includes.

    Files may be opened under the model's own folder, under its own ROS package and under ``root``; text without
    ``root`` opens none. With "auto", the root is the nearest folder above the model that holds all its files, but
    neither the user's home nor any folder above it.
    """
    if root != AUTO:
        return _admit(source, root)
    if isinstance(source, str) and is_text(source):
        raise ModelError('root is "auto", but the model is given as text: pass root= with the folder of its files')
    return widened(lambda root: _admit(source, root))


def widened(open_: Callable[[Path | None], T]) -> T:
    """What ``open_`` returns for the root "auto": it is called with wider roots until no file lies outside."""
    root = None
    while True:
        try:
            return open_(root)
        except OutsideError as error:
            if _is_wide(error.folder):
                raise
            root = error.folder  # nearer to the top each time


def inside(file: str | Path, roots: list[Path], label: str) -> Path:
    """A file that a model names, links resolved; raises OutsideError unless it lies under one of the roots."""
    path = real(Path(file), label)
    if not any(path.is_relative_to(base) for base in roots):
        folder = _common(roots[0], path)
        raise OutsideError(
            f"{label} names {str(file)!r}, which lies outside {_folders(roots)}: {_pass(folder)}", folder
        )
    return path


def _is_wide(folder: Path) -> bool:
    """Whether a folder holds more than one may trust unasked: the user's home, or a folder above it."""
    return folder.parent == folder or Path(os.path.expanduser("~")).resolve().is_relative_to(folder)


def _admit(source: str | Path, root: str | Path | None) -> Document:
    roots, above = [real(Path(root), "root")] if root is not None else [], []
    if isinstance(source, str) and is_text(source):
        label, path = "XML text", roots[0] / "_text_.xml" if roots else None
        data = source.encode("utf-8", "surrogatepass")
    else:
        label, path = str(source), Path(source).absolute()
        data = _read(path, label)
        roots.append(real(path.parent, label))
        above = list(roots[-1].parents)
    data = _admit_files(data, label, path, roots, above)
    return Document(label, path, data)


def _admit_files(data: bytes, label: str, path: Path | None, roots: list[Path], above: list[Path]) -> bytes:
    """Check every file named by a document and the documents it includes; resolve ``package://``.

    MuJoCo looks for a file beside the main document and beside the included one, with or without the compiler's
    directories: every place where it might look must lie under the roots.
    """
    scans: list[tuple[str, _Scan]] = []
    homes: set[Path] = set()
    parts: dict[Path, Part] = {}
    size = 0

    def visit(part: Part, data: bytes, main: Path, here: Path) -> None:
        nonlocal size
        size += len(data)
        if size > MAX_XML:
            raise ModelError(f"{part.label}: with it the model has {size} bytes of XML, more than the {MAX_XML} read")
        found = scan(data, part.label)
        part.elements = found.elements
        scans.append((part.label, found))
        homes.update((main, here))
        for reference in found.files:
            if reference.tag in _DOCUMENTS:
                file = _posix(reference.value)
                for nested in _allowed([main / file, here / file], roots, part.label, reference):
                    if nested not in parts:
                        parts[nested] = Part(str(nested), [])
                        if len(parts) > MAX_FILES:
                            raise ModelError(f"{part.label}: the model includes more than {MAX_FILES} files")
                        home = main if reference.tag == "include" else nested.parent
                        visit(parts[nested], _read(nested, str(nested)), home, nested.parent)
                    reference.element.parts.append(parts[nested])

    if path is None:
        found = scan(data, label)
        for reference in found.files:
            raise ModelError(
                f"{label}:{reference.line}: <{reference.tag}> names the file {reference.value!r}, but a "
                "model given as text opens no files: pass root= with the folder that holds them"
            )
        check(Part(label, found.elements))
        return data
    part = Part(label, [])
    visit(part, data, path.parent, path.parent)
    directories = {"", *(_posix(directory) for _, found in scans for directory in found.directories)}
    looks = 2 * len(homes) * len(directories) * sum(len(found.files) for _, found in scans)
    if looks > MAX_LOOKS:
        raise ModelError(
            f"{label}: its files may lie in {looks} places, more than the {MAX_LOOKS} that are looked at: name fewer "
            "directories in <compiler>, or fewer files"
        )
    unread = scans[0][1].root == "robot" and not any(found.looks for _, found in scans)  # what is in <visual>
    for name, found in scans:
        for reference in found.files:
            if reference.value.startswith("package://"):
                data, files = _resolve_package(data, reference, name, roots, above)
            elif _SCHEME.match(reference.value):
                raise ModelError(
                    f"{name}:{reference.line}: {reference.value!r}: only files are read, no other resources"
                )
            else:
                file = Path(_posix(reference.value))
                folders = [home / directory for home, directory in itertools.product(homes, directories)]
                paths = [folder / f for folder in folders for f in {file, Path(file.name)}]
                files = _allowed(paths, roots, name, reference)
            if not (unread and reference.visual) and reference.tag not in _DOCUMENTS:
                there = [path for path in files if path.is_file()]
                reference.element.files += [there] if there else []
    check(part)
    return data


def scan(data: bytes, label: str) -> _Scan:
    """One pass over a document: raises ModelError with file and line, or lists the files that it names."""
    if len(data) > MAX_XML:
        raise ModelError(f"{label}: {len(data)} bytes of XML, more than the {MAX_XML} that are read")
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ModelError(f"{label}:{line}: the file is not UTF-8: {error.reason}; save it as UTF-8") from None
    parser = xml.parsers.expat.ParserCreate("utf-8")
    result, tags, elements = _Scan(), [], 0.0

    def refuse(message: str) -> None:
        raise ModelError(f"{label}:{parser.CurrentLineNumber}: {message}")

    def declaration(*_: object) -> int:
        refuse("document types and entities are refused: a model needs none")
        return 0

    def start(tag: str, attributes: dict[str, str]) -> None:
        nonlocal elements
        tag = tag.lower()  # MuJoCo follows an <INCLUDE> before it refuses it
        own = element(tag, attributes, parser.CurrentLineNumber, len(tags))
        tags.append(tag)
        result.elements.append(own)
        if len(tags) == 1:
            result.root = tag
        if len(tags) > MAX_DEPTH:
            refuse(f"elements are nested more than {MAX_DEPTH} deep")
        elements += weight(own)
        if elements > MAX_ELEMENTS:
            refuse(f"the model has more than {MAX_ELEMENTS} elements, heavy ones counted several times: use fewer")
        for name, value in attributes.items():
            if _is_suspect(value) and not _TEXT.match(name) and not all(map(_is_finite, value.split())):
                refuse(f"{own.title}: {name}={value[:80]!r} is not finite")
            if not value.strip() and not _TEXT.match(name):  # an empty anchor makes MuJoCo 4.0.0 hang in the next load
                refuse(f"{own.title}: {name} is empty")
            if "%" in value:  # an unknown class is printed by printf(class), which kills the process
                refuse(f"{own.title}: {name}={value[:80]!r}: a percent sign is not safe in a model")
            if name.startswith("file"):
                result.files.append(_Reference(own, value, "visual" in tags))
            if tag == "compiler" and name in _DIRECTORIES:
                result.directories.append(value)
            if tag == "compiler" and name == "discardvisual" and value != "true":
                result.looks = True

    def end(_: str) -> None:
        tags.pop()

    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.StartDoctypeDeclHandler = parser.EntityDeclHandler = parser.ExternalEntityRefHandler = declaration
    try:
        parser.Parse(data.removeprefix(b"\xef\xbb\xbf"), True)
    except xml.parsers.expat.ExpatError as error:
        reason = xml.parsers.expat.ErrorString(error.code)
        raise ModelError(f"{label}:{error.lineno}: the XML is malformed: {reason} (column {error.offset})") from None
    return result


def _resolve_package(
    data: bytes, reference: _Reference, label: str, roots: list[Path], above: list[Path]
) -> tuple[bytes, list[Path]]:
    """Replace ``package://name/path`` by the path of a file under a root, or in the package that holds the model.

    ``above``: the folders above the model, none if it is text.
    """
    name = _posix(reference.value.removeprefix("package://")).lstrip("/")
    package, _, rest = name.partition("/")
    own = [folder for folder in above if not _is_wide(folder) and _is_package(folder, package)]
    for base, tail in [*itertools.product(roots, _tails(name)), *((folder, rest) for folder in own)]:
        for file in _allowed([base / tail], [*roots, *own], label, reference):
            return data.replace(escape(reference.value).encode(), os.fsencode(escape(str(file)))), [file]
    if reference.visual:
        return data, []
    message = f"{label}:{reference.line}: {reference.value!r} was not found under {_folders(roots)}: "
    for base in above:
        if (base / name).is_file():
            raise OutsideError(f"{message}{_pass(base)}", base)
    raise ModelError(f"{message}pass root= with the folder that holds the package")


def _is_package(folder: Path, name: str) -> bool:
    """Whether a folder is a ROS package of that name: by its own name, or by that in its ``package.xml``."""
    if folder.name == name:
        return True
    try:
        with (folder / "package.xml").open("rb") as file:
            found = re.search(rb"<name>\s*([^<>]*?)\s*</name>", file.read(2**16))
    except OSError:
        return False
    return found is not None and found[1].decode("utf-8", "replace") == name


def _tails(name: str) -> Iterator[str]:
    """The path with the package's folder, and without it in case the root is that folder."""
    yield name
    if "/" in name:
        yield name.split("/", 1)[1]


def _allowed(candidates: list[Path], roots: list[Path], label: str, reference: _Reference) -> list[Path]:
    """The existing files among the paths where MuJoCo might look, links resolved: all paths must be under the roots."""
    places = {real(path, f"{label}:{reference.line}"): None for path in candidates}
    inside = [path for path in places if any(path.is_relative_to(base) for base in roots)]
    found = [path for path in inside if os.path.exists(path)]
    for path in found:
        if not stat.S_ISREG(mode := path.stat().st_mode) and not stat.S_ISDIR(mode):
            raise ModelError(
                f"{label}:{reference.line}: <{reference.tag}> names {reference.value!r}, which is a pipe, "
                "socket or device: a model's files must be regular ones"
            )
    if len(inside) < len(places) and (not found or any(os.path.exists(path) for path in places if path not in inside)):
        message = f"{label}:{reference.line}: <{reference.tag}> names {reference.value!r}, which lies outside "
        message += f"{_folders(roots)}"
        outside = [path for path in places if path not in inside and os.path.exists(path)]
        if not outside:
            raise ModelError(f"{message}, and there is no such file")
        folder = max((_common(roots[-1], path) for path in outside), key=lambda folder: len(folder.parts))
        raise OutsideError(f"{message}: {_pass(folder)}", folder)
    return found


def _common(folder: Path, file: Path) -> Path:
    """The nearest folder that holds both."""
    return Path(os.path.commonpath([folder, file.parent]))


def _pass(folder: Path) -> str:
    """What to pass so that files in a folder are opened."""
    auto = "" if _is_wide(folder) else ' or root="auto"'
    return f"pass root={str(folder)!r}{auto}, if you trust the model"


def _folders(roots: list[Path]) -> str:
    return " and ".join(f"{str(base)!r}" for base in dict.fromkeys(roots))


def real(path: Path, label: str) -> Path:
    """A path with links resolved; raises ModelError if it cannot be."""
    try:
        return path.resolve()
    except (OSError, RuntimeError, ValueError) as error:
        raise ModelError(f"{label}: the path {str(path)[:200]!r} cannot be resolved: {error}") from None


def _read(path: Path, label: str) -> bytes:
    try:
        if path.is_dir():
            raise ModelError(f"{label[:200]}: this is a folder: name the MJCF or URDF file in it")
        if not path.is_file():
            raise ModelError(f"{label[:200]}: there is no such file")
        with path.open("rb") as file:
            return file.read(MAX_XML + 1)
    except (OSError, ValueError) as error:
        if isinstance(error, ModelError):
            raise
        raise ModelError(f"{label[:200]}: the file cannot be read: {error}") from None


def _posix(value: str) -> str:
    """Replace backslashes: MuJoCo takes them for separators too."""
    return value.replace("\\", "/")


def _is_suspect(value: str) -> bool:
    """Whether a value may hold a number that is not finite. Long lists of short decimals are cleared quickly."""
    odd = value.encode("utf-8", "surrogatepass").translate(None, b" 0123456789.+-")
    if odd or any(" " not in value[i : i + 150] for i in range(0, len(value) - 149, 150)):
        return _SUSPECT.search(value) is not None
    return False


def _is_finite(token: str) -> bool:
    try:
        return math.isfinite(number(token))
    except ValueError:
        return True  # not a number: MuJoCo's reader reports it
