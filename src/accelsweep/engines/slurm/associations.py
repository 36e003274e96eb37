"""The accounts that the cluster's accounting grants its user, each with its partitions and qualities of service."""

from __future__ import annotations

import getpass
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from accelsweep.base.errors import AccelsweepError
from accelsweep.engines.ask import ask
from accelsweep.engines.site_file import also, plain

_FIELDS = "DefaultAccount,Account,Partition,QOS,DefaultQOS"
_CLUSTER = re.compile(r"^ClusterName\s*=\s*(\S+)", re.MULTILINE)
_PATIENCE_SECONDS = 20.0


@dataclass(frozen=True)
class Association:
    """An account of the user, in one partition or in all. `qos` may be asked for; without it `usual_qos` is taken."""

    account: str
    default: bool
    partition: str
    qos: tuple[str, ...]
    usual_qos: str

    def __str__(self) -> str:
        """`account physics: qos normal, high (normal by default), in the partition gpu alone`."""
        qos = f"qos {', '.join(self.qos)}" if self.qos else "no qos"
        usual = f" ({self.usual_qos} by default)" if self.usual_qos else ""
        where = f", in the partition {self.partition} alone" if self.partition else ""
        return f"account {self.account}: {qos}{usual}{where}"


def associations() -> list[Association]:
    """Return the user's associations with this cluster; none where nothing keeps accounts, or it does not answer."""
    try:
        cluster = _CLUSTER.search(ask("scontrol", "show", "config", patience_seconds=_PATIENCE_SECONDS))
        told = ask(
            *("sacctmgr", "--noheader", "--parsable2", "--readonly", "show", "user", getpass.getuser(), "withassoc"),
            *((f"cluster={cluster[1]}",) if cluster else ()),
            f"format={_FIELDS}",
            patience_seconds=_PATIENCE_SECONDS,
        )
    except (AccelsweepError, OSError):  # a user without a name has no account either
        return []
    return list(
        dict.fromkeys(_association(line) for line in told.splitlines() if line.count("|") == _FIELDS.count(","))
    )


def _association(line: str) -> Association:
    usual, account, partition, qos, usual_qos = line.split("|")
    return Association(account, account == usual, partition, tuple(filter(None, qos.split(","))), usual_qos)


def words(found: Sequence[Association]) -> Iterator[str]:
    """Yield the lines of a site file about account and quality of service, with what sacctmgr says as comments."""
    accounts = list(dict.fromkeys(one.account for one in sorted(found, key=lambda one: not one.default)))
    if not accounts:
        yield "account: null             # what sbatch --account takes: sacctmgr show assoc user=$USER"
        return
    yield f"account: {plain(accounts[0])}{also(accounts[1:])}"
    yield "qos: null                 # null takes the default; sacctmgr lists what each account may ask for:"
    yield from (f"# {one}" for one in found)
