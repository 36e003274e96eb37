# Sourced by cluster.sh: the cluster's accounting, which is a MariaDB and a slurmdbd of its own, both on loopback.
#
# Account `test` and the user root in it have no limit. Account `few` may have one job in the queue, and `short` asks for
# at most a minute. The QOS `normal` is open. `one` lets a user hold one GPU, so that a job of two waits for ever.
# What was made once, the tables above all, is kept below $ROOT until /tmp is cleared.

DAEMONS+=(mariadbd slurmdbd)

why_no_accounting() { # nothing where it can be had, else the reason
  local program
  for program in slurmdbd mariadbd mariadb-install-db mariadb; do
    command -v $program >/dev/null || { echo "no $program: tests/install-system.sh installs it"; return; }
  done
  compgen -G "/usr/lib/*/slurm*/accounting_storage_mysql.so" >/dev/null || echo "no slurm-wlm-mysql-plugin"
}

has_accounting() {
  [ -z "$(why_no_accounting)" ]
}

sql() {
  mariadb --no-defaults -uroot --socket="$ROOT/run/mariadb.sock" "$@"
}

accounting_options() { # lines for slurm.conf
  cat <<C
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageTRES=gres/gpu
AccountingStorageHost=localhost
AccountingStoragePort=$((PORT + 1))
# AuthInfo is not used towards slurmdbd: this names the socket of munge
AccountingStoragePass=$ROOT/run/munge.sock
AccountingStorageEnforce=associations,limits,qos
C
}

configure_accounting() {
  mkdir -p "$ROOT/mysql"
  [ -s "$ROOT/etc/dbpass" ] || (umask 077 && od -An -N12 -tx1 /dev/urandom | tr -d ' \n' >"$ROOT/etc/dbpass")
  rm -f "$ROOT/etc/slurmdbd.conf"
  (umask 077 && cat >"$ROOT/etc/slurmdbd.conf") <<C
AuthType=auth/munge
AuthInfo=socket=$ROOT/run/munge.sock
DbdHost=$HOST
DbdAddr=127.0.0.1
DbdPort=$((PORT + 1))
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
SlurmUser=root
LogFile=$ROOT/log/slurmdbd.log
PidFile=$ROOT/run/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort=$((PORT + 2))
StorageUser=slurm
StoragePass=$(cat "$ROOT/etc/dbpass")
StorageLoc=slurm_acct_db
C
}

start_accounting() {
  if ! alive "$ROOT/run/mariadb.pid"; then
    [ -d "$ROOT/mysql/mysql" ] || mariadb-install-db --no-defaults --user=root --datadir="$ROOT/mysql" \
      --auth-root-authentication-method=normal --skip-test-db >"$ROOT/log/mariadb-install.log" 2>&1 ||
      die "mariadb-install-db failed, see $ROOT/log/mariadb-install.log"
    # its locks are waited for: slurmdbd gives up where a transaction is refused
    setsid nohup mariadbd --no-defaults --user=root --datadir="$ROOT/mysql" --socket="$ROOT/run/mariadb.sock" \
      --pid-file="$ROOT/run/mariadb.pid" --bind-address=127.0.0.1 --port=$((PORT + 2)) --skip-name-resolve \
      --skip-log-bin --innodb-buffer-pool-size=64M --innodb-flush-log-at-trx-commit=0 --innodb-lock-wait-timeout=900 \
      </dev/null >"$ROOT/log/mariadb.log" 2>&1 &
  fi
  wait_for 600 mariadb mariadb --no-defaults -uroot --socket="$ROOT/run/mariadb.sock" -e "select 1"
  [ -d "$ROOT/mysql/slurm_acct_db" ] || sql -e "
    CREATE DATABASE slurm_acct_db;
    CREATE OR REPLACE USER 'slurm'@'127.0.0.1' IDENTIFIED BY '$(cat "$ROOT/etc/dbpass")';
    GRANT ALL ON slurm_acct_db.* TO 'slurm'@'127.0.0.1';"
  alive "$ROOT/run/slurmdbd.pid" || { rm -f "$ROOT/run/slurmdbd.pid" && slurmdbd; }
  wait_for 600 slurmdbd sacctmgr -n list cluster
  [ -e "$ROOT/accounts" ] || sacctmgr -i -Q add cluster accelsweep >/dev/null || true # an error where it is there already
}

make_accounts() { # once slurmctld has told slurmdbd that there are GPUs; an error where it is there already
  [ ! -e "$ROOT/accounts" ] || return 0
  sacctmgr -i -Q >>"$ROOT/log/accounts.log" 2>&1 <<C || true
add qos one maxtresperuser=gres/gpu=1
add account test,few,short cluster=accelsweep
add user root account=test defaultaccount=test cluster=accelsweep qos=normal,one
add user root account=few cluster=accelsweep maxsubmitjobs=1
add user root account=short cluster=accelsweep maxwall=1
C
  [ "$(sacctmgr -n -P list assoc user=root format=account | sort | xargs)" = "few root short test" ] ||
    die "sacctmgr made no accounts: see $ROOT/log/accounts.log"
  touch "$ROOT/accounts"
}

stop_accounting() { # slurmctld first, so that it can tell of the last jobs
  stop "$ROOT/run/slurmdbd.pid"
  stop "$ROOT/run/mariadb.pid"
}
