"""``fphys check``: whether models load, agree with MuJoCo, have the right gradients, and how fast they are.

Models are examined in a process of their own, one after another. If it crashes or takes too long over one, that one
is reported and the next process goes on with the rest.
"""

import contextlib
import dataclasses
import functools
import json
import logging
import multiprocessing
import os
import re
import sys
import time
import warnings
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Literal

import numpy as np

from .errors import FphysError, ModelError
from .model import usd_stage

SUFFIXES = (".xml", ".mjcf", ".urdf", *usd_stage.SUFFIXES)
CLOSE, EXACT = 1e-6, 1e-10
"""Relative errors of accelerations and velocities that count as agreement, and as agreement to rounding."""
SLOPE = 1e-5
"""Largest gradient error that counts as right (see ``fphys.testing.check_grads``)."""
SWITCH = 1e-2
"""Where slopes to both sides differ by more, a contact or a limit switches, and there is nothing to compare with."""
STEPS = (1e-5, 1e-6, 1e-7)
"""Of the differences that gradients are compared with."""
MODELS = 40
"""Examined in one process: compiled programs are kept until it ends."""

TOUCHES = {
    "nothing": "nothing",
    "shapes": "planes, spheres, capsules, boxes, height fields",
    "hulls": "meshes, cylinders, ellipsoids",
}
"""What touches in a state."""

Loads = Literal["path", "auto", "mended"]
Share = tuple[int, int]


@dataclasses.dataclass
class Report:
    """What was found out about a model. What could not be asked is None or empty."""

    path: str
    mujoco: str | None = None  # why MuJoCo does not compile it; "" if it does
    loads: Loads | None = None  # from its path alone, with root="auto", or with mend=True
    refusal: str = ""  # why it does not load
    warnings: list[str] = dataclasses.field(default_factory=list)
    touches: list[str] = dataclasses.field(default_factory=list)  # of each state, a key of TOUCHES
    errors: list[float | None] = dataclasses.field(default_factory=list)  # of each state; None: rounding decides
    gradients: list[float | None] = dataclasses.field(default_factory=list)  # of each state; None: a contact switches
    wrong: int = 0  # gradients that are wrong
    speed_1: float | None = None  # steps/s, one world
    speed_256: float | None = None  # steps/s, of 256 worlds together
    mujoco_speed: float | None = None  # steps/s, one thread
    fault: str = ""  # what ended the examination: "crashed while ...", "took more than ...", an error

    def within(self, bound: float) -> Share:
        errors = [error for error in self.errors if error is not None]
        return sum(error <= bound for error in errors), len(errors)

    @property
    def good(self) -> bool:
        """Whether it loads, all states agree, all gradients are right and nothing went wrong."""
        agree, count = self.within(CLOSE)
        return self.loads is not None and not self.fault and not self.wrong and agree == count


def main(
    source: str,
    states: int = 20,
    quick: bool = False,
    json_path: Path | None = None,
    limit: float = 120.0,
    device: str | None = None,
) -> int:
    """Examine a model, or all below a folder, and print what was found; 0 if every model that MuJoCo compiles loads and
    is right."""
    import tqdm

    if states < 1 or limit <= 0:
        raise ModelError(f"{states} states, {limit:g} s: both must be positive")
    found, others = models(source)
    base = Path(source) if Path(source).is_dir() else Path(found[0]).parent
    options = {"states": states, "worlds": () if quick else (1, 256), "device": device}
    reports: list[Report] = []
    print(HEADER, flush=True)
    with tqdm.tqdm(total=len(found), desc="check", unit="model", disable=len(found) == 1 or None) as bar:
        for report in examined(found, options, limit):
            reports.append(report)
            with tqdm.tqdm.external_write_mode(file=sys.stdout):
                print(line(report, base), flush=True)
            bar.update()
    included = inclusions([*found, *others])
    parts = [r for r in reports if r.mujoco and not r.loads and os.path.realpath(r.path) in included]
    whole = [r for r in reports if r not in parts]
    print(summary(whole, len(parts), len(others)), flush=True)
    if json_path:
        content = {"models": [dataclasses.asdict(r) for r in whole], "parts": [r.path for r in parts], "others": others}
        json_path.parent.mkdir(parents=True, exist_ok=True)
        json_path.write_text(json.dumps(content, indent=1))
    bad = [r for r in whole if not r.good and (r.mujoco == "" or r.loads or r.fault)]
    return 1 if bad or not any(r.good for r in whole) else 0


def models(source: str) -> tuple[list[str], list[str]]:
    """The files to examine, and those below the folder whose root is neither <mujoco> nor <robot>."""
    path = Path(source)
    if not path.is_dir():
        from .model.assets import located

        return [located(source)], []
    found: dict[bool, list[str]] = {True: [], False: []}
    for file in sorted(path.rglob("*")):
        if file.suffix.lower() in SUFFIXES and file.is_file():
            found[usd_stage.is_usd(file) or _root(file) in ("mujoco", "robot")].append(str(file))
    if not found[True]:
        raise ModelError(f"{source}: there is no MJCF, URDF or USD file below this folder")
    return found[True], found[False]


def _root(file: Path) -> str:
    """The tag of a document's root, "" if it cannot be read."""
    with contextlib.suppress(ET.ParseError, OSError, ValueError), file.open("rb") as opened:
        for _, element in ET.iterparse(opened, ["start"]):
            return element.tag.lower()
    return ""


def inclusions(files: list[str]) -> set[str]:
    """The files that these include: from beside the first document, or from beside the one that includes."""
    found: set[str] = set()
    for main in files:
        waiting, seen = [main], set()
        while waiting:
            here = waiting.pop()
            for name in _includes(here):
                places = [os.path.realpath(Path(base).parent / name) for base in (main, here)]
                new = {place for place in places if os.path.exists(place)} - seen
                seen |= new
                waiting += new
        found |= seen
    return found


@functools.cache
def _includes(file: str) -> list[str]:
    if usd_stage.is_usd(file):
        return usd_stage.layers_in(file)
    with contextlib.suppress(ET.ParseError, OSError, ValueError):
        return [element.get("file", "") for element in ET.parse(file).iter("include")]
    return []


def examined(paths: list[str], options: dict[str, Any], limit: float) -> Iterator[Report]:
    """A report of each model, from processes that may crash or hang."""
    context = multiprocessing.get_context("spawn")
    waiting, process = list(paths), None
    try:
        while waiting:
            ours, theirs = context.Pipe()
            process = context.Process(target=_examine_all, args=(theirs, waiting[:MODELS], options), daemon=True)
            process.start()
            theirs.close()
            for path in waiting[:MODELS]:
                report = _follow(ours, Report(path), limit)
                waiting.pop(0)
                yield report
                if report.fault.startswith(("crashed", "took")):
                    break
            process.kill()
            process.join()
    finally:
        if process is not None:
            process.kill()


def _follow(connection: Connection, report: Report, limit: float) -> Report:
    """Fill a report with what a process says, for so many seconds; its start does not count."""
    stage, end = "starting", time.monotonic() + limit + 60
    try:
        while connection.poll(max(0.0, end - time.monotonic())):
            message = connection.recv()
            if message is None:
                return report
            if isinstance(message, str):
                end = time.monotonic() + limit if stage == "starting" else end
                stage = message
            else:
                report = dataclasses.replace(report, **message)
    except EOFError:
        return dataclasses.replace(report, fault=f"crashed while {stage}")
    return dataclasses.replace(report, fault=f"took more than {limit:g} s while {stage}")


def _examine_all(connection: Connection, paths: list[str], options: dict[str, Any]) -> None:
    """The process: models one after another. Sends what it does next, what it found, and None after each model."""
    import jax

    from . import oracle
    from .config import use_device

    jax.config.update("jax_enable_x64", True)
    use_device(options["device"])
    oracle.silence()
    logging.getLogger("fphys").addHandler(logging.NullHandler())
    for path in paths:
        try:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always", UserWarning)
                for message in _examine(path, options):
                    connection.send(message)
        except FphysError as error:
            connection.send({"fault": str(error)})
        except Exception as error:  # any error at all is the model's, and no other's
            connection.send({"fault": f"{type(error).__name__}: {error}"})
        connection.send({"warnings": list(dict.fromkeys(str(w.message) for w in caught))})
        connection.send(None)
        jax.clear_caches()


def _examine(path: str, options: dict[str, Any]) -> Iterator[str | dict[str, Any]]:
    import fphys

    from . import oracle

    yield "MuJoCo compiled it"
    yield {"mujoco": "MuJoCo reads no USD" if usd_stage.is_usd(path) else oracle.refusal(path)}
    yield "loading"
    try:
        model, loads = _loaded(path)
    except ModelError as error:
        yield {"refusal": str(error)}
        return
    yield {"loads": loads}
    if not model.structure.nv:
        return
    yield "comparing it with MuJoCo"
    hard = fphys.load(oracle.strict(model))
    rows = oracle.states(hard.structure.source, options["states"], trajectories=24)
    step = Step(hard, rows)
    yield {"errors": _errors(step), "touches": [_touched(hard, row) for row in rows]}
    yield "taking its gradient"
    errors, wrong = step.gradient_errors()
    yield {"gradients": [None if np.isnan(error) else error for error in errors.tolist()], "wrong": int(wrong.sum())}
    if not options["worlds"]:
        return
    yield "timing it"
    yield {"mujoco_speed": oracle.speed(model.structure.source, rows[0])}
    for worlds in options["worlds"]:
        yield {f"speed_{worlds}": _speed(model, rows[0], worlds)}


def _loaded(path: str) -> tuple[Any, Loads]:
    """The model, with no more options than it needs, and how it loads."""
    import fphys

    try:
        return fphys.load(path), "path"
    except ModelError as error:
        if "mend=True" not in str(error) and "pass root=" not in str(error):
            raise
    try:
        return fphys.load(path, root="auto"), "auto"
    except ModelError as error:
        if "mend=True" not in str(error):
            raise
    return fphys.load(path, root="auto", mend=True), "mended"


class Step:
    """A step from each of some states, as a function of a displacement of state and control, shape (world, size)."""

    def __init__(self, model: Any, rows: list[Any], seed: int = 0) -> None:
        import jax

        from . import oracle

        s, rng = model.structure, np.random.default_rng(seed)
        self.model, self.rows = model, rows
        self.state, self.ctrl = oracle.to_state(model, rows)
        self.way = rng.standard_normal((len(rows), 2 * s.nv + s.na + s.nu))
        self.weights = rng.standard_normal((len(rows), 2 * s.nv + s.na))
        self._given = (model, self.state, self.ctrl, self.state, self.weights)
        self._value, self._pull = jax.jit(_stepped), jax.jit(jax.grad(_total, has_aux=True))
        self.end = self(np.zeros(self.way.shape))[1]
        self._given = (model, self.state, self.ctrl, self.end, self.weights)

    def __call__(self, x: np.ndarray) -> tuple[np.ndarray, Any]:
        """A weighted sum of where each world ends, relative to ``end``, and the state there."""
        value, end = self._value(x, *self._given)
        return np.asarray(value), end

    def accelerations(self) -> np.ndarray:
        """In the states themselves, without what an integrator makes of damping, or of a step's stages."""
        import jax

        import fphys

        return np.asarray(jax.jit(fphys.forward)(self.model, self.state, self.ctrl)[0])

    def gradient_errors(self) -> tuple[np.ndarray, np.ndarray]:
        """The gradient against centred differences, along a random direction of state and control in each world.

        Returns:
            The gradient error (see ``fphys.testing.check_grads``), nan where the slopes to both sides differ by more
            than SWITCH; and whether it is wrong: neither within SLOPE nor between both slopes. Both of shape (world,).
        """
        way = self.way
        grad, middle = (np.asarray(x) for x in self._pull(np.zeros(way.shape), *self._given))
        slope, scale = (grad * way).sum(1), np.linalg.norm(grad, axis=1) * np.linalg.norm(way, axis=1)
        best, right = np.full(len(way), np.nan), np.zeros(len(way), bool)
        for h in STEPS:
            high, low = self(h * way)[0], self(-h * way)[0]
            bound = np.maximum(np.abs(high - low) / (2 * h), np.maximum(1e-3 * scale, 1e-12))
            bend = np.abs(high - 2 * middle + low) / h / bound
            error = np.abs(slope - (high - low) / (2 * h)) / bound
            error[bend > SWITCH] = np.nan
            best = np.fmin(best, error)
            right |= error <= np.maximum(SLOPE, 0.5 * bend)
        return best, ~right & (~np.isnan(best) | ~np.isfinite(slope))


def _stepped(x: Any, model: Any, state: Any, ctrl: Any, first: Any, weights: Any) -> Any:
    import jax.numpy as jnp

    import fphys

    from .rigid.tree.integrate import integrate_positions

    s = model.structure
    turn, push, act, more = jnp.split(x, np.cumsum([s.nv, s.nv, s.na]), 1)
    qpos = integrate_positions(model, state.qpos, turn, jnp.ones(1, x.dtype))
    there = state.replace(qpos=qpos, qvel=state.qvel + push, act=state.act + act)
    end = fphys.step(model, there, ctrl + more)
    gaps = [fphys.difference(model, first.qpos, end.qpos), 0.1 * (end.qvel - first.qvel), end.act - first.act]
    return (jnp.concatenate(gaps, 1) * weights).sum(1), end


def _total(*args: Any) -> Any:
    value, _ = _stepped(*args)
    return value.sum(), value


def _errors(step: Step) -> list[float | None]:
    """The larger error of accelerations and of velocities after a step, in each state; None where rounding decides."""
    from . import oracle

    qacc, after = step.accelerations(), np.asarray(step.end.qvel)
    found = oracle.error(qacc, np.array([row.qacc for row in step.rows]))
    moved = oracle.error(after, np.array([row.after for row in step.rows]))
    errors = np.nan_to_num(np.maximum(found, moved), nan=np.inf)
    undecided = np.zeros(len(errors), bool)
    if (errors > CLOSE).any():
        undecided = oracle.grazing(step.model, step.rows, step.state, step.ctrl)
    return [None if open_ else error for error, open_ in zip(errors.tolist(), undecided, strict=True)]


def _touched(model: Any, row: Any) -> str:
    """What touches in a state, a key of TOUCHES."""
    from .model.structure import GeomType

    kinds = model.structure.geom.type[row.contacts.geom.ravel()]
    if not len(kinds):
        return "nothing"
    return "hulls" if np.isin(kinds, [GeomType.MESH, GeomType.CYLINDER, GeomType.ELLIPSOID]).any() else "shapes"


def _speed(model: Any, row: Any, worlds: int, seconds: float = 0.5) -> float:
    """Steps of all worlds in a second, after compiling."""
    import jax

    import fphys

    from . import oracle

    state, ctrl = oracle.to_state(model, [row] * worlds)
    step = jax.jit(fphys.step)
    state = jax.block_until_ready(step(model, state, ctrl))
    count, begun = 0, time.perf_counter()
    while (spent := time.perf_counter() - begun) < seconds:
        state = jax.block_until_ready(step(model, state, ctrl))
        count += 1
    return worlds * count / spent


HEADER = (
    f"{'model':<48}  {'loads':<7}{'≤ 1e-6':>8}{'≤ 1e-10':>9}{'worst':>9}{'gradient':>10}"
    f"{'1 world':>10}{'256':>10}{'MuJoCo':>10}  steps/s"
)


def line(report: Report, base: Path) -> str:
    """A model's line in the table."""
    name = os.path.relpath(report.path, base)
    name = name if len(name) <= 48 else "…" + name[-47:]
    if report.loads is None:
        why = report.refusal or report.fault
        says = "no" if report.mujoco == "" else "neither" if report.mujoco else ""
        return f"{name:<48}  {says:<7}  {_short(why or report.mujoco or '')}"
    worst = max((error for error in report.errors if error is not None), default=None)
    gradient = max((error for error in report.gradients if error is not None), default=None)
    cells = [
        f"{report.loads:<7}",
        *(_of(*report.within(bound)).rjust(width) for bound, width in ((CLOSE, 8), (EXACT, 9))),
        " " * 9 if worst is None else f"{worst:9.1e}",
        " " * 10 if gradient is None else f"{gradient:9.1e}" + ("!" if report.wrong else " "),
        *(f"{_round(speed):>10}" for speed in (report.speed_1, report.speed_256, report.mujoco_speed)),
    ]
    return f"{name:<48}  " + "".join(cells) + (f"  {_short(report.fault)}" if report.fault else "")


def _of(some: int, all_: int) -> str:
    return f"{some}/{all_}" if all_ else ""


def _round(speed: float | None) -> str:
    return "" if speed is None else f"{speed:,.0f}"


def _short(text: str) -> str:
    rows = [row.strip() for row in text.splitlines()] or [""]
    text = f"{rows[0]} {rows[1]}" if rows[0].endswith(":") and len(rows) > 1 else rows[0]
    return text if len(text) <= 160 else text[:159] + "…"


def summary(reports: list[Report], parts: int, others: int) -> str:
    """What was found about all models together."""
    compiled = [r for r in reports if r.mujoco == ""]
    loaded = [r for r in reports if r.loads]
    both = [r for r in loaded if r.mujoco == ""]
    alone = sum(r.loads == "path" for r in both)
    extra = [r for r in loaded if r.mujoco]
    lines = [
        "",
        f"{len(reports)} models; MuJoCo compiles {len(compiled)}; of these, fphys loads "
        f"{_share(len(both), len(compiled))}, {_share(alone, len(compiled))} from the path alone",
    ]
    if extra:
        lines.append(f"{len(extra)} more load that MuJoCo refuses")
    if parts or others:
        lines.append(f"not counted: {parts} parts of other models, {others} files that are no models")
    pairs = [pair for r in loaded for pair in zip(r.touches, r.errors, strict=True)]
    if pairs:
        lines.append("states along MuJoCo's trajectories that agree, by what touches:")
    for kind, title in TOUCHES.items():
        own = [error for touch, error in pairs if touch == kind and error is not None]
        if own:
            near, exact = (sum(error <= bound for error in own) for bound in (CLOSE, EXACT))
            lines.append(f"  {title:<50} {_share(near, len(own)):>20} to 1e-6 {_share(exact, len(own)):>20} to 1e-10")
    slopes = [error for r in loaded for error in r.gradients if error is not None]
    if slopes:
        wrong, switches = sum(r.wrong for r in loaded), sum(error is None for r in loaded for error in r.gradients)
        lines.append(
            f"gradients: {_share(len(slopes) - wrong, len(slopes))} are right, the median error is "
            f"{np.median(slopes):.1e}; {switches} more are at a switch of a contact or limit"
        )
    for title, texts in {
        "refused although MuJoCo compiles it": [r.refusal for r in compiled if not r.loads],
        "refused by both": [r.refusal for r in reports if r.mujoco and not r.loads],
        "went wrong": [r.fault for r in reports],
    }.items():
        counts = Counter(cause for text in texts for cause in causes(text))
        if counts:
            lines += [f"{title}, by cause:", *(f"  {n:>5}  {cause}" for cause, n in counts.most_common())]
    return "\n".join(lines)


def _share(some: int, all_: int) -> str:
    return f"{some} of {all_} ({some / all_:.1%})" if all_ else "0 of 0"


def causes(text: str) -> set[str]:
    """The causes that a refusal names, without names, numbers and places."""
    if not text:
        return set()
    rows = text.splitlines()
    faults = [row.strip() for row in rows[1:] if row.startswith("  ")] if rows[0].endswith(":") else []
    return {_cause(fault) for fault in faults or [re.sub(r"^\S+?(:\d+)?: ", "", rows[0])]}


def _cause(text: str) -> str:
    if text.startswith("contact of"):
        return text.partition(":")[0]
    text = re.sub(r"'[^']*'|\"[^\"]*\"|(?<=[ =(])[-+]?\d[\d.e+-]*", "…", text)
    return text if len(text) <= 120 else text[:119] + "…"
