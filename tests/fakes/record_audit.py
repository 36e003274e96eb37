"""Audit of a sweep's records during fault injection: the record of a settled run must never change."""

from __future__ import annotations

import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest
from home import Home

from accelsweep.errors import DamagedFile
from accelsweep.executor.result_reuse import audit
from accelsweep.files import sha256_file
from accelsweep.records.file_lock import read_lock
from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import Done, LockOwner, Manifest
from accelsweep.records.run_record import Record
from accelsweep.results import Outcome


class HeadLedger:
    """The sweep `tiny` in a user's home, driven by one command over and over."""

    def __init__(self, home: Home, *arguments: str) -> None:
        self.home = home
        self.command = ("run", "experiment=tiny", *arguments)
        self.folder = SweepFolder(home.path, "tiny")
        self.finished: dict[str, str] = {}
        (home.path / "foreign").write_text("not ours")

    def look(self) -> None:
        """Note the settled records; fail if one of those noted before changed or is gone."""
        for run, digest in self.finished.items():
            assert sha256_file(self.folder.record(run)) == digest, f"{run} was lost or measured again"
        for path in self.folder.root.glob("runs/*/record.json"):
            with suppress(DamagedFile):
                if Record.read(path).outcome.settled:
                    self.finished[path.parent.name] = sha256_file(path)

    def running(self) -> LockOwner | None:
        """Return the hold of an executor that is measuring a run now."""
        holds = [read_lock(path) for path in self.folder.root.glob("blocks/*.lock.json")]
        return next((hold for hold in holds if hold is not None and hold.run is not None), None)

    def complete(self, *options: str) -> str:
        """Run the command to its end, check everything, and return its output.

        The command runs twice where a run had taken two executors down. Such a run is recorded as `crashed` first, as
        a poison run must be.
        """
        result = self.home.accelsweep(*self.command, *options)
        if result.returncode == 1 and any("executor died" in str(one.reason) for one in self.records()):
            result = self.home.accelsweep(*self.command)
        assert result.returncode == 0, result.stdout + self.logs()
        self.look()
        self.check()
        return result.stdout

    def check(self) -> None:
        """Every wanted run has one record, done files are true, MLflow holds each run once, nothing is left running."""
        manifest = Manifest.read(self.folder.manifest)
        assert sorted(self.finished) == sorted(manifest.wanted_runs())
        assert {record.outcome for record in self.records()} == {Outcome.measured}
        for block in manifest.blocks:
            assert Done.read(self.folder.done(block.name)).records == {run: self.finished[run] for run in block.runs}
        assert audit(self.folder).reopened == ()
        assert (self.folder.report / "index.html").stat().st_size > 0
        assert published_runs(self.home.path / "mlflow.db") == len(self.finished)
        assert self.home.processes("cli", "snakemake", "publisher", "executor") == []
        assert (self.home.path / "foreign").read_text() == "not ours"

    def records(self) -> list[Record]:
        """Return the records of all wanted runs that have one."""
        found = [self.folder.record(run) for run in Manifest.read(self.folder.manifest).wanted_runs()]
        return [Record.read(path) for path in found if path.exists()]

    def logs(self) -> str:
        """Return the logs of the sweep's processes, for a failing test's message."""
        return "\n".join(f"--- {path}\n{path.read_text()}" for path in sorted(self.folder.root.glob("logs/*.log")))


def published_runs(database: Path) -> int:
    """Return for how many records the MLflow store shows a run (one may be shown as killed beside them)."""
    query = (
        "select count(*) from runs join tags using (run_uuid)"
        " where tags.key = 'record_sha256' and lifecycle_stage = 'active'"
    )
    with closing(sqlite3.connect(database)) as connection:
        return int(connection.execute(query).fetchone()[0])


@contextmanager
def mounted(target: Path, *options: str) -> Iterator[None]:
    """Mount `target` read-only (`ro`) or as a small disk (`size=...`); skips the test where that is not allowed."""
    where = str(target)
    if options == ("ro",):
        commands = [["mount", "--bind", where, where], ["mount", "-o", "remount,ro,bind", where]]
    else:
        commands = [["mount", "-t", "tmpfs", "-o", ",".join(options), "tmpfs", where]]
    for command in commands:
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"cannot mount here: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", str(target)], check=True)
