"""How large pictures and meshes will be once MuJoCo reads them: from headers, or piece by piece, in little memory."""

import math
import re
import struct
import zlib
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

CHUNK = 2**16  # bytes read at a time
_PNG = b"\x89PNG\r\n\x1a\n"
_FRONT = {  # what precedes packed text: a name, and in iTXt a flag, a language and a title
    b"zTXt": (_NAME := re.compile(rb"[^\0]*\0.", re.DOTALL)),
    b"iCCP": _NAME,
    b"iTXt": re.compile(rb"[^\0]*\0(.).[^\0]*\0[^\0]*\0", re.DOTALL),
}
_TEXT = 2**24  # bytes at which MuJoCo's reader of PNG gives up on a text
_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}  # of PNG's colour types
_FACE = re.compile(rb"\n ?f( [^\n]*)")
_BLANKS = bytes.maketrans(b"\t\r\v\f", b" \n  ")
_STL, _TRIANGLE = 50, 12  # bytes of a triangle in STL; the fewest bytes of a triangle or vertex in other formats


class Picture(NamedTuple):
    """A PNG file: its size, and the bytes that all its parts unpack to, counted up to a limit."""

    width: float
    height: float
    unpacked: float


def texture(path: Path, channels: float, sides: float, limit: float) -> float:
    """Bytes of a texture's file in memory: its picture, times ``sides`` unless it holds all six."""
    picture = _png(path, limit)
    if picture is None:
        return sides * path.stat().st_size
    width, height, unpacked = picture
    return max(width * height * channels * (1 if height == 6 * width else sides), unpacked)


def heights(path: Path, limit: float) -> float:
    """Bytes of a height field's file in memory: a PNG, or MuJoCo's own format, which begins with both dimensions."""
    if picture := _png(path, limit):
        return 8 * picture.width * picture.height + picture.unpacked
    with path.open("rb") as file:
        head = file.read(8)
    rows, columns = struct.unpack("<2i", head) if len(head) == 8 else (0, 0)
    return 8.0 * max(rows, 0) * max(columns, 0)


def triangles(path: Path, content_type: str, limit: float) -> float:
    """Triangles or vertices of a mesh's file, whichever are more; an upper bound from the file's size.

    Wavefront's text is read instead, and counted up to a limit.
    """
    kind = content_type.lower() or path.suffix.lower()
    if "obj" in kind:
        return _obj(path, limit)
    return path.stat().st_size // (_STL if "stl" in kind else _TRIANGLE)


def _obj(path: Path, limit: float) -> float:
    """The same for Wavefront's text: a face with n corners is n - 2 triangles."""
    vertices = triangles = 0
    rest = b"\n"  # begins with the line that is not yet counted
    with path.open("rb") as file:
        while max(vertices, triangles) <= limit and (block := file.read(CHUNK)):
            text = (rest + block).translate(_BLANKS)
            while b"  " in text:
                text = text.replace(b"  ", b" ")
            done, _, line = text.rpartition(b"\n")
            if len(line) < 64:
                text, rest = done, b"\n" + line
            else:  # counted so far; the rest of the line belongs to the same face
                rest = b"\nf " if line.lstrip().startswith(b"f ") else b"\n#"
            vertices += text.count(b"\nv ") + text.count(b"\n v ")
            triangles += sum(max(face.count(b" ") - 2, 1) for face in _FACE.findall(text))
    return max(vertices, triangles)


def _png(path: Path, limit: float) -> Picture | None:
    """None if it is not a PNG. MuJoCo unpacks texts and profiles besides the pixels, and data after the pixels."""
    with path.open("rb") as file:
        head = file.read(33)
        if head[:8] != _PNG or len(head) < 33:
            return None
        width, height = map(float, struct.unpack(">II", head[16:24]))
        depth, colour = head[24:26]
        raster = height * (math.ceil(width * _CHANNELS.get(colour, 4) * depth / 8) + 1.0)
        data, size, extra = zlib.decompressobj(), 0.0, 0.0
        while max(raster, extra) <= limit and len(head := file.read(8)) == 8:
            length, kind = struct.unpack(">I4s", head)
            end = file.tell() + length
            extra += 2**12  # about what a chunk takes besides its data
            if kind == b"IDAT":
                most = 2 * raster + 2**20  # an interlaced picture is a little longer
                size += _unpacked(file, end, data, most - size)
                extra += math.inf if size > most else 0
            elif kind in (b"zTXt", b"iTXt", b"iCCP"):
                extra += 16 * _text(file, kind, end)  # they are kept, and a picture needs few
            file.seek(end + 4)
        return Picture(width, height, raster + extra)


def _text(file: BinaryIO, kind: bytes, end: int) -> float:
    """Bytes that a text or profile unpacks to."""
    start = file.tell()
    front = _FRONT[kind].match(file.read(min(end - start, 2**10)))
    if front is None:
        return _TEXT
    file.seek(start + front.end())
    return end - start if front.groups() == (b"\0",) else _unpacked(file, end, zlib.decompressobj(), _TEXT)


def _unpacked(file: BinaryIO, end: int, data: Any, limit: float) -> float:
    """Bytes that a part of a file unpacks to, piece by piece: never all in memory, and not far beyond the limit."""
    size = 0.0
    try:
        while size <= limit and not data.eof and (piece := file.read(min(CHUNK, end - file.tell()))):
            while piece and size <= limit:
                size += len(data.decompress(piece, CHUNK))
                piece = data.unconsumed_tail
    except zlib.error:  # MuJoCo reports it
        pass
    return size
