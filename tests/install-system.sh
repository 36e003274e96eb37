#!/usr/bin/env bash
# Installs what the real parts of the tests need from Debian's packages. Where it cannot, those tests are skipped.
set -euo pipefail

missing=()
command -v chromium-headless-shell >/dev/null || missing+=(chromium-headless-shell)
command -v slurmctld >/dev/null || [ -x /usr/sbin/slurmctld ] || missing+=(slurmctld slurmd slurm-client munge)
command -v tmux >/dev/null || missing+=(tmux)
{ command -v qsub >/dev/null && { command -v sge_qmaster >/dev/null || [ -x /usr/sbin/sge_qmaster ]; }; } ||
  missing+=(gridengine-master gridengine-exec gridengine-client)
{ [ -x /usr/sbin/slurmdbd ] && command -v mariadbd >/dev/null; } ||
  missing+=(slurmdbd slurm-wlm-mysql-plugin mariadb-server-core mariadb-client-core)
command -v pg_ctl >/dev/null || compgen -G '/usr/lib/postgresql/*/bin/pg_ctl' >/dev/null || missing+=(postgresql)
[ ${#missing[@]} -eq 0 ] && exit 0
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
  echo "not installed: ${missing[*]} (needs root and apt-get); the tests that need them will be skipped"
  exit 0
fi
echo "installing ${missing[*]} for the browser tests, the test clusters, the test database and detached drivers"
export DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 # with this run level the packages start no daemon
install() { apt-get install -y -qq --no-install-recommends "$@" >/dev/null 2>&1; }
apt-get update -qq >/dev/null 2>&1 || true
install "${missing[@]}" || for package in "${missing[@]}"; do # one that a distribution lacks costs its own tests alone
  install "$package" || echo "could not install $package; the tests that need it will be skipped"
done
