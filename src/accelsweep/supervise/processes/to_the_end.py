"""The processes of one attempt, from their start to the death of the last one, with their output in the log."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from accelsweep.core.planned.settings import Limits
from accelsweep.machine import linux
from accelsweep.rank.spec import RunSpec
from accelsweep.state.file_names import LOG_FILE
from accelsweep.supervise.leases import Lease
from accelsweep.supervise.processes.launchers import Launch, Launchers, LaunchKind, rendezvous
from accelsweep.supervise.processes.logs import RunLog
from accelsweep.supervise.processes.nodes import start_across_nodes
from accelsweep.supervise.processes.ranks import LocalRanks, Ranks, children
from accelsweep.supervise.processes.watching import Ending, Watch
from accelsweep.supervise.signals import Signals
from accelsweep.supervise.standing.versions import VersionAtHand


def environment_of(spec: RunSpec, lease: Lease, version: VersionAtHand | None) -> dict[str, str]:
    """Return the variables that all ranks of an attempt have beside this process's own; those of `env` win."""
    own = {} if version is None else version.environment
    return {**lease.environment, **rendezvous(spec), **own, **spec.config.env}


@dataclass(frozen=True)
class Watcher:
    """The common part of all attempts of a supervisor. `beat` is called about once a second while ranks run.

    `cpus` are those of a block's nodes, for ranks across nodes.
    """

    launchers: Launchers
    signals: Signals
    beat: Callable[[], None]
    cpus: int = 0

    def to_the_end(
        self, spec: RunSpec, kind: LaunchKind, lease: Lease, version: VersionAtHand | None, limits: Limits
    ) -> Ending:
        """Start the ranks of `spec`, wait for them within `limits`, and return how they ended."""
        before, strangers = linux.oom_kills(), children()
        python = None if version is None else version.known.version.python
        with RunLog(Path(spec.attempt_folder) / LOG_FILE, limits.log_bytes) as log:
            launch = Launch(spec, kind, environment_of(spec, lease, version), log.write_end, lease.descriptors, python)
            ranks = self._start(launch)
            log.close_write_end()
            watch = Watch(spec, ranks, limits, log, self.signals, self.beat)
            try:
                return watch.until_the_end(before, strangers)
            except BaseException:
                ranks.signal(signal.SIGKILL)
                raise

    def _start(self, launch: Launch) -> Ranks:
        if launch.kind == "srun":
            return start_across_nodes(launch, self.cpus)
        return LocalRanks(self.launchers.start(launch))
