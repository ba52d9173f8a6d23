"""What a release consists of agrees, and the wheel that `make dist` builds works where nothing else is installed."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import fphys
from fphys.render.canvas import PACKAGES

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


@pytest.mark.extra("yaml")
def test_all_say_the_same():
    import yaml

    citation, conda, site = (yaml.safe_load(read(f)) for f in ("CITATION.cff", "environment.yml", ".readthedocs.yaml"))
    assert citation["version"] == PROJECT["version"] == fphys.__version__
    assert citation["license"] == PROJECT["license"] and citation["title"].startswith(PROJECT["name"])
    docker, extras = read("Dockerfile"), PROJECT["optional-dependencies"]
    pythons = [
        re.search(r"FROM python:([\d.]+)", docker)[1],  # type: ignore[index]
        next(line.partition("=")[2] for line in conda["dependencies"] if str(line).startswith("python=")),
        site["build"]["tools"]["python"],
    ]
    assert all(f"Programming Language :: Python :: {python}" in PROJECT["classifiers"] for python in pythons)
    wanted = sorted(PACKAGES.split())
    assert sorted(site["build"]["apt_packages"]) == wanted and PACKAGES in docker and PACKAGES in read("README.md")
    named = [*re.findall(r"EXTRAS=([\w,]+)", docker), *re.findall(r"\.\[([\w,]+)\]", read("environment.yml"))]
    assert named and {extra for names in named for extra in names.split(",")} <= extras.keys()
    assert {"docs"} <= extras.keys() and site["python"]["install"][0]["extra_requirements"] == ["docs"]
    (build,) = site["build"]["jobs"]["build"]["html"]
    assert build.replace(" $READTHEDOCS_OUTPUT/html", " build/site") in read("Makefile").replace(".venv/bin/", "")


def test_the_image_gets_the_files_that_it_copies():
    docker, admitted = read("Dockerfile"), re.findall(r"^!(\S+)$", read(".dockerignore"), re.MULTILINE)
    copied = [name for line in re.findall(r"^COPY (.+) \S+$", docker, re.MULTILINE) for name in line.split()]
    assert sorted(copied) == sorted(admitted) and all((ROOT / name).exists() for name in copied)
    assert docker.index("USER fphys") < docker.index("ENTRYPOINT")  # not as root


@pytest.mark.extra("yaml")
def test_forms_of_issues_are_complete():
    import yaml

    for path in sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml")):
        form = yaml.safe_load(path.read_text())
        if path.name == "config.yml":
            continue
        assert form["name"] and form["description"] and form["body"]
        names = [field["id"] for field in form["body"]]
        assert len(set(names)) == len(names) and all(field["attributes"]["label"] for field in form["body"])


@pytest.mark.slow
@pytest.mark.alone
def test_the_wheel_runs_in_a_bare_environment(tmp_path):
    """It needs a package index. `make dist` builds the wheel from the source distribution."""
    listing = ["git", "ls-files", "-co", "--exclude-standard", "-z"]
    files = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    for name in filter(None, files):
        (tmp_path / "src" / name).parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_file():
            shutil.copy(ROOT / name, tmp_path / "src" / name)
    outside = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "XLA_FLAGS")}

    def run(*command: str | Path, cwd: Path = tmp_path) -> str:
        done = subprocess.run(list(map(str, command)), cwd=cwd, env=outside, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        return done.stdout

    assert run("make", "dist", f"PYTHON={sys.executable}", cwd=tmp_path / "src").count("PASSED") == 2
    (wheel,) = (tmp_path / "src/dist").glob("*.whl")
    run(sys.executable, "-m", "venv", "bare")
    run("bare/bin/python", "-m", "pip", "install", "--quiet", wheel)
    assert f"fphys {fphys.__version__}" in run("bare/bin/fphys", "doctor")
    assert "swing-up: ok" in run("bare/bin/fphys", "run", "swing-up")
    (folder,) = (tmp_path / "runs/swing-up").iterdir()
    assert (folder / "scene.xml").is_file() and (folder / "result.npz").is_file()
