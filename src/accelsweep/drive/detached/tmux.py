"""A head in a tmux session, for a machine without a user's systemd."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Sequence

from accelsweep.drive.detached.handed import PlaceKind, Whereabouts
from accelsweep.errors import AccelsweepError
from accelsweep.records.layout import SweepFolder

_INTO_LOG = 'log=$1; shift; exec "$@" >>"$log" 2>&1'


class Tmux:
    """Sessions of tmux, each with a server of its own, which has the environment of the command that starts it."""

    kind: PlaceKind = "tmux"
    waits = False
    caution: str | None = None

    def here(self) -> bool:
        """Return whether heads can be handed over to it on this machine."""
        return shutil.which("tmux") is not None

    def check(self, folder: SweepFolder, name: str) -> None:
        """Raise nothing: what this machine lacks is known before."""

    def start(self, folder: SweepFolder, command: Sequence[str], name: str) -> str:
        """Start `command` in a session; return the session's name."""
        session = re.sub(r"[^A-Za-z0-9_-]", "-", name)
        shell = ("/bin/sh", "-c", _INTO_LOG, "sh", str(folder.head_log), *command)
        told = _tmux(session, "-f", "/dev/null", "new-session", "-d", "-s", session, "-c", str(folder.home), *shell)
        if told.returncode != 0:
            raise AccelsweepError(f"tmux could not start the head: {told.stderr.strip()}")
        return session

    def state(self, name: str) -> Whereabouts | None:
        """Return the session, None where it has ended."""
        there = self.here() and _tmux(name, "has-session", "-t", f"={name}").returncode == 0
        return Whereabouts(f"tmux session {name}") if there else None

    def end_with(self, name: str, *, waits: bool = False) -> str:
        """Return the command that is Ctrl-C for the head."""
        del waits  # it begins at once
        return shlex.join(("tmux", "-L", name, "send-keys", "C-c"))


def _tmux(name: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(("tmux", "-L", name, *words), capture_output=True, text=True, check=False)  # noqa: S607
