"""Foreign pages that request the data of ``fphys view``, and results that are damaged or lie about their content."""

import re
import socket
import tracemalloc
import zipfile
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import fphys
from fphys import cli, page, view
from fphys.errors import MissingDependencyError, ModelError
from fphys.render import recording

pytestmark = pytest.mark.extra("viser")

HERE = socket.gethostname().lower()
X = np.random.default_rng(0).uniform(size=(3, 5, 3))

# Foreign pages


@pytest.fixture(scope="module", params=["127.0.0.1", "::1", "0.0.0.0"])
def viewer(request):
    if request.param == "::1" and not _has_ipv6():
        pytest.skip("no IPv6 here")
    viewer = view.Viewer(None, view.motion(None, particles=X), 0, request.param)
    yield viewer
    viewer.stop()


def _has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


def answer(viewer, *headers: str, path: str = "/") -> int:
    """The status of the response to a request with the given headers, which include ``Host``."""
    host, port = viewer.server.get_host(), viewer.server.get_port()
    with socket.create_connection(("127.0.0.1" if host == "0.0.0.0" else host, port), timeout=20) as connection:
        lines = [f"GET {path} HTTP/1.1", *(header.replace("PORT", str(port)) for header in headers), "", ""]
        connection.sendall("\r\n".join(lines).encode("latin-1"))
        return int(connection.recv(4096).split()[1])


UPGRADE = (
    "Upgrade: websocket",
    "Connection: Upgrade",
    "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
)
OWN = ["localhost:PORT", "127.0.0.1:PORT", "[::1]:PORT", "LocalHost:PORT"]
NUMERIC_OR_OF_THE_MACHINE = ["192.168.1.5:PORT", "[fe80::1]:PORT", f"{HERE}:PORT", f"{HERE.upper()}:PORT"]
FOREIGN = [
    "evil.com",
    "evil.com:PORT",
    "localhost.evil.com:PORT",
    "127.0.0.1.evil.com:PORT",
    "evil-localhost:PORT",
    "localhost",
    "localhost:1",
    "localhost:80:PORT",
    "localhost:PORT@evil.com",
    "evil.com@localhost:PORT",
    "localhost:PORT, evil.com",
    "localhost:١",
    "[::1:PORT",
    "2130706433:PORT",
    "",
]


@pytest.mark.parametrize("host", OWN)
def test_its_own_address_is_served(viewer, host):
    assert answer(viewer, f"Host: {host}") == 200
    assert answer(viewer, f"Host: {host}", *UPGRADE) == 101
    assert answer(viewer, f"Host: {host}", f"Origin: http://{host}", *UPGRADE) == 101
    assert answer(viewer, f"Host: {host}", f"Origin: HTTP://{host.upper()}", *UPGRADE) == 101


@pytest.mark.parametrize("host", FOREIGN)
def test_a_foreign_name_that_leads_here_is_refused(viewer, host):
    header = f"Host: {host}".encode().decode("latin-1")
    assert answer(viewer, header) == answer(viewer, header, *UPGRADE) == 403
    assert answer(viewer, header, path="/no/such/file") == 403


@pytest.mark.parametrize("host", NUMERIC_OR_OF_THE_MACHINE)
def test_other_machines_may_ask_where_it_is_served_to_them(viewer, host):
    near = viewer.server.get_host() != "0.0.0.0"
    assert answer(viewer, f"Host: {host}") == (403 if near and host.lower() != "localhost:port" else 200)


def test_one_host_must_be_named(viewer):
    assert answer(viewer) == 403
    assert answer(viewer, "Host: localhost:PORT", "Host: evil.com") == 403
    assert answer(viewer, "Host: localhost:PORT", "Host: localhost:PORT") == 403


@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.com",
        "http://evil.com:PORT",
        "http://localhost",
        "http://localhost:1",
        "https://localhost:PORT",
        "http://127.0.0.1:PORT",
        "http://localhost:PORT.evil.com",
        "http://localhost:PORT/",
        "file://",
        "null",
        "",
    ],
)
def test_a_foreign_page_is_refused(viewer, origin):
    assert answer(viewer, "Host: localhost:PORT", f"Origin: {origin}", *UPGRADE) == 403
    assert answer(viewer, "Host: localhost:PORT", f"Origin: {origin}") == 403


def test_two_origins_are_refused(viewer):
    own = "Origin: http://localhost:PORT"
    assert answer(viewer, "Host: localhost:PORT", own, own, *UPGRADE) == 403
    assert answer(viewer, "Host: localhost:PORT", own, "Origin: http://evil.com", *UPGRADE) == 403


def test_data_reaches_its_page_and_no_foreign_page(viewer):
    import viser
    from websockets.exceptions import InvalidStatus
    from websockets.sync.client import connect

    own = viewer.address.replace("0.0.0.0", "localhost")
    own, types = own.removeprefix("http://"), [f"viser-v{viser.__version__}"]
    with connect(f"ws://{own}", origin=f"http://{own}", subprotocols=types) as page:
        assert len(page.recv(timeout=20)) > 100
    with (
        pytest.raises(InvalidStatus, match="403"),
        connect(f"ws://{own}", origin="http://evil.com", subprotocols=types),
    ):
        pass


def test_a_requested_host_name_is_served():
    assert page.refusal(["box.lan:80"], [], "Box.lan", 80) is None
    assert page.refusal(["box.lan"], ["http://box.lan"], "box.lan", 80) is None
    assert "--host" in (page.refusal(["other.lan"], [], "box.lan", 80) or "")


def test_a_server_that_cannot_be_guarded_is_not_left_running(monkeypatch):
    import viser

    class Server:
        stopped = False

        def __init__(self, **_):
            pass

        def stop(self):
            Server.stopped = True

    monkeypatch.setattr(viser, "ViserServer", Server)
    with pytest.raises(MissingDependencyError, match=r'in a way that fphys cannot guard.*pip install "viser>='):
        view.Viewer(None, view.motion(None, particles=X), 0, "127.0.0.1")
    assert Server.stopped


def test_each_has_its_own_guard_and_websockets_is_as_it_was():
    import websockets.asyncio.server

    shown, hosts = view.motion(None, particles=X), ["127.0.0.1", "0.0.0.0"] * 2
    with ThreadPoolExecutor(len(hosts)) as pool:
        viewers = list(pool.map(lambda host: view.Viewer(None, shown, 0, host), hosts))
    assert [answer(viewer, "Host: 10.0.0.1:PORT") for viewer in viewers] == [403, 200] * 2
    for viewer in viewers:
        viewer.stop()
    assert websockets.asyncio.server.serve.__module__ == "websockets.asyncio.server"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--host", "192.0.2.7"], "--host 192.0.2.7 cannot be served"),
        (["--host", "no.such.invalid"], "--host no.such.invalid cannot be served"),
        (["--port", "65536"], "--port is 65536: must be 0 to 65535"),
    ],
)
def test_an_address_that_cannot_be_served_is_named(arguments, text, capsys):
    assert cli.main(["view", "ball", *arguments]) == 2
    assert f"error: {text}" in capsys.readouterr().err


# Results


def member(shape: tuple[int, ...], dtype: str = "<f8", data: bytes = b"", **header) -> bytes:
    """An array as numpy writes it, with a header that may claim anything."""
    text = repr({"descr": dtype, "fortran_order": False, "shape": shape} | header) + "\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode() + data


def packed(path, content: bytes, kind=zipfile.ZIP_STORED, name="qpos.npy"):
    with zipfile.ZipFile(path, "w", kind) as archive:
        archive.writestr(name, content)


RESULTS = {
    "absent": (lambda path: None, "absent, damaged"),
    "a folder": (lambda path: path.mkdir(), "absent, damaged"),
    "a device without end": (lambda path: path.symlink_to("/dev/zero"), "absent, damaged"),
    "empty": (lambda path: path.write_bytes(b""), "damaged"),
    "no archive": (lambda path: path.write_bytes(member((2,), data=bytes(16))), "not a NumPy .npz"),
    "no array": (lambda path: packed(path, b"hello"), "damaged"),
    "a strange header": (lambda path: packed(path, member((2, 2), more=1)), "damaged"),
    "a deep header": (lambda path: packed(path, member((2, 2), descr="(" * 9000)), "damaged"),
    "a long header": (lambda path: packed(path, member((2, 2), more="-" * 60000)), "damaged"),
    "a later format": (lambda path: packed(path, b"\x93NUMPY\x02\x00" + b"\xff" * 99), "qpos.npy is not a plain array"),
    "240 GB": (
        lambda path: packed(path, member((10**7, 3000), data=bytes(80))),
        "claims shape .* but holds 80 bytes",
    ),
    "an overflow": (lambda path: packed(path, member((2**62, 4))), "claims shape"),
    "a negative shape": (lambda path: packed(path, member((-2, -4), data=bytes(64))), "claims shape"),
    "too little": (lambda path: packed(path, member((2, 2), data=bytes(31))), "claims shape .*holds 31 bytes"),
    "too much": (lambda path: packed(path, member((2, 2), data=bytes(33))), "claims shape .*holds 33 bytes"),
    "bzip2": (lambda path: packed(path, member((0, 2)), zipfile.ZIP_BZIP2), "a compression that numpy never writes"),
    "pickled": (
        lambda path: np.savez(path, qpos=np.array([{}])),
        "qpos.npy has dtype object, must hold real numbers",
    ),
    "text": (lambda path: np.savez(path, qpos=np.array(["a"])), "has dtype <U1"),
    "complex": (lambda path: np.savez(path, qpos=np.ones((3, 2), complex)), "has dtype complex128"),
    "structured": (lambda path: np.savez(path, x=np.zeros(3, [("a", "f8")])), "x.npy has dtype"),
    "nan": (
        lambda path: np.savez(path, qpos=[[0, 0], [0, 0], [0, np.nan]]),
        r"not finite from frame 2 on.*qpos\[:2\]",
    ),
    "a number": (lambda path: np.savez(path, qpos=1.0), r"qpos has shape \(\)"),
    "no pictures": (lambda path: np.savez(path, qpos=np.zeros((0, 2))), r"qpos has shape \(0, 2\)"),
    "too many axes": (lambda path: np.savez(path, qpos=np.zeros((1, 1, 1, 2))), "must have a time axis first"),
    "too many pictures": (
        lambda path: np.savez(path, qpos=np.zeros((2 << 23, 2), "i1")),
        "16777216 frames of .* too many",
    ),
    "in 4-D": (lambda path: np.savez(path, x=np.zeros((3, 5, 4))), "particles of dimension 2 or 3"),
    "no particles": (lambda path: np.savez(path, x=np.zeros((3, 0, 3))), "particles of dimension 2 or 3"),
}


@pytest.mark.parametrize("kind", RESULTS)
def test_a_bad_result_is_reported_in_one_line(kind, tmp_path, capsys):
    write, text = RESULTS[kind]
    write(tmp_path / "run.npz")
    assert cli.main(["view", "double-pendulum", str(tmp_path / "run.npz")]) == 2
    err = capsys.readouterr().err
    assert err.startswith("error: ") and err.count("\n") == 1 and re.search(text, err)
    assert "run.npz" in err or "qpos" in err or "x has shape" in err


def test_a_truncated_result_is_refused_at_every_length(tmp_path):
    np.savez_compressed(tmp_path / "whole.npz", qpos=np.random.default_rng(0).uniform(size=(20, 2)))
    whole = (tmp_path / "whole.npz").read_bytes()
    for length in range(0, len(whole), 7):
        (tmp_path / "cut.npz").write_bytes(whole[:length])
        with pytest.raises(ModelError, match=r"cut\.npz cannot be read as a result"):
            view.view("double-pendulum", tmp_path / "cut.npz")


def test_a_changed_byte_is_seen_or_does_no_harm(tmp_path):
    np.savez_compressed(tmp_path / "whole.npz", x=X)
    whole, rng = (tmp_path / "whole.npz").read_bytes(), np.random.default_rng(0)
    for place in rng.integers(len(whole), size=300):
        changed = bytearray(whole)
        changed[place] ^= 1 << rng.integers(8)
        (tmp_path / "changed.npz").write_bytes(changed)
        try:
            assert view._arrays(tmp_path / "changed.npz")["x"].shape == X.shape
        except ModelError:  # and no other error
            pass


def test_a_bomb_is_not_unpacked(tmp_path, monkeypatch):
    """The file holds what it claims, 128 MiB of zeros in 128 KiB, but only 64 can be shown."""
    packed(tmp_path / "run.npz", member((1 << 24,), data=bytes(1 << 27)), zipfile.ZIP_DEFLATED)
    assert (tmp_path / "run.npz").stat().st_size < 2**18
    monkeypatch.setattr(recording, "MAX_BYTES", 1 << 26)
    monkeypatch.setattr(zipfile.ZipFile, "open", None)
    with pytest.raises(ModelError, match=r"run\.npz: qpos\.npy has 1342178\d\d bytes, at most 67108864 can be shown"):
        view._arrays(tmp_path / "run.npz")


def test_nothing_large_is_made_of_a_small_file(tmp_path):
    RESULTS["240 GB"][0](tmp_path / "run.npz")
    tracemalloc.start()
    try:
        with pytest.raises(ModelError, match=r"run\.npz: qpos\.npy claims shape"):
            view._arrays(tmp_path / "run.npz")
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


def test_a_result_of_bodies_needs_its_model(tmp_path, capsys):
    np.savez(tmp_path / "run.npz", qpos=np.zeros((3, 2)))
    assert cli.main(["view", str(tmp_path / "run.npz")]) == 2
    assert f"holds the qpos of a model: use fphys view MODEL {tmp_path}" in capsys.readouterr().err


def test_worlds_that_are_not_shown_may_be_anything():
    model = fphys.load(fphys.asset("double-pendulum"))
    qpos = np.zeros((4, 2, 2))
    qpos[1, 0] = np.inf
    assert view.motion(model, qpos, world=1).pos.shape[0] == 4
    with pytest.raises(ModelError, match=r"qpos is not finite from frame 1 on"):
        view.motion(model, qpos, world=0)
