"""The plots of the benchmark page, from the files in benchmarks/results: ``python docs/speed.py``, in seconds."""

import json
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
RESULTS = HERE.parent / "benchmarks/results"
FILES = {
    "robots": ("peers-euler-cpu-2026-11-22-second", "peers-euler-8192-cpu-2026-11-22"),
    "mpm": ("mpm-cpu-2026-11-23",),
    "sph": ("sph-cpu-2026-11-23",),
    "train": ("train-cpu-2026-11-26", "train-resnet18-cpu-2026-11-27", "train-vit-tiny-cpu-2026-11-27"),
}
ENGINES = {
    "fphys": ("fphys", "#1769aa"),
    "mujoco_2_threads": ("MuJoCo (C, both cores)", "#ec6a29"),
    "genesis": ("Genesis", "#3a9d6e"),
    "newton": ("Newton", "#8a5fb0"),
    "mujoco_warp": ("MuJoCo Warp", "#c23b4b"),
    "gymnasium": ("Gymnasium, one by one", "#6b7280"),
}
NETS = {
    ("mlp", 64): "MLP",
    ("cnn", 64): "CNN",
    ("lstm", 64): "LSTM",
    ("gpt", 64): "GPT\nblock",
    ("gpt384", 32): "GPT\n384 wide",
    ("resnet18", 32): "ResNet\n18",
    ("vit_tiny", 32): "ViT\ntiny",
}


def results(*names: str) -> dict[tuple[str, int], float]:
    """Units of work a second of each valid case and number of worlds; what a later file measured again counts."""
    rows = [row for name in names for row in json.loads((RESULTS / f"{name}.json").read_text())["results"]]
    return {(row["case"], row["worlds"]): row["steps_per_s"] for row in rows if row["valid"]}


def figure() -> Any:
    from matplotlib.figure import Figure

    whole = Figure(figsize=(10.0, 7.4), layout="constrained")
    (ant, humanoid), (matter, nets) = whole.subplots(2, 2)
    rates = results(*FILES["robots"])
    for axes, robot in ((ant, "ant"), (humanoid, "humanoid")):
        for engine, (label, color) in ENGINES.items():
            found = sorted((n, rate) for (case, n), rate in rates.items() if case == f"{robot}.euler.{engine}")
            axes.loglog(*zip(*found), "o-", color=color, label=label, linewidth=2.4 if engine == "fphys" else 1.2)
        axes.set(xlabel="worlds [-]", ylabel="steps [1/s]", title=f"Gymnasium's {robot}, random actions")
        axes.set_xticks([64, 1024, 8192], ["64", "1,024", "8,192"], minor=False)
        axes.minorticks_off()
    ant.legend(frameon=False, fontsize=8, loc="center", bbox_to_anchor=(0.68, 0.62))
    sizes = {"4k": 4096, "32k": 32_768, "262k": 262_144, "1M": 1_048_576}
    for solver, color in (("mpm", "#1769aa"), ("sph", "#3a9d6e")):
        rates = results(*FILES[solver])
        for kind, style, label in (("step", "o-", "fphys"), ("step_genesis", "s--", "Genesis")):
            heights = [rates[f"particles.{solver}.{size}.{kind}", 1] for size in sizes]
            matter.loglog(list(sizes.values()), heights, style, color=color, label=f"{solver.upper()}, {label}")
    matter.set(xlabel="particles [-]", ylabel="particles times steps [1/s]", title="matter in one world")
    matter.legend(frameon=False, fontsize=8, ncols=2, loc="center", bbox_to_anchor=(0.6, 0.82))
    rates = results(*FILES["train"])
    shares = [rates[f"train.{net}.fphys", batch] / rates[f"train.{net}.torch_eager", batch] for net, batch in NETS]
    nets.bar(list(NETS.values()), shares, color="#1769aa", width=0.5)
    nets.axhline(1.0, color="#6b7280", linewidth=0.8, linestyle=":")
    nets.set(ylim=(0, 1.3), ylabel="examples a second / torch's [-]", title="training, batches of 64 or 32")
    for axes in (ant, humanoid, matter, nets):
        axes.title.set_fontsize(10)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(True, alpha=0.2, linewidth=0.6)
    return whole


if __name__ == "__main__":
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    drawn = figure()
    FigureCanvasAgg(drawn)
    drawn.savefig(HERE / "speed.png", dpi=110, facecolor="white")
