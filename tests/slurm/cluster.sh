#!/usr/bin/env bash
# cluster.sh up [cgroups|energy] | down | status | pids | controller-away SECONDS | node-killed NODE SECONDS | sick NODE |
#   well NODE | can WHAT
# A real Slurm on this machine, on loopback, without systemd or containers. If told so, its jobs are held by cgroups, or
# the energy of its nodes is measured.
#
# Virtual nodes gpu1, gpu2 (4 simulated h100 each, which run no CUDA), gpu3 (4 a100) and cpu1. Partitions: `cpu` and
# `gpu`; on gpu1 also `spare` (its jobs are requeued when `urgent` needs their node) and `scrap` (its jobs are cancelled then).
# `sick` makes a node fail to launch jobs. `can` says why this machine has no cgroups, accounting or energy, nothing if it
# has.
# Accounts with limits where Debian's packages for them are (accounting.sh), otherwise like a site without sacct.
# Needs root. All state lies under $ACCELSWEEP_SLURM_ROOT; outside it there are only one symlink (/etc/slurm/slurm.conf),
# one marked line in /etc/hosts, and the jobs' cgroups, all removed by `down`. It ends only what it started.
set -euo pipefail

ROOT=${ACCELSWEEP_SLURM_ROOT:-${TMPDIR:-/tmp}/accelsweep-slurm}
PORT=${ACCELSWEEP_SLURM_PORT:-17817} # slurmctld; +1 slurmdbd, +2 MariaDB, slurmd from +100 on
DAEMONS=(munged slurmctld slurmd meter.sh)
NODES=(gpu1 gpu2 gpu3 cpu1)
GPUS=4
CPUS=8     # declared, not real: Slurm counts them, the machine shares its own
MEM=64000  # MB, declared
CONF=/etc/slurm/slurm.conf
MARK="# accelsweep test cluster"
HOST=$(hostname -s)
LOGS=$ROOT/log
export SLURM_CONF=$ROOT/etc/slurm.conf PATH=$PATH:/usr/sbin

# shellcheck source=../daemons.sh
. "$(dirname "$0")/../daemons.sh"

model() { # NODE
  if [ "$1" = gpu3 ]; then echo a100; else echo h100; fi
}

# shellcheck source=accounting.sh
. "$(dirname "$0")/accounting.sh"
# shellcheck source=cgroups.sh
. "$(dirname "$0")/cgroups.sh"
# shellcheck source=energy.sh
. "$(dirname "$0")/energy.sh"

configure() { # MODE
  mkdir -p "$ROOT"/{etc,run,log,state,spool,dev,munge}
  chmod 755 "$ROOT" "$ROOT/run" "$ROOT/munge"
  local i node port=$((PORT + 100))
  [ -s "$ROOT/munge/key" ] || (umask 077 && dd if=/dev/urandom of="$ROOT/munge/key" bs=128 count=1 status=none)
  # Slurm sets CUDA_VISIBLE_DEVICES for character devices only: these are clones of /dev/null
  for ((i = 0; i < GPUS; i++)); do [ -c "$ROOT/dev/nvidia$i" ] || mknod "$ROOT/dev/nvidia$i" c 1 3; done
  {
    cat <<C
$MARK
ClusterName=accelsweep
SlurmctldHost=$HOST(127.0.0.1)
SlurmctldPort=$PORT
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$ROOT/run/munge.sock
# without these two every daemon listens on all interfaces
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
SrunPortRange=61001-61999
StateSaveLocation=$ROOT/state
SlurmdSpoolDir=$ROOT/spool/%n
SlurmctldPidFile=$ROOT/run/slurmctld.pid
SlurmdPidFile=$ROOT/run/slurmd.%n.pid
SlurmctldLogFile=$ROOT/log/slurmctld.log
SlurmdLogFile=$ROOT/log/slurmd.%n.log
MailProg=/bin/true
TaskProlog=$ROOT/etc/task-prolog
Prolog=$ROOT/etc/prolog
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_interval=2,bf_interval=2
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
GresTypes=gpu
MinJobAge=300
KillWait=5
SlurmdTimeout=30
SlurmctldTimeout=30
JobAcctGatherType=jobacct_gather/linux
C
    if [ "$1" = energy ]; then energy_options; else echo "JobAcctGatherFrequency=task=1"; fi
    if [ "$1" = cgroups ]; then
      cgroup_options
    else
      # by descent, so that the memory of runs counts, which have process groups of their own
      echo "ProctrackType=proctrack/linuxproc"
      echo "TaskPlugin=task/none"
      echo "JobAcctGatherParams=OverMemoryKill" # memory limits without cgroups: the resident size is polled every second
    fi
    if has_accounting; then accounting_options; fi
    for node in "${NODES[@]}"; do
      mkdir -p "$ROOT/spool/$node"
      echo "NodeName=$node NodeHostname=$HOST NodeAddr=127.0.0.1 Port=$((port++)) CPUs=$CPUS RealMemory=$MEM" \
        "$([[ $node = gpu* ]] && echo "Gres=gpu:$(model "$node"):$GPUS")"
    done
    echo "PartitionName=cpu Nodes=cpu1 Default=YES MaxTime=INFINITE State=UP PreemptMode=OFF"
    echo "PartitionName=gpu Nodes=gpu[1-3] MaxTime=INFINITE State=UP PriorityTier=5 PreemptMode=OFF"
    echo "PartitionName=spare Nodes=gpu1 MaxTime=INFINITE State=UP PriorityTier=1 PreemptMode=REQUEUE GraceTime=0"
    echo "PartitionName=scrap Nodes=gpu1 MaxTime=INFINITE State=UP PriorityTier=1 PreemptMode=CANCEL GraceTime=0"
    echo "PartitionName=urgent Nodes=gpu1 MaxTime=INFINITE State=UP PriorityTier=10 PreemptMode=OFF"
  } >"$ROOT/etc/slurm.conf"
  # every node has a node-local folder of its own for locks, as real nodes do
  # and a simulated device, where a test has put one into $ROOT/devices
  cat >"$ROOT/etc/task-prolog" <<C
#!/bin/sh
echo "export ACCELSWEEP_LEASES=$ROOT/leases/\$SLURMD_NODENAME"
[ ! -e "$ROOT/devices/\$SLURMD_NODENAME" ] || echo "export ACCELSWEEP_SIMULATED=$ROOT/devices/\$SLURMD_NODENAME"
C
  chmod 755 "$ROOT/etc/task-prolog"
  printf '#!/bin/sh\n[ ! -e "%s/sick-$SLURMD_NODENAME" ]\n' "$ROOT" >"$ROOT/etc/prolog"
  chmod 755 "$ROOT/etc/prolog"
  # looked up beside the slurm.conf in use
  if [ "$1" = cgroups ]; then configure_cgroups; fi
  if has_accounting; then configure_accounting; fi
  for node in gpu1 gpu2 gpu3; do
    echo "NodeName=$node Name=gpu Type=$(model $node) File=$ROOT/dev/nvidia[0-$((GPUS - 1))]"
  done >"$ROOT/etc/gres.conf"
  # Snakemake's jobstep plugin takes SLURM_CONF from the inner srun, so the file has to be where Slurm looks by itself
  mkdir -p "$(dirname $CONF)"
  if [ -e $CONF ] && ! head -1 $CONF | grep -qF "$MARK"; then die "$CONF is another cluster's: left alone"; fi
  ln -sfn "$ROOT/etc/slurm.conf" $CONF
  forget_hosts
  # torch.distributed hangs on names that do not resolve, and so does slurmdbd on the machine's own
  echo "127.0.0.1 ${NODES[*]} $(getent hosts "$HOST" >/dev/null || echo "$HOST") $MARK" >>/etc/hosts
}

up() { # [MODE]
  [ "$(id -u)" = 0 ] || die "needs root"
  local node why descriptor mode=${1:-plain}
  for descriptor in /proc/$$/fd/*; do # daemons must not keep a lock that our caller holds
    descriptor=${descriptor##*/}
    if [ "$descriptor" -gt 2 ] && [ "$descriptor" != 255 ]; then eval "exec $descriptor>&-"; fi
  done
  if [ "$mode" != plain ] && why=$("why_no_$mode") && [ -n "$why" ]; then die "$why"; fi
  if alive "$ROOT/run/slurmctld.pid" && [ "$(cat "$ROOT/mode" 2>/dev/null)" != "$mode" ]; then down; fi
  alive "$ROOT/run/slurmctld.pid" || configure "$mode"
  echo "$mode" >"$ROOT/mode"
  rm -f "$ROOT"/sick-* # what a test did that never came to its end
  if ! alive "$ROOT/run/munged.pid"; then
    rm -f "$ROOT"/run/munge.sock*
    munged --socket="$ROOT/run/munge.sock" --key-file="$ROOT/munge/key" --pid-file="$ROOT/run/munged.pid" \
      --log-file="$ROOT/log/munged.log" --seed-file="$ROOT/munge/seed"
  fi
  if has_accounting; then start_accounting; fi
  alive "$ROOT/run/slurmctld.pid" || { rm -f "$ROOT/run/slurmctld.pid" && slurmctld; }
  [ "$mode" != energy ] || alive "$ROOT/run/meter.pid" || start_meter
  for node in "${NODES[@]}"; do
    alive "$ROOT/run/slurmd.$node.pid" || { rm -f "$ROOT/run/slurmd.$node.pid" && start_node "$node" "$mode"; }
  done
  wait_for 600 slurmctld scontrol ping
  if has_accounting; then make_accounts; fi
  for node in $(sinfo -h -N -o '%N %t' | awk '$2 ~ /^(down|drain|drng|inval)/ {print $1}' | sort -u); do
    scontrol update nodename="$node" state=resume 2>/dev/null || true # the saved state remembers what a test did
  done
  wait_for 600 "every node" bash -c \
    "[ \$(sinfo -h -N -o '%N %t' | sort -u | grep -cE ' (idle|mix|alloc)\$') = ${#NODES[@]} ]"
}

start_node() { # NODE MODE
  if [ "$2" = energy ]; then metered slurmd -N "$1"; else slurmd -N "$1"; fi
}

pid_files() {
  printf "$ROOT/run/slurmd.%s.pid\n" "${NODES[@]}"
  printf "$ROOT/run/%s.pid\n" slurmctld slurmdbd mariadb munged meter
}

down() {
  local i
  if alive "$ROOT/run/slurmctld.pid"; then
    scancel -f -u root 2>/dev/null || true # what carries out a job outlives slurmd: end the jobs first
    for ((i = 0; i < 200; i++)); do
      [ -z "$(squeue -h 2>/dev/null)" ] && break
      sleep .1
    done
  fi
  # shellcheck disable=SC2046
  stop $(pid_files | grep -E '/slurm(d\..*|ctld)\.pid$')
  stop_accounting
  stop "$ROOT/run/munged.pid" "$ROOT/run/meter.pid"
  if [ "$(cat "$ROOT/mode" 2>/dev/null)" = cgroups ]; then forget_cgroups; fi
  if [ -L $CONF ] && [ "$(readlink $CONF)" = "$ROOT/etc/slurm.conf" ]; then rm -f $CONF; fi
  forget_hosts
}

away() { # SECONDS: the controller stops and comes back
  stop "$ROOT/run/slurmctld.pid"
  sleep "$1"
  slurmctld
  wait_for 600 slurmctld scontrol ping
}

killed() { # NODE SECONDS: what carries out the node's jobs lives on, its slurmd dies and comes back
  kill -9 "$(cat "$ROOT/run/slurmd.$1.pid")"
  sleep "$2"
  rm -f "$ROOT/run/slurmd.$1.pid"
  start_node "$1" "$(cat "$ROOT/mode")"
}

well() { # NODE
  rm -f "$ROOT/sick-$1"
  scontrol update nodename="$1" state=resume 2>/dev/null || true # it may not have come to the worst
}

case ${1:-} in
  up) up "${2:-}" ;;
  sick) touch "$ROOT/sick-$2" ;;
  well) well "$2" ;;
  can) "why_no_$2" ;;
  controller-away) away "$2" ;;
  node-killed) killed "$2" "$3" ;;
  down) down ;;
  status) if alive "$ROOT/run/slurmctld.pid"; then sinfo -N -o "%N %P %t %c %m %G"; else echo "down"; fi ;;
  pids) pid_files | while read -r file; do if alive "$file"; then cat "$file"; fi; done ;;
  *) sed -n 2,15p "$0" && exit 2 ;;
esac
