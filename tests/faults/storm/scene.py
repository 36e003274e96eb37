"""A command of the user's while it runs: its processes as the system shows them, and the moments on its way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

from accelsweep.records.file_lock import live_lock
from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import LockOwner

_WAITS_SECONDS = {
    "while it plans": 2.0,
    "while Snakemake starts": 0.5,
    "while its jobs wait": 3.0,
    "while a job starts": 6.0,
    "while a run is measured": 0.5,
    "in its second run": 0.5,
    "after its block": 0.5,
    "while it reports": 3.0,
    "while it publishes": 2.0,
    "somewhere on its way": 15.0,
}
"""How far into the moment a fault strikes at most; what is absent strikes at once."""

_MODULES = {
    "snakemake": ("snakemake", "accelsweep.driver.snakemake_main"),
    "job's Snakemake": ("snakemake",),
    "publisher": ("accelsweep.tracking.live_publishing",),
    "reporting step": ("accelsweep.driver.finalize",),
    "job": ("accelsweep.executor",),
    "fork server": ("accelsweep.executor.fork_server",),
}

_SUBMITTED = b"has been submitted with SLURM jobid"


class Scene:
    """The command `arguments`, started in `home` with `environment`; its output goes to the file `output`."""

    def __init__(self, home: Path, sweep: str, arguments: list[str], environment: dict[str, str], output: Path) -> None:
        """Start it."""
        self.home, self.folder, self.output = home, SweepFolder(home, sweep), output
        self._old = set(self._made())
        with output.open("wb") as file:
            self.driver = subprocess.Popen(
                [sys.executable, "-m", "accelsweep", *arguments],
                cwd=home,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL) and None,  # noqa: PLW1509 - one thread
            )
        self._began = time.monotonic()
        self._since: dict[str, float] = {}
        self._old_page = self._page()

    def goes_on(self) -> bool:
        """Return whether the command has not ended."""
        return self.driver.poll() is None

    def reached(self, moment: str, share: float) -> bool:
        """Return whether the command is so far into the moment."""
        if moment not in self._since:
            if not _MOMENTS[moment](self):
                return False
            self._since[moment] = time.monotonic()
        return time.monotonic() - self._since[moment] >= share * _WAITS_SECONDS.get(moment, 0.0)

    def ended(self, seconds: float) -> int:
        """Wait for the end, at most so long; return the exit code. A command that hangs is killed: AssertionError."""
        try:
            return self.driver.wait(seconds)
        except subprocess.TimeoutExpired:
            self.driver.kill()
            raise AssertionError(f"the command hangs: {self.output.read_text()}") from None

    def find(self, who: str) -> psutil.Process | None:
        """Return the process that plays this part now, if there is one."""
        if who == "driver":
            return psutil.Process(self.driver.pid) if self.goes_on() else None
        held = {hold.pid for hold in self._holds()}
        found = sorted(self._players(who, held), key=lambda process: process.pid)
        if who == "second rank":
            found = found[1:]
        return found[0] if found else None

    def _players(self, who: str, held: set[int]) -> Iterator[psutil.Process]:
        for process in working_in(self.home):
            parent, words = process.info["ppid"], process.info["cmdline"]
            if who == "executor":
                fits = process.pid in held
            elif who.endswith("rank"):
                fits = parent in held
            else:
                fits = "-m" in words[1:3] and words[words.index("-m") + 1] in _MODULES[who] and process.pid not in held
                fits = fits and (who != "fork server" or parent == self.driver.pid)
                fits = fits and ("--target-jobs" in words) == (who == "job's Snakemake")
            if fits:
                yield process

    def _holds(self) -> Iterator[LockOwner]:
        return filter(None, map(live_lock, self.folder.locks()))

    def submitted(self) -> bool:
        """Return whether this command's Snakemake has submitted a job to Slurm."""
        log = self.folder.snakemake_log
        return log.is_file() and _SUBMITTED in log.read_bytes() and self.find("snakemake") is not None

    def reported(self) -> bool:
        """Return whether this command has written the report."""
        return self._page() not in (0, self._old_page)

    def _page(self) -> int:
        page = self.folder.report / "index.html"
        return page.lstat().st_mtime_ns if page.is_file() else 0

    def _made(self) -> list[Path]:
        made = ("runs/*/record.json", "blocks/*.done.json", "../../slurm-logs/*/*/*.log")
        return [path for pattern in made for path in self.folder.root.glob(pattern)]

    def _new(self, name: str) -> int:
        """Return how many new records, done files or logs of jobs there are (old records have runs of other names)."""
        return sum(1 for path in self._made() if path not in self._old and path.name.endswith(name))


def working_in(home: Path) -> Iterator[psutil.Process]:
    """Yield the living processes whose working directory is `home`, with parent and command line as `info`."""
    for process in psutil.process_iter(["cwd", "cmdline", "ppid", "status"]):
        if process.info["cwd"] == str(home) and process.info["status"] != psutil.STATUS_ZOMBIE:
            process.info["cmdline"] = process.info["cmdline"] or []
            yield process


_MOMENTS: dict[str, Callable[[Scene], bool]] = {
    "while it plans": lambda _: True,
    "while Snakemake starts": lambda scene: scene.find("snakemake") is not None,
    "while a run is measured": lambda scene: any(hold.run is not None for hold in scene._holds()),
    "while its jobs wait": lambda scene: scene.submitted(),
    "while a job starts": lambda scene: scene._new(".log") >= 1,
    "in its second run": lambda scene: (
        scene._new("record.json") >= 1 and any(hold.run is not None for hold in scene._holds())
    ),
    "after its first record": lambda scene: scene._new("record.json") >= 1,
    "after its second record": lambda scene: scene._new("record.json") >= 2,
    "after its block": lambda scene: scene._new(".done.json") >= 1,
    "while it reports": lambda scene: scene.find("reporting step") is not None,
    "while it publishes": lambda scene: scene.reported() and scene.find("snakemake") is None,
    "somewhere on its way": lambda _: True,
}


def environment_of(temporary: Path, leases: Path, **variables: str) -> dict[str, str]:
    """Return the environment of a user whose temporary files and locks lie there."""
    own = {"PYTHONUNBUFFERED": "1", "COLUMNS": "300", "TMPDIR": str(temporary), "ACCELSWEEP_LEASES": str(leases)}
    return {**os.environ, **own, **variables}
