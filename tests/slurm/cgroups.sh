# Sourced by cluster.sh: whether jobs can be held by the kernel's cgroups here, as most clusters hold them.
#
# Slurm 22.05 needs version 1 of memory and freezer, and root that may make groups in them. Many containers have neither.

GROUPS_ROOT=/sys/fs/cgroup

why_no_cgroups() { # nothing where jobs can be held, else the reason
  local controller group
  for controller in memory freezer; do
    [ -e "$GROUPS_ROOT/$controller/cgroup.procs" ] || { echo "no cgroup v1 with $controller"; return; }
    group="$GROUPS_ROOT/$controller/accelsweep-slurm-try"
    mkdir "$group" 2>/dev/null || { echo "no right to make groups in $GROUPS_ROOT/$controller"; return; }
    if [ $controller = memory ] && ! echo 64M 2>/dev/null >"$group/memory.limit_in_bytes"; then
      echo "no right to limit memory"
    fi
    rmdir "$group"
  done
}

cgroup_options() { # lines for slurm.conf
  echo "ProctrackType=proctrack/cgroup"
  echo "TaskPlugin=task/cgroup"
}

configure_cgroups() { # cores are declared and not real, so that they are not held
  cat >"$ROOT/etc/cgroup.conf" <<C
CgroupPlugin=cgroup/v1
CgroupMountpoint=$GROUPS_ROOT
ConstrainRAMSpace=yes
ConstrainSwapSpace=yes
AllowedSwapSpace=0
C
}

forget_cgroups() { # slurmd leaves its own groups behind, empty ones first
  local controller
  for controller in memory freezer cpuset cpuacct devices; do
    find "$GROUPS_ROOT/$controller" -mindepth 1 -depth -type d -path "*/slurm*" -exec rmdir {} + 2>/dev/null || true
  done
}
