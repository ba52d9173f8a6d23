#!/bin/bash
#SBATCH --job-name=fphys-ray
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=32
#SBATCH --time=24:00:00
# A Ray cluster of all nodes, and the learner on the first:
# `sbatch slurm-ray.sh fphys train ppo hopper --num-envs 4096 --actors 124`.
set -euo pipefail

HEAD="$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)"
export RAY_ADDRESS="$HEAD:6379"
export RAY_USAGE_STATS_ENABLED=0

srun --kill-on-bad-exit=1 ray symmetric-run \
    --address "$RAY_ADDRESS" --min-nodes "$SLURM_JOB_NUM_NODES" --num-cpus "$SLURM_CPUS_PER_TASK" -- "$@"
