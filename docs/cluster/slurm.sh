#!/bin/bash
#SBATCH --job-name=fphys
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=8
#SBATCH --time=24:00:00
#SBATCH --requeue
# A process for each GPU. `sbatch slurm.sh script.py` starts a script that begins with distributed.initialize().
set -euo pipefail

FPHYS_COORDINATOR="$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1):7733"
export FPHYS_COORDINATOR
export FPHYS_PROCESSES="$SLURM_NTASKS"

# A lost process ends the job, which is put into the queue again (--requeue) and goes on from its newest checkpoint.
srun --kill-on-bad-exit=1 bash -c '
    export FPHYS_RANK="$SLURM_PROCID"
    export FPHYS_HOST="$(hostname --ip-address | cut -d " " -f 1)"
    exec python "$@"
' fphys "$@"
