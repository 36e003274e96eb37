"""A head in a unit of the user's systemd."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Sequence

from accelsweep.drive.detached.handed import PlaceKind, Whereabouts
from accelsweep.errors import AccelsweepError
from accelsweep.records.layout import SweepFolder

_NAMED = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_STOP_SECONDS = 150
"""The time that a head has to put its work down, before systemd kills it."""


class UserUnit:
    """Transient units of `systemd --user`, which outlive the terminal; with lingering, the login too."""

    kind: PlaceKind = "systemd"
    waits = False

    def here(self) -> bool:
        """Return whether this user has a systemd that runs."""
        if shutil.which("systemd-run") is None:
            return False
        return _systemctl("is-system-running").stdout.strip() in ("running", "degraded", "starting")

    @property
    def caution(self) -> str | None:
        """Words for the user where a logout would end the head."""
        if shutil.which("loginctl") is None:
            return None
        asked = ("loginctl", "show-user", str(os.getuid()), "--property=Linger", "--value")
        lingers = subprocess.run(asked, capture_output=True, text=True, check=False)
        return "it ends when you log out for good, unless: loginctl enable-linger" if "no" in lingers.stdout else None

    def check(self, folder: SweepFolder, name: str) -> None:
        """Raise nothing: what this machine lacks is known before."""

    def start(self, folder: SweepFolder, command: Sequence[str], name: str) -> str:
        """Start `command` in a unit, with our environment; return the unit's name."""
        unit = re.sub(r"[^A-Za-z0-9_.-]", "-", name)
        properties = [f"Standard{stream}=append:{folder.head_log}" for stream in ("Output", "Error")]
        properties += ["KillMode=mixed", f"TimeoutStopSec={_STOP_SECONDS}"]
        asked = [
            "systemd-run",
            "--user",
            "--quiet",
            "--collect",
            f"--unit={unit}",
            f"--working-directory={folder.home}",
        ]
        asked += [f"--property={one}" for one in properties]
        asked += [f"--setenv={name}" for name in os.environ if _NAMED.fullmatch(name)]  # values stay out of `ps`
        told = subprocess.run((*asked, "--", *command), capture_output=True, text=True, check=False)
        if told.returncode != 0:
            raise AccelsweepError(f"systemd could not start the head: {told.stderr.strip()}")
        return unit

    def state(self, name: str) -> Whereabouts | None:
        """Return the unit, None where it has ended."""
        if shutil.which("systemctl") is None:
            return None
        there = _systemctl("is-active", name).stdout.strip() in ("active", "activating", "deactivating")
        return Whereabouts(f"unit {name} of your systemd") if there else None

    def end_with(self, name: str, *, waits: bool = False) -> str:
        """Return the command that is Ctrl-C for the head."""
        del waits  # it begins at once
        return shlex.join(("systemctl", "--user", "stop", name))


def _systemctl(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(("systemctl", "--user", *words), capture_output=True, text=True, check=False)  # noqa: S607
