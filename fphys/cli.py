"""The command ``fphys``: run, simulate, view, doctor, bench."""

import atexit
import dataclasses
import gc
import io
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

from .errors import FphysError, UnsupportedError
from .experiments import EXPERIMENTS

DESCRIPTION = (
    "Differentiable physics on JAX. `fphys COMMAND --help` explains a command; --debug, with any of them, shows "
    "where an error comes from."
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; 0 if it went well, 1 if a run misses its goal, 2 for an error that fphys explains, 130 when
    interrupted. Without ``argv``, the command of this process, which ends with it."""
    if argv is not None:
        return _main(list(argv))
    atexit.register(gc.freeze)  # or the interpreter's end takes a second to collect what ends with the process
    try:
        status = _main(sys.argv[1:])
    except KeyboardInterrupt:  # while it said that it was interrupted
        status = 130
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C changes nothing any more
    return status


def _main(arguments: list[str]) -> int:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a path may hold any byte, and a terminal know ASCII alone
            stream.reconfigure(errors="backslashreplace")
    if arguments == ["--version"]:
        from . import __version__

        print(f"fphys {__version__}")
        return 0
    debug = "--debug" in arguments
    try:
        return _dispatch([argument for argument in arguments if argument != "--debug"])
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except (FphysError, OSError, ValueError) as error:
        if debug:
            raise
        print(f"error: {error}", file=sys.stderr)
        if isinstance(error, UnsupportedError):
            print("On the command line: --disable, followed by these names.", file=sys.stderr)
        return 2


def run(experiment: str, /) -> int:
    """Run an experiment: its folder gets metrics, a plot, a video and the result."""
    raise NotImplementedError(experiment)  # never called: _dispatch gives every experiment its own options


def simulate(
    model: str,
    /,
    steps: int = 1000,
    out: Path | None = None,
    worlds: int = 1,
    ctrl: Literal["zero", "random", "keyframe"] = "zero",
    disable: tuple[Literal["contact", "limit", "equality", "frictionloss"], ...] = (),
    keyframe: str | None = None,
    camera: str | None = None,
    seed: int = 0,
    device: str | None = None,
) -> int:
    """Simulate a model, and film its first world.

    Args:
        model: An MJCF or URDF file, or the name of a model that comes with fphys, such as double-pendulum.
        steps: Steps to take.
        out: The video to write, an mp4; its folder is made where it is missing.
        worlds: Copies to simulate side by side.
        ctrl: What the actuators are told: nothing, random values in their ranges, or the keyframe's control.
        disable: Constraints to leave out.
        keyframe: Name of the keyframe to start from.
        camera: Name of one of the model's cameras; otherwise one that shows the whole motion.
        seed: Of the random control.
        device: Where to compute: cpu, cuda or cuda:N; otherwise FPHYS_DEVICE or fphys.toml decides.
    """
    from . import simulate
    from .config import use_device

    use_device(device)
    summary = simulate.simulate(model, steps, out, worlds, ctrl, disable, keyframe, camera, seed)
    return 130 if summary.interrupted else 0


def view(model: str, result: Path | None = None, /, port: int = 8080, host: str = "127.0.0.1", world: int = 0) -> int:
    """Show a model, or a run of it, in the browser: play, pause, scrub. Ends with Ctrl-C.

    Args:
        model: An MJCF or URDF file, the name of a model that comes with fphys, or a result that holds particles alone.
        result: A run's result.npz, with qpos, particles x, or both; otherwise the model falls for three seconds.
        port: Of the page; the next free one is taken where it is in use.
        host: 0.0.0.0 lets other machines see the page.
        world: Which world of the run.
    """
    from . import view as room

    viewer = room.view(model, result, port, host, world)
    print(f"{viewer.address}   (Ctrl-C ends it)", flush=True)
    try:
        viewer.play()
    finally:
        viewer.stop()
    return 0


def doctor() -> int:
    """Say what is here, what works, what is missing and how to get it."""
    from . import doctor

    return doctor.main()


def bench(
    filter: str | None = None,
    /,
    json: Path | None = None,
    list: bool = False,
    quick: bool = False,
    worlds: tuple[int, ...] = (),
    profile: bool = False,
    peers: bool = False,
    device: str | None = None,
) -> int:
    """Run the benchmarks, or those that FILTER chooses; every result is validated before it is timed.

    Args:
        filter: Part of a case's name, a glob, or a tag.
        json: File that gets the results.
        list: Name the cases and run none.
        quick: At most 64 worlds and few samples: shows that the cases run, not how fast.
        worlds: Numbers of worlds, instead of each case's own.
        profile: Write a trace of each case under runs/profile, for TensorBoard or Perfetto.
        peers: Instead, fphys beside MuJoCo, MuJoCo Warp, MJX, Newton, Genesis, Gymnasium and torch, as installed.
        device: Where to compute: cpu, cuda or cuda:N; otherwise FPHYS_DEVICE or fphys.toml decides.
    """
    from . import bench
    from .config import use_device

    use_device(device)
    return bench.main(
        filter, json_path=json, list_only=list, quick=quick, worlds=worlds or None, profile=profile, peers=peers
    )


def _dispatch(arguments: list[str]) -> int:
    import tyro

    if arguments[:1] == ["run"]:
        if arguments[1:2] and arguments[1] in EXPERIMENTS:
            return _run(arguments[1], arguments[2:])
        choices = {name: _described(name, text) for name, text in EXPERIMENTS.items()}
        return tyro.extras.subcommand_cli_from_dict(
            choices, prog="fphys run", description=run.__doc__, args=arguments[1:] or ["--help"]
        )
    commands = {"run": run, "simulate": simulate, "view": view, "doctor": doctor, "bench": bench}
    return tyro.extras.subcommand_cli_from_dict(
        commands, prog="fphys", description=DESCRIPTION, args=arguments or ["--help"]
    )


def _described(name: str, text: str) -> Callable[[], int]:
    def experiment() -> int:
        return _run(name, [])

    experiment.__doc__ = text[0].upper() + text[1:] + "."
    return experiment


@dataclasses.dataclass(frozen=True)
class Common:
    """What every experiment takes."""

    device: str | None = None
    """Where to compute: cpu, cuda or cuda:N; otherwise FPHYS_DEVICE or fphys.toml decides."""
    out: Path = Path("runs")
    """Folder that gets the run's own folder, NAME/DATE-TIME."""


def _run(name: str, arguments: list[str]) -> int:
    """Run an experiment: its ``Config`` gives the options, its ``main`` the metrics."""
    import tyro

    from . import experiments
    from .bridge import interruptible
    from .config import use_device
    from .runs import Run
    from .train import keep_memory

    module = experiments.load(name)
    flat = tyro.conf.OmitArgPrefixes
    options = dataclasses.make_dataclass("Options", [("config", flat[module.Config]), ("common", flat[Common])])
    chosen: Any = tyro.cli(options, prog=f"fphys run {name}", description=module.__doc__, args=arguments)
    use_device(chosen.common.device)
    keep_memory()
    with Run(name, root=chosen.common.out, config=chosen.config) as record:
        with interruptible():
            metrics = module.main(chosen.config, record)
        record.metrics(**metrics)
    if metrics.get("success") is False:
        print(f"{name} did not reach its goal: metrics.json says by how much", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
