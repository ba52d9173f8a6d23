"""Fault 24: bombs with small elements and a large total are refused by name, at once, in little memory."""

import math
import os
import re
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest

from fphys.errors import ModelError
from fphys.model import guard, load
from fphys.model.sizes import triangles

BODY = '<body name="b"><joint name="j"/><geom name="g" size="1"/><site name="s"/></body>'


def model(body: str = "", asset: str = "", rest: str = "") -> str:
    """A model. ``rest`` begins on line 2, assets on line 4, bodies on the second line after these."""
    return f"<mujoco>\n{rest}\n<asset>\n{asset}</asset>\n<worldbody>\n{body}</worldbody></mujoco>"


def sensors(text: str, more: str = "") -> str:
    return model(BODY + more, "", f"<sensor>{text}</sensor>")


def actuators(text: str, more: str = "") -> str:
    return model(BODY, "", f"{more}<actuator>{text}</actuator>")


def classes(text: str) -> str:
    return f"<default>{text}</default>"


def many(number: int, text: str) -> str:
    return "".join(text.replace("#", str(i)) + "\n" for i in range(number))


TEXTURES = many(60, '<texture name="t#" type="2d" builtin="flat" width="8000" height="8000"/>')
FIELDS = many(40, '<hfield name="h#" nrow="8000" ncol="8000" size="1 1 1 1"/>')
FREE = many(5600, '<body><freejoint/><geom size="1"/></body>')
LIMBS = many(2800, f"<body>{'<joint/>' * 6}</body>")
HINGED = many(5600, '<body><joint/><geom size="1"/></body>')
NESTED = "".join(f'<body name="a{i + 1}">{many(5, f"<attach body=%a{i}% prefix=%p#_%/>")}</body>' for i in range(9))
GRID = """<extension><plugin plugin="mujoco.sensor.touch_grid"/></extension><sensor>
  <plugin plugin="mujoco.sensor.touch_grid" objtype="site" objname="s">
  <config key="size" value="9000 9000"/></plugin></sensor>"""
LINKS = many(40, '<link name="l#"><collision><geometry><mesh filename="large.stl"/></geometry></collision></link>')
PLACES = many(900, '<compiler meshdir="d#"/>')
PIXELS, ELEMENTS, DOFS, TRIANGLES = "bytes of pictures", "elements", "degrees of freedom", "triangles"
NUMBERS, ARENA, STEPS = "numbers of keyframes", "bytes of working memory", "muscles x steps"
MATCHES = "pairs of a copy and an element"


def textures(number: int, file: str) -> str:
    return model("", many(number, f'<texture name="t#" type="2d" file="{file}"/>'))


def meshes(number: int, rest: str) -> str:
    return model("", many(number, f'<mesh name="m#" {rest}/>'))


BOMBS = {  # the refusal's text (line, element and sum), and the model
    "60 textures": (6, 'texture "t2"', PIXELS, model("", TEXTURES)),
    "60 textures by a class": (
        6,
        'texture "t2"',
        PIXELS,
        model(
            "",
            many(60, '<texture name="t#" class="x" type="2d" builtin="flat"/>'),
            classes('<default class="x"><texture width="8000" height="8000"/></default>'),
        ),
    ),
    "cubes": (7, 'texture "t3"', PIXELS, model("", many(9, '<texture name="t#" builtin="flat" width="3000"/>'))),
    "channels": (4, "texture", PIXELS, model("", '<texture builtin="flat" width="9" height="9" nchannel="99999999"/>')),
    "40 height fields": (5, 'hfield "h1"', PIXELS, model("", FIELDS)),
    "PNG": (4, 'texture "t0"', PIXELS, textures(1, "large.png")),
    "PNG of a height field": (4, "hfield", PIXELS, model("", '<hfield size="1 1 1 1" file="large.png"/>')),
    "PNG of a height field and texts": (4, "hfield", PIXELS, model("", '<hfield size="1 1 1 1" file="texts.png"/>')),
    "PNG of a cube": (4, "texture", PIXELS, model("", '<texture type="cube" fileup="medium.png"/>')),
    "60 medium PNGs": (5, 'texture "t1"', PIXELS, textures(60, "medium.png")),
    "PNG that goes on": (4, 'texture "t0"', PIXELS, textures(1, "long.png")),
    "PNG of texts": (4, 'texture "t0"', PIXELS, textures(1, "texts.png")),
    "PNG of international texts": (4, 'texture "t0"', PIXELS, textures(1, "itexts.png")),
    "PNG of chunks": (4, 'texture "t0"', PIXELS, textures(1, "chunks.png")),
    "height field that overflows": (4, "hfield", PIXELS, model("", '<hfield size="1 1 1 1" file="h.bin"/>')),
    "nkey": (2, "<size>", NUMBERS, model("", "", '<size nkey="2000000000"/>')),
    "keys of dofs": (2, "<size>", NUMBERS, model(FREE[:21000], "", '<size nkey="9000"/>')),
    "keys of mocap bodies": (
        2, "<size>", NUMBERS, model(many(900, '<body mocap="true"/>'), "", '<size nkey="9000"/>')
    ),
    "keys of actuators": (
        2, "<size>", NUMBERS, actuators(many(900, '<motor joint="j"/>'), '<size nkey="9000"/>')
    ),
    "tactile": (
        10,
        "<tactile>",
        NUMBERS,
        model(
            BODY,
            '<mesh name="m" builtin="supertorus" params="300 .5 1 1"/>',
            f"""<sensor>{many(9, '<tactile mesh="m" geom="g"/>')}</sensor>""",
        ),
    ),
    "nuserdata": (2, "<size>", NUMBERS, model("", "", '<size nuserdata="2000000000"/>')),
    "nuser_geom": (2, "<size>", NUMBERS, model(many(2000, '<geom size="1"/>'), "", '<size nuser_geom="90000"/>')),
    "one long user": (6, "<site>", NUMBERS, model(f'<site user="{"0 " * 90_000}"/>' + many(2000, "<site/>"))),
    "user by a class": (
        6, "<site>", NUMBERS, model(many(2000, "<site/>"), "", classes(f'<site user="{"0 " * 90_000}"/>'))
    ),
    "memory": (2, "<size>", ARENA, model("", "", '<size memory="100T"/>')),
    "nstack": (2, "<size>", ARENA, model("", "", '<size nstack="2147483647"/>')),
    "nconmax": (2, "<size>", ARENA, model("", "", '<size nconmax="2147483647"/>')),
    "njmax": (2, "<size>", ARENA, model("", "", '<size njmax="2147483647"/>')),
    "replicate": (6, "<replicate>", ELEMENTS, model('<replicate count="45000"><geom size="1"/></replicate>')),
    "empty replicates": (2505, "", ELEMENTS, model(many(5000, '<replicate count="1"/>'))),
    "copies beside sensors": (
        6,
        "<replicate>",
        MATCHES,
        sensors('<jointpos joint="j"/>' * 300, '<replicate count="4000"><geom size="1"/></replicate>'),
    ),
    "copied sensors": (
        6,
        "<replicate>",
        MATCHES,
        model(f'<replicate count="2000">{BODY}</replicate>', "", '<sensor><gyro site="s"/></sensor>'),
    ),
    "free bodies": (5467, "<freejoint>", DOFS, model(FREE)),
    "free by a class": (5467, "<joint>", DOFS, model(HINGED, "", classes('<joint type="free"/>'))),
    "flexcomp": (11, 'flexcomp "f5"', DOFS, model(many(20, '<flexcomp name="f#" count="10 10 20"/>'))),
    "flexcomp without a count": (16, 'flexcomp "f10"', DOFS, model(many(20, '<flexcomp name="f#"/>'))),
    "one tree": (2736, "<joint>", "degrees of freedom that hang on one another", model(f"<body>{LIMBS}</body>")),
    "one tree of copies": (
        6, "<joint>", "hang on one another", model(f'<body><replicate count="2800">{LIMBS[:61]}</replicate></body>')
    ),
    "cells": (6, "flexcomp", ELEMENTS, model('<flexcomp name="f" count="2 2 2" cellcount="90 90 90"/>')),
    "classes": (2500, "", ELEMENTS, model("", "", classes(many(9000, '<default class="x#"/>')))),
    "builtin mesh": (4, 'mesh "m0"', TRIANGLES, meshes(1, 'builtin="wedge" params="3000 3000 1 1 0"')),
    "cone": (4, 'mesh "m0"', TRIANGLES, meshes(1, 'builtin="cone" params="10000 .1"')),
    "inline meshes": (14, "<attach>", TRIANGLES, model(
        many(50, '<attach model="inline" body="b" prefix="p#"/>'), '<model file="inline.xml"/>'
    )),
    "implicit meshes": (36, "<plugin>", TRIANGLES, model("", many(40, "<mesh><plugin/></mesh>"))),
    "STL": (24, 'mesh "m20"', TRIANGLES, meshes(40, 'file="large.stl"')),
    "OBJ of vertices": (7, 'mesh "m3"', TRIANGLES, meshes(9, 'file="vertices.obj"')),
    "OBJ of one face": (4, 'mesh "m0"', TRIANGLES, meshes(1, 'file="face.obj"')),
    "OBJ called STL": (4, 'mesh "m0"', TRIANGLES, meshes(1, 'file="face.stl" content_type="model/obj"')),
    "bytes": (4, "texture", "bytes in its files", textures(1, "hole.png").replace("2d", "cube")),
    "skin": (4, "<skin>", TRIANGLES, model("", '<skin file="hole.skn"/>')),
    "OBJ without an end": (4, 'mesh "m0"', "bytes in its files", meshes(1, 'file="hole.obj"')),
    "places": (None, "", "places", meshes(60, 'file="large.stl"').replace("<asset>", PLACES + "<asset>")),
    "flexcomp of a file": (6, "flexcomp", TRIANGLES, model('<flexcomp name="f" type="mesh" file="hole.skn"/>')),
    "dimensions": (2, "<user>", NUMBERS, sensors('<user dim="2000000000"/>')),
    "contacts": (2, "<contact>", NUMBERS, sensors('<contact num="2000000000"/>')),
    "rays of a camera": (
        2, "<rangefinder>", NUMBERS, sensors('<rangefinder camera="c"/>', '<camera name="c" resolution="4000 4000"/>')
    ),
    "histories": (2, "<jointpos>", NUMBERS, sensors(many(9, '<jointpos joint="j" nsample="9999999" delay="1"/>'))),
    "histories by a class": (
        2,
        "<motor>",
        NUMBERS,
        actuators('<motor joint="j"/>', classes('<general nsample="9999999" delay="1"/>')),
    ),
    "touch grid": (4, "<config>", NUMBERS, model(BODY, "", GRID)),
    "numerics": (2, 'numeric "n"', NUMBERS, model("", "", '<custom><numeric name="n" size="20000000"/></custom>')),
    "activations": (
        2,
        "<key>",
        NUMBERS,
        actuators('<general joint="j" dyntype="user" actdim="99999999"/>', "<keyframe><key/></keyframe>"),
    ),
    "length range": (
        3,
        "<lengthrange>",
        STEPS,
        actuators('<muscle joint="j"/>', '<compiler>\n<lengthrange inttotal="1e12"/></compiler>'),
    ),
    "length range of no step": (
        2,
        "<lengthrange>",
        STEPS,
        actuators('<muscle joint="j"/>', '<compiler><lengthrange timestep="1e-300"/></compiler>'),
    ),
    "length range, hexadecimal": (
        2,
        "<lengthrange>",
        STEPS,
        actuators('<muscle joint="j"/>', '<compiler><lengthrange inttotal="0x1p60"/></compiler>'),
    ),
    "muscle by a class": (
        2,
        "<lengthrange>",
        STEPS,
        actuators(
            '<general joint="j"/>',
            classes('<general gaintype="muscle"/>') + '<compiler><lengthrange inttotal="1e12"/></compiler>',
        ),
    ),
    "length range of all": (
        2,
        "<lengthrange>",
        STEPS,
        actuators('<motor joint="j"/>', '<compiler><lengthrange inttotal="1e12" mode="all"/></compiler>'),
    ),
    "includes": (1, 'hfield "h4"', PIXELS, model("", "", many(9, '<include file="part#.xml"/>'))),
    "include in a replicate": (
        None, "<geom>", ELEMENTS, model('<replicate count="900"><include file="geoms.xml"/></replicate>')
    ),
    "attached models": (
        None,
        "<attach>",
        ELEMENTS,
        model(many(900, '<attach model="s" body="b" prefix="p#"/>'), '<model name="s" file="sub.xml"/>'),
    ),
    "attached sensors": (
        None,
        "<attach>",
        MATCHES,
        model(many(1100, '<attach model="s" body="b" prefix="p#"/>'), '<model name="s" file="sensor.xml"/>'),
    ),
    "attached pictures": (
        10,
        "<attach>",
        PIXELS,
        model(many(9, '<attach model="sub" body="b" prefix="p#"/>'), '<model file="field.xml"/>'),
    ),
    "models never attached": (8, 'model "s4"', PIXELS, model("", many(9, '<model name="s#" file="field.xml"/>'))),
    "attach in a replicate": (
        6,
        "<attach>",
        ELEMENTS,
        model(
            '<replicate count="900"><attach model="s" body="b" prefix="p"/></replicate>',
            '<model name="s" file="sub.xml"/>',
        ),
    ),
    "sensors of what is attached in a replicate": (
        6,
        "<attach>",
        MATCHES,
        model(
            '<replicate count="800"><attach model="s" body="b" prefix="p"/></replicate>',
            '<model name="s" file="plain.xml"/>',
            '<sensor><gyro site="pq"/></sensor>',
        ),
    ),
    "attached to itself": (
        None, "<attach>", ELEMENTS, model('<body name="a0"><geom size="1"/></body>' + NESTED.replace("%", '"'))
    ),
    "sensors of what is attached to itself": (
        None,
        "<attach>",
        MATCHES,
        model(BODY + many(900, '<attach body="b" prefix="p#_"/>'), "", '<sensor><gyro site="s"/></sensor>'),
    ),
    "model of itself": (None, "", "part of itself", model("", '<model name="s" file="itself.xml"/>')),
    "models of each other": (None, "", "part of itself", model("", '<model name="s" file="one.xml"/>')),
    "INCLUDE": (1, "", "nested", model("", "", '<INCLUDE file="deep.xml"/>')),
    "URDF": (1, "<size>", NUMBERS, f'<robot name="r"><mujoco><size nkey="{2**31 - 1}"/></mujoco><link/></robot>'),
    "URDF of meshes": (21, "<mesh>", TRIANGLES, f'<robot name="r">{LINKS}</robot>'),
}  # fmt: skip
PIPES = {
    "mesh": model("", '<mesh name="m" file="pipe.stl"/>'),
    "texture": model("", '<texture name="t" type="2d" file="pipe.png"/>'),
    "cube": model("", '<texture name="t" type="cube" fileleft="pipe.png"/>'),
    "hfield": model("", '<hfield name="h" size="1 1 1 1" file="pipe.png"/>'),
    "skin": model("", '<skin file="pipe.skn"/>'),
    "include": model("", '<include file="pipe.xml"/>'),
    "model": model("", '<model name="s" file="pipe.xml"/>'),
}


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def zeros(size: int) -> bytes:
    """This many zero bytes, compressed."""
    packer, block = zlib.compressobj(1), bytes(2**20)
    return b"".join(packer.compress(block) for _ in range(math.ceil(size / len(block)))) + packer.flush()


def png(path: Path, side: int, *between: bytes, data: bytes | None = None) -> None:
    """A grey square with ``side`` pixels a side. With empty data, only its header is right."""
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0))
    pixels = zlib.compress(bytes(side * (side + 1))) if data is None and side < 1000 else data or zlib.compress(b"")
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + head + b"".join(between) + chunk(b"IDAT", pixels) + chunk(b"IEND", b""))


def write(folder: Path) -> None:
    """Write the files that the bombs name. Files that are large in bytes are sparse."""
    png(folder / "large.png", 30_000)
    png(folder / "medium.png", 12_000)
    png(folder / "long.png", 64, data=zeros(2**31))
    text = zlib.compress(bytes(15 * 2**20))
    png(folder / "texts.png", 64, *[chunk(b"zTXt", b"k\0\0" + text)] * 100)
    png(folder / "itexts.png", 64, *[chunk(b"iTXt", b"k\0\1\0en\0k\0" + text)] * 100)
    png(folder / "chunks.png", 64, *[chunk(b"aaAa", b"")] * 2_000_000)
    (folder / "h.bin").write_bytes(struct.pack("<ii", 65_536, 65_537) + bytes(4 * 65_536))
    for name, size in {"large.stl": 10**7, "hole.png": 6 * 10**8, "hole.skn": 10**8, "hole.obj": 10**12}.items():
        with (folder / name).open("wb") as file:
            file.truncate(size)
    (folder / "vertices.obj").write_bytes(b"v 0 0 0\n" * 1_100_000)
    for name in ("face.obj", "face.stl"):
        (folder / name).write_bytes(b"v 0 0 0\n f" + b" 1" * 4_300_000)
    fields = [f'<hfield name="h{i}" nrow="4000" ncol="4000" size="1 1 1 1"/>' for i in range(9)]
    body = '<body name="b"><site name="q"/></body>'
    documents = {f"part{i}": f"<asset>{field}</asset>" for i, field in enumerate(fields)} | {
        "geoms": many(99, '<geom size="1"/>'),
        "deep": "<body>" * 500 + "</body>" * 500,
        "sub": f"""<worldbody><body name="b">{many(99, '<geom size="1"/>')}</body></worldbody>""",
        "plain": f"<worldbody>{body}</worldbody>",
        "sensor": f'<worldbody>{body}</worldbody><sensor><gyro site="q"/></sensor>',
        "field": f"<asset>{fields[0]}</asset><worldbody>{body}</worldbody>",
        "inline": f"""<asset><mesh name="m" vertex="{"0 " * 1_500_000}"/></asset><worldbody>{body}</worldbody>""",
        **{name: f'<asset><model name="s" file="{other}.xml"/></asset>' for name, other in LOOPS.items()},
    }
    for name, text in documents.items():
        (folder / f"{name}.xml").write_text(f'<mujoco model="{name if name != "field" else "sub"}">{text}</mujoco>')
    for i, (*_, text) in enumerate(BOMBS.values()):
        (folder / f"bomb{i}.xml").write_text(text)


LOOPS = {"itself": "itself", "one": "two", "two": "one"}
REFUSE = """
import resource, sys, time, mujoco
from fphys.errors import ModelError
from fphys.model import load
load("<mujoco/>")
most = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
before = most()
for i in range(int(sys.argv[2])):
    start = time.perf_counter()
    try:
        load(f"{sys.argv[1]}/bomb{i}.xml")
    except ModelError as error:
        message = str(error).replace("\\n", " ")
    else:
        message = "it was loaded"
    print(time.perf_counter() - start, most() - before, message, flush=True)
"""


@pytest.fixture(scope="module")
def refusals(tmp_path_factory) -> dict[str, tuple[float, float, str]]:
    """For each bomb: seconds, kB more than before the first, message. A crash loses the bombs after it."""
    folder = tmp_path_factory.mktemp("bombs")
    write(folder)
    command = [sys.executable, "-c", REFUSE, str(folder), str(len(BOMBS))]
    run = subprocess.run(command, capture_output=True, text=True, timeout=300)
    lines = [line.split(" ", 2) for line in run.stdout.splitlines()]
    return {name: (float(time), float(more), text) for name, (time, more, text) in zip(BOMBS, lines, strict=False)}


@pytest.mark.alone
@pytest.mark.parametrize("name", BOMBS)
def test_a_sum_beyond_its_cap_is_refused_by_name_at_once_in_little_memory(refusals, name):
    time, more, message = refusals[name]
    line, element, what, _ = BOMBS[name]
    place = r"\w\.xml(:\d+)?: " if line is None else rf"\w\.xml:{line}: "
    assert re.search(rf"{place}.*{re.escape(element)}.*{what}", message), message
    assert len(message) < 500
    assert time < 1
    assert more < 100_000, "more than 100 MB"


def test_bytes_of_all_documents_are_summed(tmp_path, monkeypatch):
    monkeypatch.setattr(guard, "MAX_XML", 3_000)
    for i in range(3):
        (tmp_path / f"part{i}.xml").write_text(f"<mujoco><!--{' ' * 1000}--><option/></mujoco>")
    (tmp_path / "main.xml").write_text(model("", "", many(2, '<include file="part#.xml"/>')))
    load(tmp_path / "main.xml")
    (tmp_path / "main.xml").write_text(model("", "", many(3, '<include file="part#.xml"/>')))
    with pytest.raises(ModelError, match=r"part2\.xml: with it the model has 3\d{3} bytes of XML"):
        load(tmp_path / "main.xml")


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", PIPES)
def test_a_pipe_is_never_opened(tmp_path, name):
    for suffix in ("stl", "png", "skn", "xml"):
        os.mkfifo(tmp_path / f"pipe.{suffix}")
    (tmp_path / "main.xml").write_text(PIPES[name])
    with pytest.raises(ModelError, match=r"main\.xml:4: .*is a pipe, socket or device"):
        load(tmp_path / "main.xml")


def test_a_link_to_a_device_is_refused(tmp_path):
    (tmp_path / "zero.png").symlink_to("/dev/zero")
    (tmp_path / "main.xml").write_text(textures(1, "zero.png"))
    with pytest.raises(ModelError, match="outside"):
        load(tmp_path / "main.xml")
    with pytest.raises(ModelError, match="is a pipe, socket or device"):
        load(tmp_path / "main.xml", root="/")


def test_a_folder_as_a_picture_is_refused(tmp_path):
    (tmp_path / "folder.png").mkdir()
    (tmp_path / "main.xml").write_text(textures(1, "folder.png"))
    with pytest.raises(ModelError, match=r"main\.xml"):
        load(tmp_path / "main.xml")


def test_models_of_ordinary_size_are_read(tmp_path):
    """Medium amounts of everything, far from every cap."""
    png(tmp_path / "sky.png", 768, chunk(b"iTXt", b"XML:com.adobe.xmp\0\0\0\0\0" + b" " * 5000))
    (tmp_path / "arm.xml").write_text(
        '<mujoco model="arm"><default><mesh maxhullvert="64"/></default><asset>'
        '<texture name="t" type="2d" file="sky.png"/><material name="m" texture="t"/>'
        '<mesh name="tet" vertex="0 0 0 1 0 0 0 1 0 0 0 1"/></asset><worldbody>'
        '<body name="b"><freejoint/><geom type="mesh" mesh="tet" material="m"/><site name="s" user="1 2 3"/></body>'
        '</worldbody><sensor><gyro site="s"/></sensor></mujoco>'
    )
    asset = '<texture name="sky" type="skybox" builtin="gradient" width="512" height="3072"/><model file="arm.xml"/>'
    asset += '<texture name="floor" type="2d" builtin="checker" width="1024" height="1024"/>'
    asset += '<hfield name="h" nrow="500" ncol="500" size="1 1 1 1"/>'
    body = many(20, '<attach model="arm" body="b" prefix="p#_"/>')
    body += '<replicate count="20"><replicate count="20"><geom size="1" contype="0"/></replicate></replicate>'
    rest = '<size memory="1G" nuserdata="1000" nconmax="2000" nkey="100"/>'
    (tmp_path / "main.xml").write_text(model(body, asset, rest))
    m = load(tmp_path / "main.xml", disable="contact").structure.source
    assert (m.nbody, m.ntex, m.nsensor, m.nkey, m.ngeom) == (21, 22, 20, 100, 420)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        (b"v 0 0 0\nv 1 0 0\nf 1 2 3\nf 1 2 3 4\n", 3),
        (b"\tf\t1 2\t 3\r  f 1  2 3 4 5\r\n# f 1 2 3\nvn 1 2 3\n", 4),
        (b" v 0 0 0\r\n\tv\t0 0 0\n", 2),
        (b"f 1/2/3 4/5/6 7/8/9\n" * 50_000, 50_000),
        (b"#" + b"x " * 100_000 + b"\nf 1 2 3\n", 1),
        (b"f" + b" 1" * 200_002 + b"\n", 200_000),
        (b"f 1\n" * 1000 + b"f 1 2 3 4\n" * 1000, 3000),
    ],
)
def test_triangles_of_wavefront_files_are_counted(tmp_path, text, number):
    (tmp_path / "a.obj").write_bytes(text)
    assert triangles(tmp_path / "a.obj", "", math.inf) == pytest.approx(number, rel=1e-3)


def test_looks_of_a_urdf_are_counted_only_if_they_are_read(tmp_path):
    """MuJoCo does not open what a URDF shows unless the file asks for it. 60 MB may be 5 million triangles."""
    (tmp_path / "trunk.dae").touch()
    os.truncate(tmp_path / "trunk.dae", 60_000_000)
    text = """<robot name="dog">MORE<link name="base"/><link name="trunk"><inertial><mass value="1"/>
      <inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial>
      <visual><geometry><mesh filename="trunk.dae"/></geometry></visual></link>
      <joint name="j" type="continuous"><parent link="base"/><child link="trunk"/></joint></robot>"""
    path = tmp_path / "dog.urdf"
    path.write_text(text.replace("MORE", ""))
    assert load(path).structure.nv == 1
    path.write_text(text.replace("MORE", '<mujoco><compiler discardvisual="false"/></mujoco>'))
    with pytest.raises(ModelError, match="5000000 triangles"):
        load(path)
    path.write_text(text.replace("MORE", "").replace("visual>", "collision>"))
    with pytest.raises(ModelError, match="5000000 triangles"):
        load(path)


def test_too_many_pairs_of_geoms_are_refused():
    geoms = many(2100, '<geom size="1"/>')
    text = model(f"<body><freejoint/>{geoms}</body><body><freejoint/>{geoms}</body>")
    with pytest.raises(ModelError, match=r"XML text: its 4200 geoms make 8817900 pairs"):
        load(text)
    assert load(text.replace('<geom size="1"/>', '<geom size="1" contype="0"/>', 4000)).structure.ngeom == 4200


def test_hulls_of_too_many_vertices_are_refused():
    points = np.random.default_rng(0).normal(size=(12_000, 3))
    vertices = " ".join(f"{x:.6f}" for x in (points / np.linalg.norm(points, axis=1, keepdims=True)).ravel())
    mesh = f'<mesh name="ball" vertex="{vertices}"/>'
    text = model('<geom type="plane" size="1 1 1"/><body><freejoint/><geom type="mesh" mesh="ball"/></body>', mesh)
    with pytest.raises(ModelError, match=r'mesh "ball", 1\d{4}: give the meshes a maxhullvert'):
        load(text)
    assert load(text.replace("<mesh name", '<mesh maxhullvert="64" name')).structure.ngeom == 2
