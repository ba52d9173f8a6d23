"""What the project promises of a GPU, and whether the results of ``benchmarks/gpu.sh`` hold it."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

Figures = dict[str, float]
"""Numbers by the cases or tests that they come from."""


class Found:
    """The results of all parts."""

    def __init__(self, lines: Sequence[dict[str, Any]]):
        self.tests = {(x["part"], x["test"]): x["outcome"] for x in lines if "test" in x}  # the last of each
        self.cases = {(x["part"], x["worlds"], x["case"]): x for x in lines if x.get("valid")}

    def of(self, field: str, part: str, worlds: int, *names: str) -> dict[str, Any]:
        """A field of those of the named cases that have it."""
        found = {name: self.cases.get((part, worlds, name), {}).get(field) for name in names}
        return {name: value for name, value in found.items() if value is not None}


@dataclasses.dataclass(frozen=True)
class Bar:
    """Figures that must all be at least a number, or at most."""

    says: str
    wanted: float | None  # None: nothing is promised, the figure is only given
    find: Callable[[Found], Figures]
    most: bool = False
    count: int = 1  # of figures that there must be

    def verdict(self, figures: Figures) -> str:
        """Holding or missed, once what decides it has been measured."""
        if not figures:
            return "not measured"
        if self.wanted is None:
            return "given"
        if not all(x <= self.wanted if self.most else x >= self.wanted for x in figures.values()):
            return "MISSED"
        return "holding" if len(figures) >= self.count else f"{len(figures)} of {self.count} measured"

    def row(self, found: Found, there: bool) -> str:
        """One line of the table, with the figure that is the farthest on the wrong side."""
        figures = self.find(found)
        worst = (max if self.most else min)(figures, key=figures.__getitem__, default="")
        wanted = "" if self.wanted is None else f"{'<=' if self.most else '>='} {short(self.wanted)}"
        figure = short(figures[worst]) if figures else ""
        verdict = self.verdict(figures) if there or figures else "no device"
        return f"{self.says:66} {wanted:>9} {figure:>9}  {verdict}{f' ({worst})' if len(figures) > 1 else ''}"


def short(value: float) -> str:
    """A number with three digits and its decimal prefix."""
    for prefix, size in ((" G", 1e9), (" M", 1e6), (" k", 1e3), ("", 0.1), (" m", 1e-3), (" u", 1e-6)):
        if abs(value) >= size:
            return f"{value / (size if prefix else 1):.3g}{prefix}"
    return f"{value:.3g}"


def rows(lines: Sequence[dict[str, Any]], there: bool) -> list[str]:
    """The table of all bars."""
    found = Found(lines)
    return [f"{'bar':66} {'wanted':>9} {'found':>9}  verdict", *(bar.row(found, there) for bar in BARS)]


# What decides each bar


def speedup(name: str, worlds: int = 1, kind: str = "") -> Callable[[Found], Figures]:
    """The processor's time for full float32 as a multiple of the GPU's, in full float32 or another kind of numbers."""

    def find(found: Found) -> Figures:
        ratios = found.of("ratio", "speed.bridge", worlds, f"{name}.processor", f"{name}.{kind}")
        own = ratios.get(f"{name}.{kind}") if kind else 1.0
        there = f"{name}.processor" in ratios and own is not None
        return {name: ratios[f"{name}.processor"] / own} if there and own else {}

    return find


def gain(kind: str) -> Callable[[Found], Figures]:
    """Steps a second of training, relative to full float32."""
    return lambda found: inverse(found.of("ratio", "speed.mixed", 32, f"mixed.gpt1024.{kind}"))


def inverse(figures: Figures) -> Figures:
    return {name: 1 / value for name, value in figures.items()}


TRAINED = {"mlp": 256, "cnn": 256, "lstm": 256, "gpt": 256, "resnet18": 32, "vit_tiny": 32, "gpt384": 32}
"""Models, and their largest batches."""


def beside(peer: str) -> Callable[[Found], Figures]:
    """Torch's time for a step of training as a multiple of ours."""

    def find(found: Found) -> Figures:
        both = {}
        for model, batch in TRAINED.items():
            names = (f"train.{model}.{peer}", f"train.{model}.fphys")
            times = found.of("median_s", "speed.training", batch, *names)
            both |= {model: times[names[0]] / times[names[1]]} if len(times) == 2 else {}
        return both

    return find


def rate(part: str, worlds: int, name: str) -> Callable[[Found], Figures]:
    return lambda found: found.of("steps_per_s", part, worlds, name)


def more(words: tuple[str, ...], *names: str, worlds: int) -> Callable[[Found], Figures]:
    """How many more calls of CUDA with such a word a long scan makes than a short one; or a call that is no scan."""

    def find(found: Found) -> Figures:
        calls = found.of("calls", "trace", worlds, *names)
        return {
            name: sum(n[-1] - (n[0] if len(n) > 1 else 0) for call, n in seen.items() if any(w in call for w in words))
            for name, seen in calls.items()
            if seen  # nothing was seen at all: nothing can be said
        }

    return find


def idle(found: Found) -> Figures:
    """The share of a scan's time in which no kernel runs: the bridge's, and what is XLA's own."""
    name = "trace.ant.scan"
    busy, seconds = (found.of(field, "trace", 1024, name) for field in ("busy", "seconds"))
    return {name: max(0.0, 1 - busy[name] / seconds[name])} if busy.get(name) and seconds else {}


def failures(part: str, *begins: str) -> Callable[[Found], Figures]:
    """Which tests failed."""
    return lambda found: {
        test: float(outcome == "failed")
        for (own, test), outcome in found.tests.items()
        if own == part and test.startswith(begins) and outcome != "skipped"
    }


def bandwidth(kind: str) -> Callable[[Found], Figures]:
    """Bytes that a step's kernels must move, in the time that it takes, as a share of what a copy moves."""

    def find(found: Found) -> Figures:
        name, copied = f"particles.{kind}.1M.step", found.of("steps_per_s", "speed.bridge", 1, "device.copy.large")
        moved, seconds = (found.of(field, "speed.matter", 1, name) for field in ("moved_bytes", "median_s"))
        return {n: moved[n] / seconds[n] / rate for n in moved for rate in copied.values()}

    return find


def memory(found: Found) -> Figures:
    """All that is taken of the GPU; XLA's share, if the driver does not say."""
    fields = ("used_bytes", "device_peak_bytes")
    both = [found.of(field, "speed.envs", 1024, "env.ant.pure") for field in fields]
    return both[0] or both[1]


OBSERVED = (
    *(f"scene.franka.observe_{name}" for name in ("joints", "end_effector", "all")),
    *(f"env.{task}.{name}" for task in ("ant", "cheetah", "humanoid") for name in ("joints", "links")),
)
TRACED = OBSERVED[:5]
"""Arms and ants."""
WAITING, RECORDING, ALLOCATING = (
    ("Synchronize", "DtoH", "D2H"),
    ("Instantiate", "Capture", "Update"),
    ("MemAlloc", "MemFree"),
)
SCAN = "trace.ant.scan"
COPIES = ("DtoH", "D2H")

BARS = (
    Bar("matrix product of 1000^2 beside the processor, float32", 25, speedup("device.matmul")),
    Bar("matrix product of 5000^2 beside the processor, float32", 166, speedup("device.matmul5000")),
    Bar("the same in XLA's default, ten bits a factor", 166, speedup("device.matmul5000", kind="default")),
    Bar("convolution of 224^2 beside the processor, float32", 100, speedup("device.conv224", 8)),
    Bar("the same in XLA's default, ten bits a factor", 100, speedup("device.conv224", 8, "default")),
    Bar("GPT of 76 M parameters: bfloat16 beside float32", 2, gain("bfloat16")),
    Bar("the same: float16 with a dynamic loss scale", 2, gain("float16")),
    Bar("training beside torch", 1, beside("torch_eager"), count=len(TRAINED)),
    Bar("training beside compiled torch", 1, beside("torch_compile"), count=len(TRAINED)),
    Bar("bridge: share of 100 steps of 1,024 ants without a kernel", 0.1, idle, most=True),
    Bar("100 steps wait for the host no more often than ten", 0, more(WAITING, SCAN, worlds=1024), most=True),
    Bar("100 steps record no more graphs than ten", 0, more(RECORDING, SCAN, worlds=1024), most=True),
    Bar("100 steps allocate no more often than ten", 0, more(ALLOCATING, SCAN, worlds=1024), most=True),
    Bar("a loop is recorded once: failed tests", 0, failures("cuda", "test_a_loop_is_recorded_once"), most=True),
    Bar(
        "4,096 worlds observed, seconds", 100e-6, lambda found: found.of("median_s", "speed.envs", 4096, *OBSERVED),
        most=True, count=len(OBSERVED),
    ),
    Bar(
        "copies to the host in an observation", 0, more(COPIES, *TRACED, worlds=4096), most=True, count=len(TRACED)
    ),
    Bar("1,024 Ant-v5, environment steps/s", 500e3, rate("speed.envs", 1024, "env.ant.pure")),
    Bar("16,384 Ant-v5, environment steps/s", 1e6, rate("speed.envs", 16_384, "env.ant.pure")),
    Bar(
        "GPU memory of 1,024 Ant-v5, bytes", 8e9,
        memory, most=True,
    ),
    Bar(
        "ten runs repeat bit for bit, told to: failed tests", 0, failures("ordered", "test_ten_runs", "test_gradients"),
        most=True, count=9,
    ),
    Bar("131,072 humanoids in float64, steps/s", 2.90e6, rate("speed.float64", 131_072, "humanoid.shipped.fphys")),
    Bar("131,072 ants in float64, steps/s", 0.81e6, rate("speed.float64", 131_072, "ant.shipped.fphys")),
    Bar("MPM of 1 M, particle-steps/s", 300e6, rate("speed.matter", 1, "particles.mpm.1M.step")),
    Bar("SPH of 1 M, particle-steps/s", 200e6, rate("speed.matter", 1, "particles.sph.1M.step")),
    Bar("MPM: share of the bandwidth of a copy", None, bandwidth("mpm")),
    Bar("SPH: share of the bandwidth of a copy", None, bandwidth("sph")),
    Bar(
        "gradients of 1 M particles, in times of a step", 4,
        lambda found: found.of("ratio", "speed.matter", 1, *(f"particles.{k}.1M.step_grad" for k in ("mpm", "sph"))),
        most=True, count=2,
    ),
)  # fmt: skip
