# Sourced by the test clusters' scripts, which set DAEMONS (the names of their programs),
# LOGS (a folder) and MARK (the end of their lines in /etc/hosts).

die() {
  echo "cluster.sh: $*" >&2
  exit 1
}

ours() { # the pid is one of our daemons: alive, no zombie, not a number that was given to somebody else
  grep -qxF "$(printf '%s\n' "${DAEMONS[@]}")" "/proc/$1/comm" 2>/dev/null && ! grep -q '^State:.Z' "/proc/$1/status" 2>/dev/null
}

alive() {
  local pid
  pid=$(cat "$1" 2>/dev/null) && [ -n "$pid" ] && ours "$pid"
}

wait_for() { # SECONDS WHAT COMMAND...
  local end=$((SECONDS + $1)) what=$2
  shift 2
  while [ $SECONDS -lt $end ]; do
    timeout 10 "$@" >/dev/null 2>&1 && return 0
    sleep .1
  done
  die "$what did not come up within its time; look in $LOGS"
}

stop() { # PIDFILE...: ask, wait up to 15 s, then insist
  local file pid i left pids=()
  for file in "$@"; do if alive "$file"; then pids+=("$(cat "$file")"); fi; done
  for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
  for ((i = 0; i < 150; i++)); do
    left=0
    for pid in "${pids[@]}"; do if ours "$pid"; then left=1; fi; done
    [ $left = 0 ] && break
    sleep .1
  done
  for pid in "${pids[@]}"; do if ours "$pid"; then kill -9 "$pid" || true; fi; done
  rm -f "$@"
}

forget_hosts() { # rewritten in place, since /etc/hosts may be a mount
  local rest
  grep -q "$MARK\$" /etc/hosts || return 0
  rest=$(grep -v "$MARK\$" /etc/hosts)
  printf '%s\n' "$rest" >/etc/hosts
}
