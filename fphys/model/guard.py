"""Safety of untrusted XML: what a model file may say before MuJoCo sees it.

One pass of expat refuses entities, bombs and numbers that are empty or not finite, and collects the
files that the model would open; these must lie under an allowed root, symbolic links resolved.
"""

import dataclasses
import itertools
import math
import os
import re
import xml.parsers.expat
from collections.abc import Iterator
from pathlib import Path
from xml.sax.saxutils import escape

from ..errors import ModelError

MAX_BYTES = 2**26  # of one XML document
MAX_DEPTH = 490  # of nested elements; MuJoCo's own reader stops at 500
MAX_ELEMENTS = 100_000  # after <replicate>, <composite> and the like are expanded
MAX_FILES = 200  # XML files that one model may include
MAX_CELLS = 2**26  # of one texture or height field

_DIRECTORIES = ("meshdir", "texturedir", "assetdir")
_TEXT = re.compile(
    r"(name|class|childclass|model|prefix|type|content_type|objname|refname|key|value|data|link|target|instance|plugin"
    r"|material|mesh|hfield|texture|camera|actuator|\w*dir|file\w*|joint\w*|body\w*|geom\w*|tendon\w*|\w*site\w*)$"
)
_SUSPECT = re.compile(r"nan|inf|e\+?\d{3}|\d{300}", re.IGNORECASE)
_SCHEME = re.compile(r"[A-Za-z][\w+.-]+:")
_EXPANDED = ("replicate", "composite", "flexcomp")


@dataclasses.dataclass(frozen=True)
class Document:
    """A model's XML that passed."""

    label: str  # what errors call it: the file's path, or "XML text"
    path: Path | None  # where MuJoCo shall believe it lies; None: it names no files
    xml: bytes


@dataclasses.dataclass(frozen=True)
class _Reference:
    """A file that a document names."""

    tag: str
    value: str
    line: int
    visual: bool  # inside a URDF's <visual>, which MuJoCo drops unless told otherwise


@dataclasses.dataclass
class _Scan:
    files: list[_Reference] = dataclasses.field(default_factory=list)
    directories: list[str] = dataclasses.field(default_factory=list)


def is_text(source: str) -> bool:
    """Whether a string is XML rather than a path."""
    return "<" in source or "\n" in source or not source.strip()


def admit(source: str | Path, root: str | Path | None = None) -> Document:
    """Read and check a model given as a path or as XML text, with every document that it includes.

    Files may be opened under the model's own folder and under ``root``; text without ``root`` opens none.
    """
    roots = [_real(Path(root), "root")] if root is not None else []
    if isinstance(source, str) and is_text(source):
        label, path = "XML text", roots[0] / "_text_.xml" if roots else None
        data = source.encode("utf-8", "surrogatepass")
    else:
        label, path = str(source), Path(source).absolute()
        data = _read(path, label)
        roots.append(_real(path.parent, label))
    data = _admit_files(data, label, path, roots)
    return Document(label, path, data)


def _admit_files(data: bytes, label: str, path: Path | None, roots: list[Path]) -> bytes:
    """Check every file that a document and the documents it includes name; resolve ``package://``.

    MuJoCo looks for a file beside the main document and beside the included one, under the compiler's directories
    or not: wherever it might look must lie under the roots.
    """
    scans: list[tuple[str, _Scan]] = []
    homes: set[Path] = set()
    seen: set[Path] = set()

    def visit(data: bytes, label: str, main: Path, here: Path) -> None:
        found = scan(data, label)
        scans.append((label, found))
        homes.update((main, here))
        for reference in found.files:
            if reference.tag in ("include", "model"):
                file = _posix(reference.value)
                for nested in _allowed([main / file, here / file], roots, label, reference):
                    if nested not in seen:
                        seen.add(nested)
                        if len(seen) > MAX_FILES:
                            raise ModelError(f"{label}: the model includes more than {MAX_FILES} files")
                        home = main if reference.tag == "include" else nested.parent
                        visit(_read(nested, str(nested)), str(nested), home, nested.parent)

    if path is None:
        for reference in scan(data, label).files:
            raise ModelError(
                f"{label}:{reference.line}: <{reference.tag}> names the file {reference.value!r}, but a model given as "
                "text opens no files: pass root= with the folder that holds them"
            )
        return data
    visit(data, label, path.parent, path.parent)
    directories = {"", *(_posix(directory) for _, found in scans for directory in found.directories)}
    for name, found in scans:
        for reference in found.files:
            if reference.value.startswith("package://"):
                data = _resolve_package(data, reference, name, roots)
            elif _SCHEME.match(reference.value):
                raise ModelError(
                    f"{name}:{reference.line}: {reference.value!r}: only files are read, no other resources"
                )
            else:
                file = Path(_posix(reference.value))
                folders = [home / directory for home, directory in itertools.product(homes, directories)]
                _allowed([folder / f for folder in folders for f in {file, Path(file.name)}], roots, name, reference)
    return data


def scan(data: bytes, label: str) -> _Scan:
    """One pass over a document: raises ModelError with file and line, or lists the files that it names."""
    if len(data) > MAX_BYTES:
        raise ModelError(f"{label}: {len(data)} bytes of XML, more than the {MAX_BYTES} that are read")
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ModelError(f"{label}:{line}: the file is not UTF-8: {error.reason}; save it as UTF-8") from None
    parser = xml.parsers.expat.ParserCreate("utf-8")
    result, tags, copies, elements = _Scan(), [], [1.0], 0.0

    def refuse(message: str) -> None:
        raise ModelError(f"{label}:{parser.CurrentLineNumber}: {message}")

    def declaration(*_: object) -> int:
        refuse("document types and entities are refused: a model needs none")
        return 0

    def start(tag: str, attributes: dict[str, str]) -> None:
        nonlocal elements
        elements += copies[-1] * (_product(attributes, "count") if tag in _EXPANDED[1:] else 1)
        copies.append(copies[-1] * (_product(attributes, "count") if tag in _EXPANDED else 1))
        tags.append(tag)
        if len(tags) > MAX_DEPTH:
            refuse(f"elements are nested more than {MAX_DEPTH} deep")
        if elements > MAX_ELEMENTS:
            refuse(f"the model expands to more than {MAX_ELEMENTS} elements")
        if max(_product(attributes, "width", "height"), _product(attributes, "nrow", "ncol")) > MAX_CELLS:
            refuse(f"<{tag}> has more than {MAX_CELLS} cells")
        if tag == "size" and any(
            _product(attributes, name) > MAX_ELEMENTS for name in attributes if name[:5] == "nuser"
        ):
            refuse(f"<size> reserves more than {MAX_ELEMENTS} numbers of user data")
        for name, value in attributes.items():
            if _SUSPECT.search(value) and not _TEXT.match(name) and not all(map(_is_finite, value.split())):
                refuse(f"{_title(tag, attributes)}: {name}={value[:80]!r} is not finite")
            if not value.strip() and not _TEXT.match(name):  # an empty anchor makes MuJoCo 4.0.0 hang in the next load
                refuse(f"{_title(tag, attributes)}: {name} is empty")
            if "%" in value:  # an unknown class is printed by printf(class), which kills the process
                refuse(f"{_title(tag, attributes)}: {name}={value[:80]!r}: a percent sign is not safe in a model")
            if name.startswith("file"):
                line, visual = parser.CurrentLineNumber, "visual" in tags
                result.files.append(_Reference(tag, value, line, visual))
            if tag == "compiler" and name in _DIRECTORIES:
                result.directories.append(value)

    def end(_: str) -> None:
        tags.pop()
        copies.pop()

    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.StartDoctypeDeclHandler = parser.EntityDeclHandler = parser.ExternalEntityRefHandler = declaration
    try:
        parser.Parse(data.removeprefix(b"\xef\xbb\xbf"), True)
    except xml.parsers.expat.ExpatError as error:
        reason = xml.parsers.expat.ErrorString(error.code)
        raise ModelError(f"{label}:{error.lineno}: the XML is malformed: {reason} (column {error.offset})") from None
    return result


def _resolve_package(data: bytes, reference: _Reference, label: str, roots: list[Path]) -> bytes:
    """Put the path of a file under a root in the place of ``package://name/path``."""
    name = _posix(reference.value.removeprefix("package://"))
    for base in roots:
        for tail in _tails(name):
            for file in _allowed([base / tail], roots, label, reference):
                return data.replace(escape(reference.value).encode(), escape(str(file)).encode())
    if reference.visual:
        return data
    raise ModelError(
        f"{label}:{reference.line}: {reference.value!r} was not found under {_folders(roots)}: "
        "pass root= with the folder that holds the package"
    )


def _tails(name: str) -> Iterator[str]:
    """The path with the package's folder, and without it where the root is that folder."""
    yield name
    if "/" in name:
        yield name.split("/", 1)[1]


def _allowed(candidates: list[Path], roots: list[Path], label: str, reference: _Reference) -> list[Path]:
    """Of the paths where MuJoCo might look, those that exist, links resolved: all must lie under the roots."""
    real = {_real(path, f"{label}:{reference.line}"): None for path in candidates}
    inside = [path for path in real if any(path.is_relative_to(base) for base in roots)]
    found = [path for path in inside if os.path.exists(path)]
    if len(inside) < len(real) and (not found or any(os.path.exists(path) for path in real if path not in inside)):
        raise ModelError(
            f"{label}:{reference.line}: <{reference.tag}> names {reference.value!r}, which lies outside "
            f"{_folders(roots)}: pass root= with a folder that holds both, if you trust the model"
        )
    return found


def _folders(roots: list[Path]) -> str:
    return " and ".join(f"{str(base)!r}" for base in dict.fromkeys(roots))


def _real(path: Path, label: str) -> Path:
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
            return file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        if isinstance(error, ModelError):
            raise
        raise ModelError(f"{label[:200]}: the file cannot be read: {error}") from None


def _posix(value: str) -> str:
    """MuJoCo takes a backslash for a separator too."""
    return value.replace("\\", "/")


def _is_finite(token: str) -> bool:
    try:
        return math.isfinite(float(token))
    except ValueError:
        return True  # not a number: MuJoCo's reader says so


def _product(attributes: dict[str, str], *names: str) -> float:
    """Product of all numbers in the named attributes, each at least 1."""
    product = 1.0
    for token in " ".join(attributes.get(name, "") for name in names).split():
        try:
            product *= max(float(token), 1.0)
        except ValueError:
            pass
    return product


def _title(tag: str, attributes: dict[str, str]) -> str:
    return f'{tag} "{attributes["name"]}"' if "name" in attributes else f"<{tag}>"
