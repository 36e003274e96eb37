#!/bin/sh
# podman.sh COMMAND...: starts COMMAND in a container of podman's. Its root is a copy-on-write view of the host's, so that no image
# is needed. Nothing of Slurm is left in it, nor munge's socket. /container says that one is inside. Needs root and runc.
# The options between `run` and the mounts are those that docs/containers.md gives for podman.
hidden="--tmpfs ${ACCELSWEEP_SLURM_ROOT:-/tmp/accelsweep-slurm}/run:notmpcopyup"
[ ! -d /etc/slurm ] || hidden="$hidden --tmpfs /etc/slurm:notmpcopyup"
for each in srun sbatch squeue scancel scontrol sacct; do
  [ ! -e /usr/bin/$each ] || hidden="$hidden -v /dev/null:/usr/bin/$each"
done
# shellcheck disable=SC2086 # options are words
exec podman --runtime runc run --rm --env-host --unsetenv SLURM_CONF --network=host --pid=host \
  --ulimit=nofile=1024:1024 --ulimit=nproc=1024:1024 -v /tmp:/tmp -v "$(readlink -f "$0"):/container:ro" $hidden -w "$PWD" --rootfs /:O "$@"
