#!/bin/bash
# meter.sh FOLDER WATTS: the counter of a node that draws this power, ten times a second, in the format of a Cray's pm_counters.
# Not by env: cluster.sh knows its daemons by the name that the kernel gives them.
set -euo pipefail

tell() { # NAME WORDS: whoever reads gets the old value or the new one
  echo "$2" >"$1.new"
  mv "$1.new" "$1"
}

mkdir -p "$1"
cd "$1"
while true; do
  now=$(date +%s%6N)
  tell energy "$((now / 1000000 * $2)) J $now us"
  tell power "$2 W $now us"
  sleep .1
done
