"""Learning curves of agents: ``python benchmarks/learning.py runs/... --json FILE --plot FILE`` collects training runs.

Each run is a folder that ``fphys train AGENT ENV --seed N`` has written. The file has one entry for each agent and
task: the commands' settings, the versions, the seeds' final returns over 100 episodes, seconds, and curves at fifty
points. The plot shows the mean over the seeds and their range.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

POINTS = 50
OWN = ("seed", "resume")
"""What differs from run to run, and is not part of the settings."""


def collected(folders: list[Path]) -> list[dict[str, Any]]:
    """The runs of the same agent, task and settings, put together."""
    found: dict[str, dict[str, Any]] = {}
    for folder in sorted(folders):
        about = json.loads((folder / "metrics.json").read_text())
        if about["status"] != "ok":
            raise SystemExit(f"{folder}: the run ended {about['status']}")
        agent = about["experiment"].partition("-")[0]
        config = {key: value for key, value in about["config"].items() if key not in OWN}
        name = f"{agent} {config['env']}" + " randomized" * bool(config["randomize"])
        group = found.setdefault(name, {"name": name, "config": config, "versions": about["versions"], "runs": []})
        if config != group["config"]:
            raise SystemExit(f"{folder} has other settings than the runs of {name} before it")
        group["runs"].append(
            {
                "seed": about["seed"],
                **about["metrics"],
                "seconds": about["seconds"],
                "device": about["device"],
                "date": about["started"],
                "curve": curve(folder / "result.npz"),
            }
        )
    return list(found.values())


def curve(path: Path) -> dict[str, list[float]]:
    """Mean return of the episodes that ended around fifty equally spaced numbers of steps."""
    with np.load(path) as held:
        steps, values = held["history/episode_return/step"], held["history/episode_return"]
    edges = np.linspace(0, steps[-1], POINTS + 1)
    at = np.clip(np.searchsorted(edges, steps) - 1, 0, POINTS - 1)
    filled = [i for i in range(POINTS) if (at == i).any()]
    return {
        "steps": [round(float(edges[i + 1])) for i in filled],
        "return": [round(float(values[at == i].mean()), 2) for i in filled],
    }


def draw(groups: list[dict[str, Any]], path: Path) -> None:
    """One panel for each task, one line for each agent."""
    import matplotlib.pyplot as plt

    tasks = list(dict.fromkeys(group["config"]["env"] for group in groups))
    wide = min(len(tasks), 4)
    shape = -(-len(tasks) // wide), wide
    figure, panels = plt.subplots(*shape, figsize=(3.2 * wide, 2.6 * shape[0]), layout="constrained", squeeze=False)
    for axes in panels.flat[len(tasks) :]:
        axes.set_axis_off()
    for task, axes in zip(tasks, panels.flat, strict=False):
        for group in (group for group in groups if group["config"]["env"] == task):
            steps = group["runs"][0]["curve"]["steps"]
            lines = [np.interp(steps, run["curve"]["steps"], run["curve"]["return"]) for run in group["runs"]]
            label = f"{group['name'].partition(' ')[0]}, {len(lines)} seeds"
            axes.plot(np.array(steps) / 1e6, np.mean(lines, 0), label=label)
            axes.fill_between(np.array(steps) / 1e6, np.min(lines, 0), np.max(lines, 0), alpha=0.2)
        axes.set(title=task, xlabel="million steps", ylabel="return")
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False)
    figure.savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--json", type=Path, help="file to write")
    parser.add_argument("--plot", type=Path, help="picture to write")
    given = parser.parse_args()
    groups = collected(given.folders)
    for group in groups:
        returns = np.array([run["mean_return"] for run in group["runs"]])
        seconds = [run["seconds"] for run in group["runs"]]
        each = " ".join(f"{value:.0f}" for value in returns)
        print(f"{group['name']:<40} {returns.mean():8.1f} +- {returns.std():.1f}   [{each}]   {np.mean(seconds):.0f} s")
    if given.json:
        given.json.write_text(json.dumps(groups, indent=1) + "\n")
    if given.plot:
        draw(groups, given.plot)


if __name__ == "__main__":
    main()
