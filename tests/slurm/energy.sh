# Sourced by cluster.sh: nodes whose energy Slurm measures, with a counter that is known to draw 100 W on each.
#
# Slurm's plugin reads Cray's counters below /sys, where nobody can make files. So each slurmd has a /sys of its own.

WATTS=100

why_no_energy() { # nothing where it can be had, else the reason
  compgen -G "/usr/lib/*/slurm*/acct_gather_energy_pm_counters.so" >/dev/null || { echo "no acct_gather_energy/pm_counters"; return; }
  unshare --mount true 2>/dev/null || echo "no right to mount"
}

energy_options() { # lines for slurm.conf; `extern` is the step that covers all nodes of a job
  echo "AcctGatherEnergyType=acct_gather_energy/pm_counters"
  echo "AcctGatherNodeFreq=1"
  echo "JobAcctGatherFrequency=task=1,energy=1"
  echo "PrologFlags=Contain"
}

start_meter() {
  "$(dirname "$0")/meter.sh" "$ROOT/counters" $WATTS >/dev/null 2>&1 &
  echo $! >"$ROOT/run/meter.pid"
  wait_for 20 "the meter" test -e "$ROOT/counters/power"
}

metered() { # COMMAND...: with a /sys that has the counters
  # shellcheck disable=SC2016
  ROOT=$ROOT unshare --mount bash -euc '
    mkdir -p "$ROOT/sys"
    mount --rbind /sys "$ROOT/sys"
    mount -t tmpfs tmpfs /sys
    for one in "$ROOT"/sys/*; do ln -s "$one" /sys; done
    mkdir /sys/cray
    ln -s "$ROOT/counters" /sys/cray/pm_counters
    exec "$@"' metered "$@"
}
