"""Pictures a second of the live viewer, as a browser shows them: ``python benchmarks/live.py [ant] [sand]``.

Chromium, headless and drawing in software, shows the page while fphys simulates an ant, or sand of 20,000 particles.
``seen`` are the frames of the browser that drew something new, ``sent`` what fphys sent.
``step`` is the time for simulating a picture, ``send`` that for looking at the state and handing it on. ``fphys`` and
``browser`` are the processor time that each takes for a picture: on two cores, 30 a second leave them 67 ms together.
``late`` is what the longest twentieth of the pauses between two pictures reaches.
"""

import argparse
import base64
import json
import os
import shutil
import subprocess
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import fphys
from fphys.live import FPS, live
from fphys.particles.materials import Sand
from fphys.scene import MPM, Box, Domain, Plane

CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
SOFTWARE = ("--use-gl=angle", "--use-angle=swiftshader", "--enable-unsafe-swiftshader")
WATCH = """
window.pictures = [];  // when something was drawn after news had come
let news = false;
const Own = window.Worker;
window.Worker = function (...given) {
  const worker = new Own(...given);
  worker.addEventListener("message", ({ data }) => {
    news ||= (data.messages || []).some((message) => message.type == "SceneNodeUpdateMessage");
  });
  return worker;
};
for (const name of ["drawArrays", "drawElements", "drawArraysInstanced", "drawElementsInstanced"]) {
  const own = WebGL2RenderingContext.prototype[name];
  WebGL2RenderingContext.prototype[name] = function (...given) {
    if (news) window.pictures.push(performance.now());
    news = false;
    return own.apply(this, given);
  };
}
"""


def ant() -> Any:
    return fphys.load("ant")


def sand() -> Any:
    """A block of sand, 20,000 particles, that collapses."""
    scene = fphys.Scene(timestep=1e-3, domain=Domain((0, 0, 0), (1.0, 0.6, 0.92), spacing=0.02))
    scene.add(Plane())
    scene.add(Box((0.5, 0.5, 0.64), pos=(0.3, 0.3, 0.36)), MPM(Sand()), name="sand")
    return scene.build(1)


@contextmanager
def browser(width: int, height: int) -> Iterator[Any]:
    """A function that calls a method of Chrome's protocol on a page, and the number of the process."""
    from websockets.sync.client import connect

    program = next(filter(None, map(shutil.which, CHROMIUM)), None)
    if program is None:
        raise SystemExit(f"needs a browser, one of {', '.join(CHROMIUM)} (on Debian: apt-get install chromium)")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        own = ("--headless=new", "--no-sandbox", "--no-first-run", "--remote-debugging-port=0")
        sized = (f"--user-data-dir={folder}", f"--window-size={width},{height}", "about:blank")
        child = subprocess.Popen([program, *own, *SOFTWARE, *sized], stderr=subprocess.DEVNULL)
        try:
            told = Path(folder) / "DevToolsActivePort"
            deadline = time.monotonic() + 60
            while not told.exists() or not told.read_text():
                if time.monotonic() > deadline or child.poll() is not None:
                    raise SystemExit(f"{program} did not start")
                time.sleep(0.1)
            port = told.read_text().split()[0]
            pages = json.load(urllib.request.urlopen(f"http://127.0.0.1:{port}/json/list"))
            (address,) = [page["webSocketDebuggerUrl"] for page in pages if page["type"] == "page"]
            with connect(address, max_size=None) as socket:
                number = 0

                def call(method: str, **params: Any) -> Any:
                    nonlocal number
                    number += 1
                    socket.send(json.dumps({"id": number, "method": method, "params": params}))
                    while (answer := json.loads(socket.recv(timeout=120))).get("id") != number:
                        pass
                    return answer["result"]

                yield call, child.pid
        finally:
            child.terminate()
            child.wait(20)


def busy(pid: int) -> float:
    """Processor time of a process and all that it started [s]."""
    used = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    children = [int(x) for task in Path(f"/proc/{pid}/task").iterdir() for x in (task / "children").read_text().split()]
    return (int(used[11]) + int(used[12])) / os.sysconf("SC_CLK_TCK") + sum(map(busy, children))


def measure(what: Any, seconds: float, size: tuple[int, int], picture: Path | None) -> dict[str, float]:
    viewer, sent, steps, sends = live(what, 1, 0), list[float](), list[float](), list[float]()
    advance, draw = viewer.advance, viewer.draw

    def timed(call: Any, taken: list[float], *args: Any) -> Any:
        begun = time.perf_counter()
        found = call(*args)
        taken.append(time.perf_counter() - begun)
        return found

    viewer.advance = lambda seconds: timed(advance, steps, seconds)
    viewer.draw = lambda: (timed(draw, sends), sent.append(time.perf_counter()))
    playing = threading.Thread(target=viewer.play, daemon=True)
    playing.start()
    try:
        with browser(*size) as (call, pid):
            call("Page.enable")
            call("Page.addScriptToEvaluateOnNewDocument", source=WATCH)
            call("Page.navigate", url=viewer.address)
            ask = lambda text: call("Runtime.evaluate", expression=text, returnByValue=True)["result"]["value"]  # noqa: E731
            deadline = time.monotonic() + 120
            while len(ask("window.pictures || []")) < 30:
                if time.monotonic() > deadline:
                    raise SystemExit("the page shows nothing")
                time.sleep(0.5)
            time.sleep(5)  # what is compiled and uploaded once
            viewer.reset()
            ask("window.pictures.length = 0")
            for each in (sent, steps, sends):
                each.clear()
            begun, ours = busy(pid), time.process_time()
            time.sleep(seconds)
            theirs, ours = busy(pid) - begun, time.process_time() - ours
            seen, count, took = np.array(ask("window.pictures")), len(sent), (sum(steps), sum(sends))
            if picture:
                picture.parent.mkdir(parents=True, exist_ok=True)
                picture.write_bytes(base64.b64decode(call("Page.captureScreenshot")["data"]))
    finally:
        viewer.stop()
        playing.join(20)
    return {
        "seen": len(seen) / seconds,
        "sent": count / seconds,
        "step": took[0] / count,
        "send": took[1] / count,
        "fphys": ours / count,
        "browser": theirs / len(seen),
        "late": float(np.quantile(np.diff(seen), 0.95)) / 1e3,
    }


def main() -> None:
    cases = {"ant": ant, "sand": sand}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", help=f"{' and '.join(cases)} by default")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--size", type=int, nargs=2, default=(800, 600), help="of the page in pixels")
    parser.add_argument("--pictures", type=Path, help="folder for a picture of each page")
    given = parser.parse_args()
    columns = ("seen", "sent", "step", "send", "fphys", "browser", "late")
    print(
        f"pictures a second, {FPS:.0f} are meant; milliseconds a picture\n{'':<6}{''.join(f'{c:>9}' for c in columns)}"
    )
    for name in given.cases or cases:
        picture = given.pictures and given.pictures / f"{name}.png"
        found = measure(cases[name](), given.seconds, tuple(given.size), picture)
        scaled = [found[column] * (1 if column in ("seen", "sent") else 1e3) for column in columns]
        print(f"{name:<6}{''.join(f'{number:9.1f}' for number in scaled)}", flush=True)


if __name__ == "__main__":
    main()
