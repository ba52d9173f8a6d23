"""The command ``fphys``: run, train, play, envs, simulate, view, check, doctor, bench."""

import atexit
import contextlib
import dataclasses
import gc
import io
import os
import re
import select
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

from .errors import FphysError, UnsupportedError
from .experiments import EXPERIMENTS

DESCRIPTION = (
    "Differentiable physics on JAX. `fphys COMMAND --help` explains a command. With --debug, an error shows its "
    "traceback."
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command. Return 0 on success, 1 if a run misses its goal, 2 for an error that fphys explains, 130 when
    interrupted, and 141 if nobody reads the output any more. Without ``argv``, run the command line of this process,
    which ends afterwards."""
    if argv is not None:
        return _main(list(argv))
    atexit.register(gc.freeze)  # otherwise the interpreter takes a second to collect garbage at exit
    try:
        status = _main(sys.argv[1:])
    except KeyboardInterrupt:  # a second Ctrl-C while the first is reported
        status = 130
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # further Ctrl-C change nothing
    if "FPHYS_PULSE" in os.environ and status not in (0, 130):
        from .distributed.processes import leave

        leave(status)
    return status


def _main(arguments: list[str]) -> int:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a path may hold any byte, but a terminal may know only ASCII
            stream.reconfigure(errors="backslashreplace")
    if arguments == ["--version"]:
        from . import __version__

        print(f"fphys {__version__}")
        return 0
    debug = "--debug" in arguments
    try:
        status = _dispatch([argument for argument in arguments if argument != "--debug"])
        sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except (FphysError, OSError, ValueError) as error:
        if isinstance(error, BrokenPipeError) and _unread():
            return 141
        if debug:
            raise
        print(f"error: {error}", file=sys.stderr)
        if isinstance(error, UnsupportedError):
            print("On the command line: --disable, followed by these names.", file=sys.stderr)
        return 2


def _unread() -> bool:
    """Whether the reader of the output, such as `head`, has gone. What is left goes nowhere then."""
    output = select.poll()
    output.register(sys.stdout.fileno(), 0)
    if gone := any(event & select.POLLERR for _, event in output.poll(0)):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return gone


def run(experiment: str, /) -> int:
    """Run an experiment. Its folder gets metrics, a plot, a video and the result."""
    raise NotImplementedError(experiment)  # never called: _dispatch gives every experiment its own options


def train(agent: str, env: str, /) -> int:
    """Train an agent in an environment: `fphys train ppo hopper`. Its folder gets the policy, curves and a video."""
    raise NotImplementedError(agent, env)  # never called: _dispatch gives every agent its own options


def play(
    policy: str,
    /,
    steps: int | None = None,
    seed: int = 0,
    out: Path = Path("runs"),
    video: bool = True,
    view: bool = False,
    live: bool = False,
) -> int:
    """Film a trained policy and measure its return, or watch it live.

    Args:
        policy: The folder of a training run, a file policy.safetensors, or the name of a policy that comes with fphys.
        steps: Actions to film. By default one episode.
        seed: Seed of the start.
        out: Folder for the run's own folder, play/DATE-TIME.
        video: Write a video.
        view: Show the motion in the browser, too, until Ctrl-C.
        live: Only let it act in the browser, episode after episode, until Ctrl-C.
    """
    from .rl import program
    from .runs import Run

    _find_own_modules()
    if live:
        from .live import Agent, Live

        trained, env, _ = program.prepared(policy)
        _watch(Live(Agent(env, trained, seed)))
        return 0
    with Run("play", root=out, config={"policy": policy, "steps": steps, "seed": seed}) as record:
        record.metrics(**program.play(policy, record, steps, seed, video))
    if view:
        from .view import view as show

        _watch(show(str(record.path)))
    return 0


def _find_own_modules() -> None:
    """Let "module:Class" name a module in the current folder, as it can in a script there."""
    if "" not in sys.path:
        sys.path.insert(0, "")


def envs() -> int:
    """List the environments."""
    from .envs import GYMNASIUM, SUITE, TASKS

    for name, kind in [*sorted((TASKS | GYMNASIUM).items()), *((name, kind) for name, (kind, _) in SUITE.items())]:
        print(f"{name:<35}{(kind.__doc__ or '').splitlines()[0]}")
    return 0


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
    """Simulate a model and record a video of its first world.

    Args:
        model: An MJCF, URDF or USD file, or the name of a model that comes with fphys, such as double-pendulum.
        steps: Number of steps.
        out: The video to write, an mp4. Its folder is created if it is missing.
        worlds: Number of copies to simulate in parallel.
        ctrl: Input of the actuators: zero, random values within their ranges, or the keyframe's control.
        disable: Constraints to ignore.
        keyframe: Name or number of the keyframe to start from.
        camera: Name of one of the model's cameras. By default a camera shows the whole motion.
        seed: Seed of the random control.
        device: Device to compute on: cpu, cuda or cuda:N. By default FPHYS_DEVICE or fphys.toml decides.
    """
    from . import simulate
    from .config import use_device

    use_device(device)
    summary = simulate.simulate(model, steps, out, worlds, ctrl, disable, keyframe, camera, seed)
    return 130 if summary.interrupted else 0


def view(
    model: str,
    result: Path | None = None,
    /,
    live: bool = False,
    worlds: int = 1,
    port: int = 8080,
    host: str = "127.0.0.1",
    world: int = 0,
) -> int:
    """Show a run or a model in the browser: play, pause, scrub. Press Ctrl-C to stop.

    Args:
        model: A run's folder (or that of several, for the newest), an MJCF, URDF or USD file, the name of a model that
            comes with fphys, or a result that holds only particles.
        result: A run's result.npz, with qpos, particles x, or both. By default a model falls for three seconds.
        live: Simulate now: push bodies, move sliders of the actuators, reset, slow down. A model only.
        worlds: Copies of the model to simulate side by side, with --live.
        port: Port of the page. If it is in use, the next free one is taken.
        host: 0.0.0.0 lets other machines see the page.
        world: Which world of the run to show.
    """
    from . import view as room

    if live:
        from .live import live as serve
        from .model import load

        if result is not None or worlds < 1:
            raise ValueError("--live takes a model, and no result; --worlds at least 1")
        _watch(serve(load(model), worlds, port, host))
        return 0
    _watch(room.view(model, result, port, host, world))
    return 0


def _watch(viewer: Any) -> None:
    print(f"{viewer.address}   (Ctrl-C ends it)", flush=True)
    try:
        viewer.play()
    finally:
        viewer.stop()


def check(
    source: str,
    /,
    states: int = 20,
    quick: bool = False,
    json: Path | None = None,
    limit: float = 120.0,
    device: str | None = None,
) -> int:
    """Check models against MuJoCo: do they load, does a step agree, is its gradient right, how fast is it?

    Everything is computed in float64. The exit status is 0 if every model that MuJoCo compiles loads and is right.

    Args:
        source: An MJCF, URDF or USD file, the name of a model that comes with fphys, or a folder: all models below it.
        states: States of each model in which a step is compared, along MuJoCo's own trajectories.
        quick: Do not time steps.
        json: File to write the results to.
        limit: Seconds for each model. One that takes longer, or crashes, is reported, and the rest go on.
        device: Device to compute on: cpu, cuda or cuda:N. By default FPHYS_DEVICE or fphys.toml decides.
    """
    from . import checking

    return checking.main(source, states, quick, json, limit, device)


def doctor() -> int:
    """Show what is installed, what works, what is missing and how to get it."""
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
    """Run the benchmarks, or those that FILTER selects. Every result is validated before it is timed.

    Args:
        filter: Part of a case's name, a glob, or a tag.
        json: File to write the results to.
        list: List the cases without running them.
        quick: At most 64 worlds and few samples. This shows that the cases run, not how fast they are.
        worlds: Numbers of worlds, instead of each case's own.
        profile: Write a trace of each case under runs/profile, for TensorBoard or Perfetto.
        peers: Compare with MuJoCo, MuJoCo Warp, MJX, Newton, Genesis, Gymnasium, EnvPool, Brax and torch if installed.
        device: Device to compute on: cpu, cuda or cuda:N. By default FPHYS_DEVICE or fphys.toml decides.
    """
    from . import bench
    from .config import use_device

    use_device(device)
    return bench.main(
        filter, json_path=json, list_only=list, quick=quick, worlds=worlds or None, profile=profile, peers=peers
    )


def _dispatch(arguments: list[str]) -> int:
    import tyro

    if arguments[:1] == ["train"]:
        return _train(arguments[1:])
    if arguments[:1] == ["run"]:
        if arguments[1:2] and not arguments[1].startswith("-"):
            return _run(arguments[1], arguments[2:])
        choices = {name: _described(name, text) for name, text in EXPERIMENTS.items()}
        return tyro.extras.subcommand_cli_from_dict(
            choices, prog="fphys run", description=run.__doc__, args=arguments[1:] or ["--help"]
        )
    commands = {
        "run": run,
        "train": train,
        "play": play,
        "envs": envs,
        "simulate": simulate,
        "view": view,
        "check": check,
        "doctor": doctor,
        "bench": bench,
    }
    return tyro.extras.subcommand_cli_from_dict(
        commands, prog="fphys", description=DESCRIPTION, args=arguments or ["--help"]
    )


@dataclasses.dataclass(frozen=True)
class Training:
    """Options of every training."""

    num_envs: int = 32
    """Worlds side by side."""
    seed: int = 0
    """Of the weights, the starts and the actions."""
    randomize: bool = False
    """Whether every episode draws other masses, friction and whatever else the task varies."""
    resume: Path | None = None
    """Folder of checkpoints to go on from."""


@dataclasses.dataclass(frozen=True)
class Several:
    """How a training is spread."""

    processes: int = 1
    """Processes on this machine that share the worlds."""
    restarts: int = 0
    """How often they start again, from the newest checkpoint, after one of them has died or hung."""
    actors: int = 0
    """Ray actors that hold the worlds, of this machine or of the cluster at RAY_ADDRESS; for ppo and sac."""
    asynchronous: bool = False
    """Whether the learner goes on with what the first actor saw, instead of waiting for all; for ppo."""


def _train(arguments: list[str]) -> int:
    """``fphys train AGENT ENV --options``; the agent's ``Config`` defines the options."""
    import tyro

    from . import distributed
    from .bridge import interruptible
    from .config import use_device
    from .distributed.processes import RANK
    from .rl import program
    from .runs import Run
    from .train import keep_memory

    if len(arguments) < 2 or arguments[0] not in program.AGENTS or arguments[1].startswith("-"):
        agents = ", ".join(program.AGENTS)
        wanted = bool(arguments) and arguments != ["--help"]
        usage = f"fphys train AGENT ENV [--options]   AGENT: {agents}; ENV: see fphys envs, or your own module:Class"
        print(f"usage: {usage}", file=sys.stderr)
        return 2 if wanted else 0
    agent, name, *rest = arguments
    flat = tyro.conf.OmitArgPrefixes
    config = program.AGENTS[agent].Config
    options = dataclasses.make_dataclass(
        "Options",
        [("config", flat[config]), ("training", flat[Training]), ("several", flat[Several]), ("common", flat[Common])],
    )
    what = f"fphys train {agent} {name}"
    chosen: Any = tyro.cli(options, prog=what, description=_plain(program.AGENTS[agent].__doc__), args=rest)
    name, training = program.full_name(name), vars(chosen.training)
    _find_own_modules()
    several = chosen.several
    if several.processes < 1 or several.restarts < 0:
        raise ValueError(
            f"--processes {several.processes} --restarts {several.restarts}: at least 1 process and 0 restarts"
        )
    training |= {"actors": several.actors, "asynchronous": several.asynchronous}
    program.expect_actors(agent, several.actors, several.processes, several.asynchronous)
    folder = os.environ.get(CHECKPOINTS)
    if folder is None and (several.processes, several.restarts) != (1, 0):
        program.expect_spread(agent, training["num_envs"], several.processes)
        root = chosen.common.out / f"{agent}-{program.short_name(name)}"
        return _spread(arguments, root, several, chosen.common.device)
    if RANK in os.environ:
        distributed.initialize()
    else:
        use_device(chosen.common.device)
    keep_memory()
    record = {**dataclasses.asdict(chosen.config), "env": name, **training}
    num_envs, randomize, resume = training.pop("num_envs"), training["randomize"], training["resume"]
    env = program.accepted(agent, name, chosen.config, num_envs, randomize, resume)
    program.expect_shares(env, chosen.config, several.actors, several.asynchronous)
    training["folder"] = Path(folder) if folder else None
    with contextlib.ExitStack() as stack:
        root, first = chosen.common.out, os.environ.get(RANK, "0") == "0"
        if not first:  # rank 0 writes the run's folder
            root = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        run = stack.enter_context(Run(f"{agent}-{program.short_name(name)}", root, record, quiet=not first))
        with interruptible():
            metrics = program.train(agent, name, env, chosen.config, run, **training)
        run.metrics(**metrics)
    return 0


CHECKPOINTS = "FPHYS_CHECKPOINTS"
"""Environment variable: the folder of checkpoints that the processes of one training share."""


def _spread(arguments: list[str], root: Path, several: Several, device: str | None) -> int:
    """This command again, in several processes."""
    from .distributed import launch

    if device == "cpu":
        os.environ["JAX_PLATFORMS"] = device
    os.environ[CHECKPOINTS] = str((root / time.strftime("checkpoints-%Y%m%d-%H%M%S")).absolute())
    launch([sys.executable, "-m", "fphys.cli", "train", *arguments], several.processes, restarts=several.restarts)
    return 0


def _described(name: str, text: str) -> Callable[[], int]:
    def experiment() -> int:
        return _run(name, [])

    experiment.__doc__ = text[0].upper() + text[1:] + "."
    return experiment


@dataclasses.dataclass(frozen=True)
class Common:
    """Options of every experiment."""

    device: str | None = None
    """Device to compute on: cpu, cuda or cuda:N. By default FPHYS_DEVICE or fphys.toml decides."""
    out: Path = Path("runs")
    """Folder for the run's own folder, NAME/DATE-TIME."""


def _plain(text: str | None) -> str:
    """Documentation as a terminal shows it: names without their markup."""
    return re.sub(r"(?::\w+:)?(`+)~?([^`]+)\1", r"\2", text or "")


def _run(name: str, arguments: list[str]) -> int:
    """Run an experiment. Its ``Config`` defines the options; its ``main`` returns the metrics."""
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
        print(f"{name} did not reach its goal: see metrics.json", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
