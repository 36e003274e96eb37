#!/bin/sh
# container.sh COMMAND...: starts COMMAND in a container: a mount namespace with a root of its own, in which nothing of Slurm
# is left, nor munge's socket. /container says that one is inside. Needs root; the namespace ends with COMMAND.
# It stands for `apptainer exec IMAGE`, and shares what that shares: user, network, processes, environment, the working directory.
[ "$1" = --inside ] || exec unshare --mount "$0" --inside "$@"
shift
set -e
root=/mnt
mount -t tmpfs container $root
for each in /*; do
  case $each in "$root" | /container) continue ;; esac
  if [ -L "$each" ]; then
    cp -P "$each" $root/
  elif [ -d "$each" ]; then
    mkdir $root"$each"
    mount --rbind "$each" $root"$each"
  fi
done
for each in /usr/bin/srun /usr/bin/sbatch /usr/bin/squeue /usr/bin/scancel /usr/bin/scontrol /usr/bin/sacct; do
  [ ! -e $each ] || mount --bind /dev/null $root$each
done
for each in /etc/slurm "${ACCELSWEEP_SLURM_ROOT:-/tmp/accelsweep-slurm}/run"; do
  [ ! -d "$each" ] || mount -t tmpfs none "$root$each"
done
touch $root/container
unset SLURM_CONF
here=$PWD
cd $root
mkdir host
pivot_root . host
umount --lazy host
exec env --chdir "$here" "$@"
