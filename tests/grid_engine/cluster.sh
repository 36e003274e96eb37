#!/usr/bin/env bash
# cluster.sh up | down | status | pids | environment | controller-away SECONDS
# A real Grid Engine on this machine, on loopback, without systemd or containers: one node of 8 slots in the queue `all.q`.
#
# Slots, memory and GPUs are numbers that it counts; the machine shares its own. Needs root and Debian's gridengine-master,
# -exec and -client. All state lies under $ACCELSWEEP_GRID_ROOT. Debian's own setting and its ports are left alone.
# It ends only what it started.
set -euo pipefail

ROOT=${ACCELSWEEP_GRID_ROOT:-${TMPDIR:-/tmp}/accelsweep-grid}
PORT=${ACCELSWEEP_GRID_PORT:-17644} # sge_qmaster; sge_execd has the next
LIB=/usr/lib/gridengine
HOST=$(hostname)
SLOTS=8
export SGE_ROOT=$ROOT SGE_CELL=default SGE_QMASTER_PORT=$PORT SGE_EXECD_PORT=$((PORT + 1)) PATH=$PATH:/usr/sbin
COMMON=$ROOT/default/common
MASTER=$ROOT/spool/qmaster/qmaster.pid
DAEMONS=(sge_qmaster sge_execd)
LOGS=$ROOT/spool
MARK="# accelsweep test grid"

# shellcheck source=../daemons.sh
. "$(dirname "$0")/../daemons.sh"

configure() {
  rm -rf "$ROOT"
  mkdir -p "$COMMON" "$ROOT"/spool/{qmaster/job_scripts,execd,db}
  ln -s /usr/share/gridengine/util "$ROOT/util"
  mkdir "$ROOT"/{bin,lib,utilbin}
  local kind
  for kind in bin lib utilbin; do ln -s $LIB "$ROOT/$kind/$("$ROOT/util/arch")"; done
  echo "$HOST" >"$COMMON/act_qmaster"
  # its daemons refuse a name that does not resolve; what resolves is left alone
  getent hosts "$HOST" >/dev/null || echo "127.0.0.1 $HOST $MARK" >>/etc/hosts
  # 127.0.0.1 may have another name first
  echo "$HOST localhost" >"$COMMON/host_aliases"
  cat >"$COMMON/bootstrap" <<C
admin_user              root
default_domain          none
ignore_fqdn             true
spooling_method         berkeleydb
spooling_lib            libspoolb
spooling_params         $ROOT/spool/db
binary_path             $LIB
qmaster_spool_dir       $ROOT/spool/qmaster
security_mode           none
listener_threads        2
worker_threads          2
scheduler_threads       1
C
  sed -e "s|^execd_spool_dir .*|execd_spool_dir $ROOT/spool/execd|" -e 's/^min_\(.\)id .*/min_\1id 0/' \
    -e 's/^load_report_time .*/load_report_time 00:00:02/' \
    -e 's/^reporting_params .*/reporting_params accounting=true reporting=false flush_time=00:00:01 accounting_flush_time=00:00:00 joblog=false sharelog=00:00:00/' \
    /usr/share/gridengine/default-configuration >"$ROOT/configuration"
  $LIB/spoolinit berkeleydb libspoolb "$ROOT/spool/db" init
  $LIB/spooldefaults configuration "$ROOT/configuration"
  $LIB/spooldefaults complexes /usr/share/gridengine/util/resources/centry
  $LIB/spooldefaults usersets /usr/share/gridengine/util/resources/usersets
  $LIB/spooldefaults managers root
}

changed() { # SHOW MODIFY SED...: a configuration of Grid Engine with these changes
  local show=$1 modify=$2 file=$ROOT/change
  shift 2
  # shellcheck disable=SC2086
  qconf $show | sed "$@" >"$file"
  # shellcheck disable=SC2086
  qconf $modify "$file"
}

furnish() { # the node, its slots, and what jobs may ask for
  qconf -ah "$HOST" || true
  qconf -as "$HOST"
  changed -sc -Mc -e 's/^h_vmem .*/h_vmem h_vmem MEMORY <= YES YES 8G 0/' -e '$a gpu gpu INT <= YES JOB 0 0'
  changed -ssconf -Msconf -e 's/^schedule_interval .*/schedule_interval 0:0:1/' \
    -e 's/^flush_submit_sec .*/flush_submit_sec 1/' -e 's/^flush_finish_sec .*/flush_finish_sec 1/' \
    -e 's/^schedd_job_info .*/schedd_job_info true/' -e 's/^load_formula .*/load_formula slots/' \
    -e 's/^job_load_adjustments .*/job_load_adjustments NONE/'
  cat >"$ROOT/change" <<C
pe_name            smp
slots              999
user_lists         NONE
xuser_lists        NONE
start_proc_args    NONE
stop_proc_args     NONE
allocation_rule    \$pe_slots
control_slaves     FALSE
job_is_first_task  TRUE
urgency_slots      min
accounting_summary TRUE
qsort_args         NONE
C
  qconf -Ap "$ROOT/change"
  $LIB/sge_execd
  wait_for 120 "the node" bash -c "qhost -h $HOST | grep -q lx-"
  qconf -sq | sed -e 's/^qname .*/qname all.q/' -e "s/^hostlist .*/hostlist $HOST/" -e "s/^slots .*/slots $SLOTS/" \
    -e 's/^pe_list .*/pe_list smp/' -e 's/^load_thresholds .*/load_thresholds NONE/' -e 's/^shell .*/shell \/bin\/bash/' \
    >"$ROOT/change"
  qconf -Aq "$ROOT/change"
  qconf -mattr exechost complex_values "slots=$SLOTS,h_vmem=64G,gpu=4" "$HOST"
}

up() {
  [ "$(id -u)" = 0 ] || die "needs root"
  if alive "$MASTER" && alive "$(node_pid)"; then return 0; fi
  down
  configure
  $LIB/sge_qmaster
  wait_for 120 sge_qmaster qconf -sm
  furnish
  wait_for 120 "the queue" bash -c "qstat -f | grep -q 'all.q@'"
}

node_pid() { # sge_execd decides how the node's folder is called
  compgen -G "$ROOT/spool/execd/*/execd.pid" || true
}

pid_files() {
  node_pid
  echo "$MASTER"
}

down() {
  local i
  if alive "$MASTER"; then
    qdel -u '*' >/dev/null 2>&1 || true # what carries out a job outlives sge_execd: end the jobs first
    for ((i = 0; i < 200; i++)); do
      [ -z "$(qstat -u '*' 2>/dev/null)" ] && break
      sleep .1
    done
  fi
  # shellcheck disable=SC2046
  stop $(pid_files)
  forget_hosts
}

away() { # SECONDS: the master stops and comes back
  stop "$MASTER"
  sleep "$1"
  $LIB/sge_qmaster
  wait_for 120 sge_qmaster qconf -sm
}

case ${1:-} in
  up) up ;;
  down) down ;;
  controller-away) away "$2" ;;
  status) if alive "$MASTER"; then qstat -f; else echo "down"; fi ;;
  pids) pid_files | while read -r file; do if alive "$file"; then cat "$file"; fi; done ;;
  environment) env | grep -E '^SGE_(ROOT|SETTING|QMASTER_PORT|EXECD_PORT)=' ;;
  *) sed -n 2,8p "$0" && exit 2 ;;
esac
