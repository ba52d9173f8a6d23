"""A run's folder: the output of an experiment.

::

    with Run("swing-up", config=config) as run:
        for i in run.progress(200, "optimise"):
            ...
            run.log(i, loss=loss)                 # TensorBoard, the bar, and run.history
        run.plot("loss", lambda axes: axes.plot(run.history["loss"]))
        run.video("swing-up", lambda: fphys.render.frames(model, states), fps=30)
        run.save(ctrl=ctrl)                       # result.npz
        run.motion(states.time[:, 0], model, states)  # what `fphys view` shows of the folder
        run.metrics(final_loss=loss)              # metrics.json

makes ``runs/swing-up/20260131-120000/``. ``metrics.json`` and the logged history are written no matter how
the run ends. Its ``status`` is "ok", "failed" or "interrupted".
"""

import contextlib
import dataclasses
import datetime
import importlib.metadata
import json
import math
import os
import platform
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from .errors import MissingDependencyError
from .loggers import Logger, TensorBoard

_ON_BAR = 4
PACKAGES = ("fphys", "jax", "jaxlib", "warp-lang", "mujoco", "numpy", "flax", "optax")


class Run:
    """A folder ``root/name/DATE-TIME`` and methods to fill it."""

    def __init__(
        self,
        name: str,
        root: str | os.PathLike[str] = "runs",
        config: Any = None,
        quiet: bool = False,
        loggers: Sequence[Logger] | None = None,
    ) -> None:
        """``config`` (a dataclass or a mapping) is recorded. ``quiet`` turns off bars and summary.

        ``loggers`` take what is logged (:mod:`fphys.loggers`) and are closed with the run; by default TensorBoard.
        """
        self.name, self.config, self.quiet = name, config, quiet
        self.path = _new_folder(Path(root) / name)
        self.history: dict[str, list[float]] = {}
        self._steps: dict[str, list[int]] = {}
        self._arrays: dict[str, np.ndarray] = {}
        self._moved: set[str] = set()  # arrays of the last motion
        self._values: dict[str, Any] = {}
        self._video: dict[str, Any] = {}
        self._bars: list[Any] = []  # nested bars, the innermost last
        self.loggers = [TensorBoard(self.path)] if loggers is None else list(loggers)
        self._start = time.time()
        self._end: float | None = None
        self._status, self._error = "running", None

    def log(self, step: int, **scalars: Any) -> None:
        """Record scalars at a step: by the loggers, in ``history``, and the first four on the current progress bar."""
        values = {key: float(value) for key, value in scalars.items()}
        with _undisturbed():
            for logger in self.loggers:
                logger.log(int(step), values)
            for key, value in values.items():
                self.history.setdefault(key, []).append(value)
                self._steps.setdefault(key, []).append(int(step))
            if self._bars:
                shown = list(values.items())[:_ON_BAR]
                self._bars[-1].set_postfix({key: f"{value:.4g}" for key, value in shown}, refresh=False)

    def progress(self, over: int | Iterable[Any], desc: str | None = None) -> Iterator[Any]:
        """Iterate over an iterable, or over range(n), with a bar on standard error that shows logged values."""
        return _Progress(range(over) if isinstance(over, int) else over, self._bars, desc or self.name, self.quiet)

    def plot(self, name: str, figure: Any) -> Path:
        """Save ``name.png`` from a matplotlib figure, or from a function that draws on given axes."""
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        if callable(figure):
            draw, figure = figure, Figure(figsize=(7.0, 4.2), layout="constrained")
            axes = figure.subplots()
            axes.grid(True, alpha=0.25, linewidth=0.6)
            axes.spines[["top", "right"]].set_visible(False)
            axes.set_prop_cycle(color=["#2a6db5", "#ec6a29", "#3a9d6e", "#8a5fb0", "#c23b4b", "#6b7280"])
            draw(axes)
            if axes.get_legend_handles_labels()[1]:
                axes.legend(frameon=False)
        path = self.path / f"{name}.png"
        FigureCanvasAgg(figure)  # a file needs no window system
        figure.savefig(path, dpi=150, facecolor="white")
        return path

    def curves(self, axes: Any, *names: str) -> None:
        """Draw logged scalars over their steps, for :meth:`plot`: ``lambda axes: run.curves(axes, "loss")``."""
        for name in names:  # nothing is logged if training had already ended
            axes.plot(
                self._steps.get(name, []), self.history.get(name, []), linewidth=1.5, label=name.replace("_", " ")
            )
        axes.set(xlabel="step", ylabel=names[0].replace("_", " "))

    def video(self, name: str, frames: np.ndarray | Callable[[], np.ndarray], fps: float = 30.0) -> Path | None:
        """Save ``name.mp4`` from frames, uint8 (time, height, width, 3), or from a function that renders them.

        If the function cannot draw because OpenGL is missing, the run continues without a video and reports it.

        Raises:
            ValueError: the frames have another shape or type, or ``fps`` is not positive and finite.
        """
        from .render import write_video

        try:
            path = write_video(self.path / f"{name}.mp4", frames() if callable(frames) else frames, fps)
        except MissingDependencyError as cause:
            self._video = {"video": None, "video_reason": str(cause)}
            self._say(f"no video: {cause}")
            return None
        self._video = {"video": path.name}
        return path

    def save(self, **arrays: Any) -> Path:
        """Add copies of arrays to ``result.npz``. The file is replaced as a whole, so it is never half written.

        Raises:
            ValueError: an array is called ``file`` or ``allow_pickle``, which numpy.savez means otherwise.
        """
        if refused := arrays.keys() & {"file", "allow_pickle"}:
            raise ValueError(f"arrays are called {sorted(refused)}, which numpy.savez means otherwise: rename them")
        self._arrays |= {key: np.array(value) for key, value in arrays.items()}
        path = self.path / "result.npz"
        with _replacing(path) as part, part.open("wb") as file:
            np.savez(file, **self._arrays)  # type: ignore[arg-type]
        return path

    def motion(
        self,
        time: Any,
        scene: Any = None,
        states: Any = None,
        x: Any = None,
        elements: Any = None,
        marks: Any = None,
        color: Any = None,
        radius: Any = None,
    ) -> Path:
        """Save what moved, for ``fphys view FOLDER``: arrays in ``result.npz``, and ``scene.xml`` beside it.

        The scene is MJCF of what is seen, without files of its own (:func:`fphys.render.outline`). What an earlier
        call saved is replaced.

        Args:
            time: [s], shape (T,). It never falls.
            scene: the fphys.Model that moved, or MJCF of what stands around the particles.
            states: of the model, stacked on a leading time axis. ``qpos``, ``mocap_pos`` and ``mocap_quat`` are saved.
            x: positions of particles or vertices [m], shape (T, [world,] n, dim). A particle that is not there is NaN.
                A plane is shown upright; beside states, it is at z = 0, where :func:`fphys.coupling.step` has it.
            elements: of the mesh between them, shape (element, 2, 3 or 4). Points that no element names are particles.
            marks: positions of the scene's mocap bodies [m], shape (world, nmocap, 3), such as targets.
            color: of the particles, red, green and blue from 0 to 1, shape (n, 3).
            radius: of the particles [m].

        Raises:
            ValueError: nothing moves; shapes do not fit each other or the scene; numbers of bodies or of a mesh are not
                finite; or the worlds of the scene do not look alike, for ``scene.xml`` is one for all.
        """
        from .model.load import load
        from .render.outline import outline, unlike
        from .render.recording import MOVING, NAMES, check

        arrays = {"x": x, "elements": elements, "color": color, "radius": radius}
        if states is not None:
            arrays |= {name: getattr(states, name) for name in ("qpos", "mocap_pos", "mocap_quat")}
        elif marks is not None:
            arrays["mocap_pos"] = np.broadcast_to(marks, (len(time), *np.shape(marks)))
        arrays = {name: np.asarray(array) for name, array in arrays.items() if array is not None and np.size(array)}
        if not arrays.keys() & MOVING.keys():
            raise ValueError("nothing moves: pass states of the scene, or positions of particles as x")
        if "x" in arrays and arrays["x"].ndim == 3:
            arrays["x"] = arrays["x"][:, None]
        if "x" in arrays and states is not None and arrays["x"].shape[-1] == 2:
            arrays["x"] = np.pad(arrays["x"], [(0, 0)] * (arrays["x"].ndim - 1) + [(0, 1)])
        model, text = load(scene) if isinstance(scene, str) else scene, None
        if model is not None:
            text = outline(model)
            if own := unlike(model):
                raise ValueError(
                    f"worlds of the scene differ in {own}, but scene.xml is one for all: save a world k alone, with "
                    "scene=fphys.render.outline(model, k) and [:, k : k + 1] of what moves"
                )
            model = load(text)
        arrays["time"] = np.asarray(time)
        kept = {name: array for name, array in self._arrays.items() if name not in self._moved}
        check(model, {name: array for name, array in (kept | arrays).items() if name in NAMES})
        if text is None:
            (self.path / "scene.xml").unlink(missing_ok=True)
        else:
            with _replacing(self.path / "scene.xml") as part:
                part.write_text(text, encoding="utf-8")
        self._arrays, self._moved = kept, set(arrays)
        return self.save(**arrays)

    def metrics(self, **values: Any) -> Path:
        """Add values to ``metrics.json``, which also records what is needed to repeat the run."""
        self._values |= values
        path = self.path / "metrics.json"
        content = {
            "experiment": self.name,
            "status": self._status,
            "error": self._error,
            "metrics": self._values,
            **self._video,
            "seconds": round((self._end or time.time()) - self._start, 3),
            "started": datetime.datetime.fromtimestamp(self._start).astimezone().isoformat(timespec="seconds"),
            "seed": _as_dict(self.config).get("seed"),
            "config": _as_dict(self.config),
            "device": _device(),
            "versions": versions(),
        }
        with _replacing(path) as part:
            part.write_text(json.dumps(_plain(content), indent=2, allow_nan=False) + "\n", encoding="utf-8")
        return path

    def close(self, error: BaseException | None = None) -> None:
        """Write what is not written yet and print the summary. Leaving the ``with`` block calls this."""
        self._end = time.time()
        self._status = "ok" if error is None else "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
        self._error = f"{type(error).__name__}: {error}" if self._status == "failed" else None
        for bar in self._bars:
            bar.close()
        for logger in self.loggers:
            logger.close()
        self.metrics()
        if self.history:
            columns = {f"history/{key}": np.asarray(value) for key, value in self.history.items()}
            self.save(**columns, **{f"history/{key}/step": np.asarray(value) for key, value in self._steps.items()})
        if not self.quiet:
            print(self.summary(), flush=True)

    def summary(self) -> str:
        """A few lines about what happened and where the files are."""
        width = max((len(key) for key in self._values), default=0)
        seconds = (self._end or time.time()) - self._start
        missed = self._status == "ok" and self._values.get("success") in (False, np.False_)
        status = "missed its goal" if missed else self._status
        lines = [f"{self.name}: {status} in {seconds:.1f} s on {_device() or 'no device'}"]
        lines += [f"  {key:<{width}}  {_short(value)}" for key, value in self._values.items()]
        if self._error:
            lines.append(f"  {self._error}")
        lines.append(f"  {_relative(self.path)}{os.sep}")
        lines += [f"    {file.name}" for file in sorted(self.path.iterdir())]
        return "\n".join(lines)

    def __enter__(self) -> "Run":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        with _undisturbed():
            try:
                self.close(error)
            except Exception as second:
                if error is None:
                    raise
                self._say(f"could not finish {self.path}: {second}")  # the first error is the one to raise

    def _say(self, text: str) -> None:
        if not self.quiet:
            print(text, file=sys.stderr, flush=True)


class _Progress:
    """An iterator with a bar. It is not a generator, whose closing code could swallow Ctrl-C.

    If the loop is left early, the next outer step, or the end of the run, closes the bar.
    """

    def __init__(self, over: Iterable[Any], bars: list[Any], desc: str, quiet: bool) -> None:
        import tqdm

        total = len(over) if isinstance(over, Sized) else None
        with _undisturbed():
            bar = tqdm.tqdm(total=total, desc=desc, file=sys.stderr, disable=quiet, dynamic_ncols=True, smoothing=0.1)
            bars.append(bar)
        self._items, self._bars, self._bar, self._begun = iter(over), bars, bar, False

    def __iter__(self) -> "_Progress":
        return self

    def __next__(self) -> Any:
        with _undisturbed():
            while self._bar in self._bars and self._bars[-1] is not self._bar:
                self._bars.pop().close()
            self._bar.update(self._begun)
            self._begun = True
        try:
            return next(self._items)
        except StopIteration:
            with _undisturbed():
                self._bar.close()
                if self._bars and self._bars[-1] is self._bar:
                    self._bars.pop()
            raise


def versions() -> dict[str, str | None]:
    """Versions of Python and of the packages that a result depends on; None if a package is not installed."""
    found: dict[str, str | None] = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = None
    return found


def _new_folder(parent: Path) -> Path:
    parent.mkdir(parents=True, exist_ok=True)
    stamp = time.strftime("%Y%m%d-%H%M%S")
    for k in range(10_000):
        path = parent / (f"{stamp}-{k}" if k else stamp)
        with contextlib.suppress(FileExistsError):  # another run in the same second
            path.mkdir()
            return path
    raise FileExistsError(f"{parent} has ten thousand runs of {stamp}")


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """A block that Ctrl-C does not interrupt. A KeyboardInterrupt is raised at its end instead, once."""
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    pressed: list[int] = []
    try:
        signal.signal(signal.SIGINT, lambda number, _: pressed.append(number))
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if pressed:
        raise KeyboardInterrupt


@contextlib.contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    """A temporary path beside ``path`` that replaces it on success. A full disk leaves the old file."""
    part = path.with_name(f".{path.name}.part")
    try:
        yield part
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def _device() -> str | None:
    """The device that JAX computes on; None if JAX was not used."""
    if "jax" not in sys.modules:
        return None
    import jax.numpy as jnp

    from .config import describe

    (device,) = jnp.zeros(()).devices()
    return describe(device)


def _as_dict(config: Any) -> dict[str, Any]:
    if dataclasses.is_dataclass(config) and not isinstance(config, type):
        return dataclasses.asdict(config)
    return dict(config) if isinstance(config, Mapping) else {}


def _plain(value: Any) -> Any:
    """``value`` in a form that JSON can hold: arrays as lists, non-finite numbers as "nan", "inf" or "-inf"."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else repr(value)
    if value is None or isinstance(value, bool | int | str):
        return value
    if hasattr(value, "__array__") and hasattr(value, "dtype"):  # a quantity has no dtype; it is written as it prints
        return _plain(np.asarray(value).tolist())
    return str(value)


def _short(value: Any) -> str:
    value = _plain(value)
    if isinstance(value, float):
        return f"{value:.6g}"
    text = "[" + ", ".join(map(_short, value)) + "]" if isinstance(value, list) else str(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _relative(path: Path) -> Path:
    with contextlib.suppress(ValueError):
        return path.resolve().relative_to(Path.cwd())
    return path
