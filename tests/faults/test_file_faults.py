"""Faults 23, 24 and 25: malformed files, bombs, and files that point outside their folder."""

import os
import random
import re
import struct
import subprocess
import sys
import warnings

import pytest

from fphys.errors import ModelError
from fphys.model import load
from fphys.model.guard import admit
from fphys.model.load import read_spec
from fphys.model.validate import CONSTRAINTS

from ..gymnasium_models import gymnasium_models

CASES = 10_000 if os.environ.get("FPHYS_FULL") else 300
URDF = """<robot name="arm">
  <link name="base"/>
  <link name="hand">
    <inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial>
    <visual><geometry><mesh filename="{visual}"/></geometry></visual>
    <collision><geometry>{shape}</geometry></collision>
  </link>
  <joint name="j" type="continuous"><parent link="base"/><child link="hand"/><axis xyz="0 0 1"/></joint>
</robot>"""
SPHERE = '<sphere radius=".1"/>'
CORPUS = [
    *(p.read_text() for p in gymnasium_models().values() if p.stem in ("ant", "hopper", "reacher", "swimmer")),
    URDF.format(visual="", shape=SPHERE),
    """<mujoco><default><default class="a"><geom size=".1" rgba="1 0 0 1"/></default></default>
      <asset><texture name="t" type="2d" builtin="checker" width="8" height="8"/><material name="m" texture="t"/>
        <mesh name="tet" vertex="0 0 0 1 0 0 0 1 0 0 0 1"/><hfield name="h" nrow="2" ncol="2" size="1 1 1 1"/></asset>
      <worldbody><geom type="mesh" mesh="tet" material="m"/><geom type="hfield" hfield="h"/><light/><camera/>
        <replicate count="3" offset="1 0 0"><body><freejoint/><geom class="a"/></body></replicate>
        <body name="x"><joint type="ball"/><geom class="a"/><site name="s"/><site name="t" pos="0 0 1"/></body>
        <body name="y" mocap="true"/></worldbody>
      <contact><exclude body1="x" body2="y"/></contact>
      <equality><connect body1="x" body2="y" anchor="0 0 0"/></equality>
      <tendon><spatial name="te"><site site="s"/><site site="t"/></spatial></tendon>
      <sensor><gyro site="s"/></sensor><custom><numeric name="n" data="1 2"/></custom>
      <keyframe><key qpos="0 0 0 1 0 0 0"/></keyframe></mujoco>""",
]


# --- fault 23: malformed files


def mutate(text: str, rng: random.Random) -> str:
    """The text with one to three random changes."""
    for _ in range(rng.randint(1, 3)):
        i, j = sorted(rng.randrange(len(text) + 1) for _ in range(2))
        j = min(j, i + 40)
        tags = [m.span() for m in re.finditer(r"<[^>]*>", text)]
        values = [m.span(1) for m in re.finditer(r'="([^"]*)"', text)]
        numbers = [m.span() for m in re.finditer(r"-?\d+\.?\d*", text)]
        kind = rng.randrange(9)
        if kind == 0:
            text = text[:i]
        elif kind == 1:
            text = text[:i] + text[j:]
        elif kind == 2:
            text = text[:j] + text[i:j] + text[j:]
        elif kind == 3:
            text = text[:i] + "".join(chr(rng.choice([0, 9, 34, 38, 60, 62, 127, 233, 0x2028, 0x1F600]))) + text[i:]
        elif kind == 4 and tags:
            (a, b), (c, d) = rng.choice(tags), rng.choice(tags)
            text = text[:a] + text[c:d] + text[b:]
        elif kind == 5 and tags:
            (a, b), (c, _) = rng.choice(tags), rng.choice(tags)
            text = text[:c] + text[a:b] + text[c:]
        elif kind == 6 and values:
            (a, b), (c, d) = rng.choice(values), rng.choice(values)
            text = text[:a] + text[c:d] + text[b:]
        elif kind == 7 and numbers:
            a, b = rng.choice(numbers)
            number = rng.choice(
                ["-1", "0", "1e300", "-1e-300", "nan", "inf", "2147483648", "1e9", "0x10", "1,5", "", "1 2 3"]
            )
            text = text[:a] + number + text[b:]
        elif kind == 8 and values:
            a, b = rng.choice(values)
            text = text[:a] + rng.choice(["", " ", "%s%n", "../x", "x" * 5000, "\\", "true", "-", "é"]) + text[b:]
        if not text:
            return text
    return text


def attempt(source) -> ModelError | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            load(source, disable=CONSTRAINTS)
        except ModelError as error:
            return error


def test_a_mutated_file_loads_or_raises_a_model_error(tmp_path, monkeypatch):
    """Any other exception, or a crash, fails the test; the case is in ``case.xml``."""
    monkeypatch.chdir(tmp_path)
    rng, refused = random.Random(0), 0
    for case in range(CASES):
        path = tmp_path / "case.xml"
        path.write_text(mutate(rng.choice(CORPUS), rng), encoding="utf-8")
        error = attempt(path)
        refused += error is not None
        assert error is None or "case.xml" in str(error), f"case {case}"
    assert CASES // 4 < refused < CASES, "the mutations must break some files and leave some whole"
    assert [file.name for file in tmp_path.iterdir()] == ["case.xml"], "MuJoCo must not write a log beside it"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("<mujoco>\n<worldbody>\n</mujoco>", 3),
        ("<mujoco>\n  <worldbody><geom size='1' foo='2'/></worldbody></mujoco>", 2),
        ("<mujoco>\n\n<worldbody><geom size='a b'/></worldbody></mujoco>", 3),
        ("<mujoco>\n<actuator>\n<motor joint='none'/></actuator></mujoco>", 3),
        ("<mujoco>\n<option timestep='1' timestep='2'/></mujoco>", 2),
        ("<robot name='r'>\n<link name='a'/>\n<joint name='j' type='warp'/></robot>", 3),
    ],
)
def test_the_file_and_line_are_named(tmp_path, text, line):
    path = tmp_path / "model.xml"
    path.write_text(text)
    with pytest.raises(ModelError, match=rf"model\.xml:{line}: "):
        load(path)


def test_the_line_in_an_included_file_is_named(tmp_path):
    (tmp_path / "main.xml").write_text('<mujoco>\n<include file="part.xml"/></mujoco>')
    (tmp_path / "part.xml").write_text("<mujoco>\n\n<worldbody></mujoco>")
    with pytest.raises(ModelError, match=r"part\.xml:3: "):
        load(tmp_path / "main.xml")


@pytest.mark.parametrize(
    "source",
    [
        "",
        "  \n",
        "<",
        "<mujoco",
        "<a/>",
        "nowhere.xml",
        "a\0b.xml",
        "x" * 5000,
        "<mujoco>\0</mujoco>",
        "<mujoco>\udc80</mujoco>",
        3,
        None,
    ],
)
def test_other_content_raises_a_model_error(source):
    with pytest.raises(ModelError):
        load(source)


@pytest.mark.parametrize(
    "data", [b"", b"\x00\x01", b"\xff\xfe<\0m\0", b"PK\x03\x04", "<mujoco model='é'/>".encode("latin-1")]
)
def test_a_binary_file_raises_a_model_error(tmp_path, data):
    (tmp_path / "model.xml").write_bytes(data)
    with pytest.raises(ModelError, match=r"model\.xml"):
        load(tmp_path / "model.xml")


def test_a_folder_a_pipe_and_a_device_are_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe.xml")
    for path, why in ((tmp_path, "a folder"), (tmp_path / "pipe.xml", "no such file"), ("/dev/zero", "no such file")):
        with pytest.raises(ModelError, match=why):
            load(path)


def test_utf8_with_a_byte_order_mark_is_read(tmp_path):
    (tmp_path / "model.xml").write_bytes(
        b"\xef\xbb\xbf" + '<mujoco><worldbody><body name="é"/></worldbody></mujoco>'.encode()
    )
    assert load(tmp_path / "model.xml").names("body") == ("world", "é")


# --- fault 24: bombs

BOMBS = """
LAUGHS = "<!DOCTYPE m [<!ENTITY a 'ha'>" + "".join(
    f"<!ENTITY {chr(98 + i)} '{('&' + chr(97 + i) + ';') * 10}'>" for i in range(12)) + "]><mujoco>&m;</mujoco>"
BOMBS = {
    "billion laughs": LAUGHS,
    "quadratic": "<!DOCTYPE m [<!ENTITY a '" + "x" * 100_000 + "'>]><mujoco model='" + "&a;" * 100_000 + "'/>",
    "external entity": "<!DOCTYPE m [<!ENTITY a SYSTEM 'file:///dev/zero'>]><mujoco>&a;</mujoco>",
    "parameter entity": "<!DOCTYPE m [<!ENTITY % a SYSTEM 'file:///dev/zero'> %a;]><mujoco/>",
    "external subset": "<!DOCTYPE m SYSTEM 'file:///dev/zero'><mujoco/>",
    "depth 2e5": "<mujoco><worldbody>" + "<body>" * 200_000 + "</body>" * 200_000 + "</worldbody></mujoco>",
    "width 2e6": "<mujoco><worldbody>" + "<body/>" * 2_000_000 + "</worldbody></mujoco>",
    "replicate": "<mujoco><worldbody>" + "<replicate count='1000'>" * 4 + "<geom size='1'/>" + "</replicate>" * 4
        + "</worldbody></mujoco>",
    "flexcomp": "<mujoco><worldbody><flexcomp name='f' count='1e9 1 1'/></worldbody></mujoco>",
    "texture": "<mujoco><asset><texture builtin='flat' width='1000000' height='1000000'/></asset></mujoco>",
    "height field": "<mujoco><asset><hfield name='h' nrow='1000000' ncol='1000000' size='1 1 1 1'/></asset></mujoco>",
    "user data": "<mujoco><size nuser_body='2000000000'/></mujoco>",
}
import resource, time, mujoco
from fphys.errors import ModelError
from fphys.model import load
load("<mujoco/>")
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for name, bomb in BOMBS.items():
    start = time.perf_counter()
    try:
        load(bomb)
    except ModelError as error:
        assert len(str(error)) < 500
    else:
        raise AssertionError(f"{name} was loaded")
    assert time.perf_counter() - start < 1, name
assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) < 100_000, "more than 100 MB"
print(len(BOMBS), "refused")
"""


@pytest.mark.alone
def test_bombs_are_refused_at_once_in_bounded_memory():
    run = subprocess.run([sys.executable, "-c", BOMBS], capture_output=True, text=True, timeout=120)
    assert (run.returncode, run.stdout) == (0, "12 refused\n"), run.stderr


def test_a_file_of_many_bytes_is_refused(tmp_path):
    path = tmp_path / "model.xml"
    with path.open("wb") as file:
        file.truncate(2**40)  # a sparse file, which takes no room on the disk
    with pytest.raises(ModelError, match="bytes of XML"):
        load(path)


def test_a_long_chain_of_includes_ends(tmp_path):
    for i in range(2_000):
        (tmp_path / f"{i}.xml").write_text(f'<mujoco><include file="{i + 1}.xml"/></mujoco>')
    with pytest.raises(ModelError, match="includes more than"):
        load(tmp_path / "0.xml")


def test_an_empty_number_is_refused_before_mujoco_sees_it():
    """MuJoCo 4.0.0 hangs in the load that follows an empty anchor."""
    with pytest.raises(ModelError, match="<connect>: anchor is empty"):
        load('<mujoco><equality><connect body1="world" body2="world" anchor=" "/></equality></mujoco>')
    load("<mujoco/>")


def test_a_percent_sign_is_refused_before_mujoco_sees_it():
    """MuJoCo 4.0.0 prints an unknown class as a format string, and this one would kill the process."""
    with pytest.raises(ModelError, match="percent sign"):
        load('<mujoco><worldbody><geom size="1" class="%s%s%s%n"/></worldbody></mujoco>')


def test_includes_that_include_each_other_end(tmp_path):
    (tmp_path / "a.xml").write_text('<mujoco><include file="b.xml"/></mujoco>')
    (tmp_path / "b.xml").write_text('<mujoco><include file="a.xml"/></mujoco>')
    with pytest.raises(ModelError, match="already included"):
        load(tmp_path / "a.xml")


# --- fault 25: files outside the root


@pytest.fixture
def folders(tmp_path):
    """A model's folder with a mesh, and a foreign folder beside it with the same content."""
    vertices, faces = ((0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1)), ((0, 2, 1), (0, 1, 3), (1, 2, 3), (0, 3, 2))
    stl = b"\0" * 80 + struct.pack("<I", 4)
    for face in faces:
        stl += struct.pack("<12fH", 0, 0, 0, *(x for i in face for x in vertices[i]), 0)
    for folder in ("model", "model/sub", "secret"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "tet.stl").write_bytes(stl)
        (tmp_path / folder / "part.xml").write_text('<mujoco><option timestep="0.125"/></mujoco>')
    (tmp_path / "model/link.stl").symlink_to(tmp_path / "secret/tet.stl")
    (tmp_path / "model/link.xml").symlink_to("../secret/part.xml")
    (tmp_path / "model/linked").symlink_to(tmp_path / "secret")
    (tmp_path / "model/loop.stl").symlink_to(tmp_path / "model/loop.stl")
    (tmp_path / "model/inner.stl").symlink_to("sub/tet.stl")
    return tmp_path


def mesh(file: str, compiler: str = "") -> str:
    return f"""<mujoco><compiler {compiler}/><asset><mesh name="m" file="{file}"/></asset>
      <worldbody><geom type="mesh" mesh="m"/></worldbody></mujoco>"""


def include(file: str) -> str:
    return f'<mujoco><include file="{file}"/></mujoco>'


OUTSIDE = {
    "include, dots": include("../secret/part.xml"),
    "include, dots inside": include("sub/../../secret/part.xml"),
    "include, backslashes": include("..\\secret\\part.xml"),
    "include, character references": include("&#46;&#46;/secret/part.xml"),
    "include, absolute": include("{root}/secret/part.xml"),
    "include, link": include("link.xml"),
    "include, linked folder": include("linked/part.xml"),
    "include, system file": include("/etc/passwd"),
    "mesh, dots": mesh("../secret/tet.stl"),
    "mesh, absolute": mesh("{root}/secret/tet.stl"),
    "mesh, link": mesh("link.stl"),
    "mesh, linked folder": mesh("linked/tet.stl"),
    "mesh, loop": mesh("loop.stl"),
    "mesh, meshdir": mesh("tet.stl", 'meshdir="../secret"'),
    "mesh, assetdir": mesh("tet.stl", 'assetdir="{root}/secret"'),
    "mesh, meshdir of a link": mesh("tet.stl", 'meshdir="linked"'),
    "mesh, stripped": mesh("../secret/link.stl", 'strippath="true"'),
    "mesh, scheme": mesh("http://example.org/tet.stl"),
    "texture": '<mujoco><asset><texture name="t" type="2d" file="../secret/t.png"/></asset></mujoco>',
    "texture, side": '<mujoco><asset><texture name="t" type="cube" fileup="../secret/t.png"/></asset></mujoco>',
    "texturedir": '<mujoco><compiler texturedir=".."/><asset><texture type="2d" file="t.png"/></asset></mujoco>',
    "height field": '<mujoco><asset><hfield name="h" file="../secret/h.png" size="1 1 1 1"/></asset></mujoco>',
    "skin": '<mujoco><asset><skin file="../secret/s.skn"/></asset></mujoco>',
    "sub-model": '<mujoco><asset><model name="s" file="../secret/part.xml"/></asset></mujoco>',
    "URDF": URDF.format(visual="", shape='<mesh filename="../secret/tet.stl"/>'),
    "URDF, absolute": URDF.format(visual="", shape='<mesh filename="{root}/secret/tet.stl"/>'),
    "URDF, package with dots": URDF.format(visual="", shape='<mesh filename="package://../secret/tet.stl"/>'),
    "URDF, file scheme": URDF.format(visual="", shape='<mesh filename="file:///etc/passwd"/>'),
}


@pytest.mark.parametrize("case", OUTSIDE)
def test_a_file_outside_the_root_is_refused(folders, case):
    path = folders / "model/main.xml"
    path.write_text(OUTSIDE[case].replace("{root}", str(folders)))
    with pytest.raises(ModelError, match=r"main\.xml:\d+: .*(outside|only files|cannot be resolved)"):
        load(path)
    with pytest.raises(ModelError, match="opens no files"):
        load(path.read_text())


def test_a_nested_include_is_held_to_the_same_root(folders):
    (folders / "model/main.xml").write_text(include("sub/part.xml"))
    for text in (include("../secret/part.xml"), include("../../secret/part.xml"), mesh("../../secret/tet.stl")):
        (folders / "model/sub/part.xml").write_text(text)
        with pytest.raises(ModelError, match=r"part\.xml:\d+: .*outside"):
            load(folders / "model/main.xml")
    (folders / "model/sub/part.xml").write_text(include("../../secret/part.xml"))
    assert load(folders / "model/main.xml", root=folders).opt.timestep[0] == 0.125


def test_files_inside_the_root_are_read(folders):
    inside = [
        mesh("tet.stl"),
        mesh("sub/tet.stl"),
        mesh("tet.stl", 'meshdir="sub"'),
        mesh("sub/../tet.stl"),
        mesh("inner.stl"),
        mesh(f"{folders}/model/tet.stl"),
        mesh("elsewhere/tet.stl", 'strippath="true"'),
    ]
    for number, text in enumerate(inside):
        path = folders / f"model/{number}.xml"
        path.write_text(text)
        assert load(path).structure.source.nmesh == 1
        assert load(text, root=folders / "model").structure.source.nmesh == 1
    (folders / "model/inc.xml").write_text(include("sub/part.xml"))
    (folders / "model/sub/part.xml").write_text('<mujoco><include file="../part.xml"/></mujoco>')
    assert load(folders / "model/inc.xml").opt.timestep[0] == 0.125


def test_root_widens_what_may_be_read(folders):
    path = folders / "model/main.xml"
    for text in (mesh("../secret/tet.stl"), mesh("link.stl"), mesh("tet.stl", 'meshdir="../secret"')):
        path.write_text(text)
        assert load(path, root=folders).structure.source.nmesh == 1
        assert load(path, root=folders / "secret").structure.source.nmesh == 1
    path.write_text(include("../secret/part.xml"))
    assert load(path, root=folders).opt.timestep[0] == 0.125


def test_packages_are_looked_for_under_the_root(folders):
    """``package://name/path`` is a folder under the root, or the root itself."""
    path = folders / "model/arm.urdf"
    for name in ("sub/tet.stl", "model/tet.stl", "anything/sub/tet.stl"):
        path.write_text(URDF.format(visual="package://gone/x.dae", shape=f'<mesh filename="package://{name}"/>'))
        assert load(path).structure.source.nmesh == 1
        assert load(path, root=folders).structure.source.nmesh == 1
    path.write_text(URDF.format(visual="", shape='<mesh filename="package://gone/x.stl"/>'))
    with pytest.raises(ModelError, match=r"arm\.urdf:6: 'package://gone/x\.stl' was not found under .*: pass root="):
        load(path)


def test_a_missing_mesh_is_named(folders):
    (folders / "model/main.xml").write_text(mesh("gone.stl"))
    with pytest.raises(ModelError, match=r"main\.xml.*gone\.stl"):
        load(folders / "model/main.xml")


def test_an_included_file_may_have_the_main_ones_name(folders):
    (folders / "model/part.xml").write_text(include("sub/part.xml"))
    assert load(folders / "model/part.xml").opt.timestep[0] == 0.125
    assert read_spec(folders / "model/part.xml").option.timestep == 0.125


def test_the_refusal_says_what_to_pass(folders):
    path = folders / "model/main.xml"
    path.write_text(mesh("../secret/tet.stl"))
    with pytest.raises(ModelError) as refused:
        load(path)
    (line,) = str(refused.value).splitlines()
    assert line.endswith(f'pass root={str(folders)!r} or root="auto", if you trust the model')
    assert load(path, root=folders).structure.source.nmesh == 1
    path.write_text(mesh("../secret/gone.stl"))
    for root in (None, "auto"):
        with pytest.raises(ModelError, match=r"outside .* and there is no such file"):
            load(path, root=root)


def test_auto_trusts_the_nearest_folder_that_holds_all(folders):
    (folders / "model/deep").mkdir()
    path = folders / "model/deep/main.xml"
    path.write_text(mesh("../tet.stl"))
    assert admit(path, "auto").path == path
    assert load(path, root="auto").structure.source.nmesh == 1
    path.write_text(f'<mujoco><include file="../part.xml"/>{mesh("../../secret/tet.stl")[8:]}')
    assert load(path, root="auto").opt.timestep[0] == 0.125
    path.write_text(mesh("../inner.stl"))  # a link that stays within
    assert load(path, root="auto").structure.source.nmesh == 1
    with pytest.raises(ModelError, match='root is "auto", but the model is given as text'):
        load(path.read_text(), root="auto")


def test_auto_stops_below_the_home(folders, monkeypatch):
    """A model cannot widen what it may read to a whole home, or to the whole machine."""
    path = folders / "model/main.xml"
    path.write_text(mesh("../secret/tet.stl"))
    for home in (folders, folders / "other"):
        monkeypatch.setenv("HOME", str(home))
        with pytest.raises(ModelError, match="pass root=") as refused:
            load(path, root="auto")
        assert '"auto"' not in str(refused.value)
    monkeypatch.setenv("HOME", str(folders / "secret/home"))
    path.write_text(mesh("/etc/hostname"))
    with pytest.raises(ModelError, match="outside"):
        load(path, root="auto")


def test_a_ros_package_is_found_above_the_model(folders, monkeypatch):
    """By its folder's name, or by the name in its package.xml; another package beside it needs a root."""
    (folders / "model/urdf").mkdir()
    path = folders / "model/urdf/arm.urdf"
    shape = '<mesh filename="package://{}"/>'
    path.write_text(URDF.format(visual="", shape=shape.format("model/sub/tet.stl")))
    assert load(path).structure.source.nmesh == 1
    path.write_text(URDF.format(visual="", shape=shape.format("arm_description/sub/tet.stl")))
    with pytest.raises(ModelError, match="was not found"):
        load(path)
    with pytest.raises(ModelError, match="was not found"):  # text has no package
        load(URDF.format(visual="", shape=shape.format("model/sub/tet.stl")), root=folders / "model/urdf")
    (folders / "model/package.xml").write_text("<package><name>\n arm_description </name></package>")
    assert load(path).structure.source.nmesh == 1
    path.write_text(URDF.format(visual="", shape=shape.format("model/../secret/tet.stl")))
    with pytest.raises(ModelError, match="outside"):
        load(path)
    path.write_text(URDF.format(visual="", shape=shape.format("secret/tet.stl")))
    with pytest.raises(ModelError, match=r'was not found .*pass root=.* or root="auto"'):
        load(path)
    assert load(path, root="auto").structure.source.nmesh == 1
    monkeypatch.setenv("HOME", str(folders / "model"))  # a home is no package
    path.write_text(URDF.format(visual="", shape=shape.format("model/sub/tet.stl")))
    with pytest.raises(ModelError, match="was not found"):
        load(path)
