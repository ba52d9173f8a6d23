"""The files for clusters in the documents, and the groups that SLURM and Open MPI announce."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
FILES = ROOT / "docs" / "cluster"


def load(name: str) -> list[dict[str, Any]]:
    import yaml  # ray's and orbax's

    return list(yaml.safe_load_all((FILES / name).read_text()))


def test_the_pods_of_kubernetes_find_each_other():
    service, job = load("kubernetes.yaml")
    assert [service["kind"], job["kind"]] == ["Service", "Job"]
    name, spec = job["metadata"]["name"], job["spec"]["template"]["spec"]
    assert service["spec"]["clusterIP"] == "None" and service["spec"]["publishNotReadyAddresses"]
    assert service["spec"]["selector"].items() <= job["spec"]["template"]["metadata"]["labels"].items()
    assert job["spec"]["completionMode"] == "Indexed" and spec["subdomain"] == service["metadata"]["name"]
    (container,) = spec["containers"]
    env = {each["name"]: each.get("value") or each["valueFrom"]["fieldRef"]["fieldPath"] for each in container["env"]}
    port = container["ports"][0]["containerPort"]
    assert env == {
        "FPHYS_COORDINATOR": f"{name}-0.{spec['subdomain']}:{port}",
        "FPHYS_PROCESSES": str(job["spec"]["completions"]),
        "FPHYS_RANK": "metadata.annotations['batch.kubernetes.io/job-completion-index']",
        "FPHYS_HOST": "status.podIP",
    }
    assert job["spec"]["completions"] == job["spec"]["parallelism"]


def test_the_cluster_of_kuberay_has_the_version_and_the_cores_that_are_asked_for():
    (job,) = load("kuberay.yaml")
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    cluster = job["spec"]["rayClusterSpec"]
    wanted = re.search(r'"ray>=([\d.]+),', (ROOT / "pyproject.toml").read_text())
    assert wanted and cluster["rayVersion"] == f"{wanted[1]}.0"
    (workers,) = cluster["workerGroupSpecs"]
    heads, hands = (group["template"]["spec"]["containers"] for group in (cluster["headGroupSpec"], workers))
    assert {each["image"] for each in (*heads, *hands)} == {heads[0]["image"]}
    asked = re.search(r"--actors (\d+)", job["spec"]["entrypoint"])
    assert asked and int(asked[1]) == workers["replicas"] * int(hands[0]["resources"]["limits"]["cpu"])
    assert cluster["headGroupSpec"]["rayStartParams"] == {"num-cpus": "0"}


@pytest.mark.extra("ray")
def test_the_scripts_of_slurm_are_right():
    for name in ("slurm.sh", "slurm-ray.sh"):
        subprocess.run(["bash", "-n", FILES / name], check=True)
    from ray.scripts.scripts import start
    from ray.scripts.symmetric_run import symmetric_run

    text = (FILES / "slurm-ray.sh").read_text()
    options = set(re.findall(r"(--[\w-]+)", text.split("ray symmetric-run")[1]))
    assert len(options) == 3
    assert options <= {option for each in (*symmetric_run.params, *start.params) for option in each.opts}


SLURM = """
srun() { shift; SLURM_PROCID=3 "$@"; }
scontrol() { printf 'first\\nsecond\\n'; }
hostname() { echo 10.0.0.7 10.1.0.7; }
python() { echo "$FPHYS_COORDINATOR $FPHYS_PROCESSES $FPHYS_RANK $FPHYS_HOST $*"; }
export -f hostname python
exec() { "$@"; }
export -f exec
SLURM_NTASKS=32 SLURM_JOB_NODELIST=x
"""


def test_slurm_tells_each_process_who_it_is():
    """The script itself, with what SLURM provides replaced by functions."""
    script = SLURM + (FILES / "slurm.sh").read_text()
    done = subprocess.run(["bash", "-c", script, "slurm.sh", "a.py", "--b"], capture_output=True, text=True, check=True)
    assert done.stdout == "first:7733 32 3 10.0.0.7 a.py --b\n", done.stderr


JOIN = """
import jax
from fphys import distributed
distributed.initialize(patience=60)
print(*distributed.shard(), jax.device_count(), flush=True)
"""
ANNOUNCED = {
    "SLURM": {
        "SLURM_JOB_ID": "{port}",
        "SLURM_STEP_NODELIST": "localhost",
        "SLURM_NTASKS": "2",
        "SLURM_PROCID": "{rank}",
        "SLURM_LOCALID": "{rank}",
    },
    "Open MPI": {
        "OMPI_MCA_orte_hnp_uri": "{job}.0;tcp://127.0.0.1:34911",
        "OMPI_COMM_WORLD_SIZE": "2",
        "OMPI_COMM_WORLD_RANK": "{rank}",
        "OMPI_COMM_WORLD_LOCAL_RANK": "{rank}",
    },
}


@pytest.mark.parametrize("launcher", ANNOUNCED)
def test_a_group_that_a_launcher_announces_is_joined(launcher: str, environment: dict[str, str]):
    """Two processes that know nothing but the launcher's variables; its number of the job gives the port."""
    port = 1000 + os.getpid() % 3000
    programs = []
    for rank in range(2):
        told = {k: v.format(rank=rank, port=port, job=port << 12) for k, v in ANNOUNCED[launcher].items()}
        program = [sys.executable, "-c", JOIN]
        programs.append(subprocess.Popen(program, env=environment | told, stdout=subprocess.PIPE, text=True))
    try:
        assert [program.communicate(timeout=120)[0] for program in programs] == ["0 2 2\n", "1 2 2\n"]
    finally:
        for program in programs:
            program.kill()
            program.wait()
