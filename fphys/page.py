"""A page of viser's that serves its own user only, and the shapes of geoms on it.

A request is refused if its ``Host`` is not the address served, as when a foreign name was pointed at this machine, or
if its ``Origin`` shows that a foreign page sent it.
"""

import inspect
import ipaddress
import re
import socket
import threading
from typing import Any

import numpy as np

from .errors import MissingDependencyError, ModelError, install
from .model.structure import GeomType

SIDES = 24  # of round shapes
VISER = "viser>=1.1,<1.2"
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::([0-9]{1,5}))?")
_STARTING = threading.Lock()


def viser_module() -> Any:
    try:
        import viser
        import viser.transforms
    except ImportError as cause:
        raise MissingDependencyError(f"fphys view needs viser: {install('view')}") from cause
    return viser


def refusal(hosts: list[str], origins: list[str], served: str, port: int) -> str | None:
    """Why a request to the page is refused; None if it is accepted.

    Args:
        hosts, origins: all ``Host`` and ``Origin`` headers. ``Origin`` is the address of the page that sends the
            request: absent if a program or the user sends it, ``null`` for a file.
        served: the host that is served.
    """
    asked, near = _HOST.fullmatch(hosts[0].lower()) if len(hosts) == 1 else None, _is_near(served)
    if asked is None or int(asked[2] or 80) != port or not _is_own(asked[1].strip("[]"), served.lower(), near):
        names = "localhost" if near else f"{socket.gethostname()} or its numeric address"
        return (
            f"refused: the request is for {hosts}, but the page is served on {names}, port {port}. Open it there. A "
            "tunnel must keep the port; pass another name of this machine as --host"
        )
    if origins and [origin.lower() for origin in origins] != [f"http://{hosts[0].lower()}"]:
        return f"refused: a page of {origins} requests data of http://{hosts[0]}; open that page directly"
    return None


def _is_own(name: str, served: str, near: bool) -> bool:
    """Whether a name can only mean this page. Foreign names can be pointed here; numeric addresses cannot."""
    if address := _address(name):
        return address.is_loopback or not near
    machine = socket.gethostname().lower()
    short = machine.split(".")[0]
    return name in ("localhost", served) or (not near and name in (machine, short, f"{short}.local"))


def _is_near(served: str) -> bool:
    """Whether a host is this machine's loopback address."""
    address = _address(served)
    return address.is_loopback if address else served.lower() == "localhost"


def _address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None


def serve(viser: Any, host: str, port: int) -> Any:
    """Start viser's server so that it calls :func:`refusal` before it answers.

    viser has no hook for this, so ``serve`` of websockets is replaced while viser starts.
    """
    import websockets.asyncio.server as websockets

    try:  # otherwise viser would retry forever
        socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET).close()
    except OSError as cause:
        raise ModelError(
            f"--host {host} cannot be served ({cause}): must be an address or a name of this machine"
        ) from cause
    if not 0 <= port < 2**16:
        raise ModelError(f"--port is {port}: must be 0 to 65535")
    guarded = []

    def guarding(*args: Any, process_request: Any = None, **kwargs: Any) -> Any:
        async def check(connection: Any, request: Any) -> Any:
            asked, origins = (request.headers.get_all(name) for name in ("Host", "Origin"))
            if reason := refusal(asked, origins, host, connection.local_address[1]):
                return connection.respond(403, reason + "\n")
            answer = process_request and process_request(connection, request)
            return await answer if inspect.isawaitable(answer) else answer

        guarded.append(True)
        return serve(*args, process_request=check, **kwargs)

    with _STARTING:
        serve, websockets.serve = websockets.serve, guarding
        try:
            server = viser.ViserServer(host=host, port=port, label="fphys", verbose=False)
        finally:
            websockets.serve = serve
    if not guarded:
        server.stop()
        raise MissingDependencyError(
            f"viser {viser.__version__} starts its server in a way that fphys cannot guard against foreign pages: "
            f'pip install "{VISER}"'
        )
    return server


def color_of(source: Any, geom: int) -> np.ndarray | None:
    """Red, green, blue and opacity of a geom, from 0 to 1; None if it is not drawn."""
    rgba = source.geom_rgba[geom] if source.geom_matid[geom] < 0 else source.mat_rgba[source.geom_matid[geom]]
    return None if source.geom_group[geom] > 2 or rgba[3] == 0 else rgba


def shape(kind: int, size: np.ndarray, source: Any, mesh: int) -> tuple[np.ndarray, np.ndarray] | None:
    """Vertices [m] and triangles of a geom in its own frame; None if it is not drawn (height fields)."""
    if kind == GeomType.MESH:
        first, count = source.mesh_vertadr[mesh], source.mesh_vertnum[mesh]
        face = source.mesh_faceadr[mesh]
        return source.mesh_vert[first : first + count], source.mesh_face[face : face + source.mesh_facenum[mesh]]
    if kind == GeomType.BOX:
        return _rings(np.array([[1.0, -1], [1, 1]]), 4, np.pi / 4, np.array([2**0.5, 2**0.5, 1]) * size)
    if kind == GeomType.CYLINDER:
        return _rings(np.array([[1.0, -1], [1, 1]]), SIDES, 0.0, np.array([size[0], size[0], size[1]]))
    if kind in (GeomType.SPHERE, GeomType.CAPSULE, GeomType.ELLIPSOID):
        angle = np.linspace(-np.pi / 2, np.pi / 2, SIDES)
        angle = np.sort(np.append(angle, [-1e-9, 1e-9]))  # the equator twice, for a capsule's sides
        radius = size if kind == GeomType.ELLIPSOID else np.full(3, size[0])
        vertices, faces = _rings(np.stack([np.cos(angle), np.sin(angle)], 1), SIDES, 0.0, radius)
        if kind == GeomType.CAPSULE:
            vertices = vertices + np.sign(vertices[:, 2:]) * [0.0, 0.0, size[1]]
        return vertices, faces
    return None


def _rings(profile: np.ndarray, sides: int, turn: float, scale: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A profile (radius, height) rotated about z, closed at both ends."""
    angle = turn + np.arange(sides) * 2 * np.pi / sides
    ring = np.stack([np.cos(angle), np.sin(angle)], -1)
    body = np.concatenate([np.concatenate([r * ring, np.full((sides, 1), h)], 1) for r, h in profile])
    ends = np.array([[0, 0, profile[0, 1]], [0, 0, profile[-1, 1]]])
    k, n = np.arange(sides), len(profile)
    after, faces = (k + 1) % sides, []
    for i in range(n - 1):
        a, b, c, d = i * sides + k, i * sides + after, (i + 1) * sides + k, (i + 1) * sides + after
        faces += [np.stack([a, b, d], 1), np.stack([a, d, c], 1)]
    faces += [np.stack([after, k, np.full(sides, n * sides)], 1)]
    faces += [np.stack([(n - 1) * sides + k, (n - 1) * sides + after, np.full(sides, n * sides + 1)], 1)]
    return np.concatenate([body, ends]) * scale, np.concatenate(faces)
