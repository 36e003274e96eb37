"""What is promised, whatever happens: no standing record is lost, nothing is silent, nothing is left behind."""

from __future__ import annotations

import re
import signal
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

import psutil
from scene import working_in

from accelsweep.driver.finalize import finalize
from accelsweep.errors import EXIT_INTERRUPTED, DamagedFile
from accelsweep.executor.result_reuse import audit
from accelsweep.files import sha256_file
from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import Done, Manifest
from accelsweep.records.run_files import read_record
from accelsweep.records.run_record import steps_damage
from accelsweep.results import Outcome

REMEDY = re.compile(
    r"the same command (?:resumes|tries|measures|recreates)|run the same command"
    r"|(?:^|[\s`])accelsweep (?:run|status|runs|retry|clean|report|publish|import|export|plan|doctor)\b"
    r"|(?:^|[\s`(])--[a-z]{2}"
    r"|\b(?:limits|site|measure|analysis)\.[a-z]\w*"
    r"|\b(?:free (?:up |some )?space|move (?:it|them) away|remove (?:it|them)|make the folder writable|wait for it)\b",
    re.IGNORECASE,
)
"""What to do: a command with its subcommand, an option, a knob, or an order to the reader. A path alone is none."""


CAUSES = {
    "finished": r"^(?:MLflow: |.*\bnothing is left to do)",
    "interrupted": r"^(?:accelsweep: )?interrupted",
    "runs failed, with their reasons": r"^(?:crashed|timed_out): \d+ runs?: \S",
    "runs not reached, with the reason": r"^not_run: \d+ runs?: \S",
    "Snakemake ended early, with the cause": r"^(?:Snakemake ended early|no report was written, because .*)"
    r": (?!it gave no reason|it ended with exit code)",
    "MLflow not filled, with the cause": r"^MLflow is incomplete: (?!accelsweep)",
    "refused, with the cause": r"^(?:accelsweep: )?(?:error|wrong input): \S",
}
"""The kinds of endings whose last line tells the cause, by what that line looks like."""

NO_CAUSE = "NO CAUSE"


def kind_of_ending(code: int, output: str) -> str:
    """Return the kind of a command's ending by its last line; that without a cause begins with NO_CAUSE."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    if code < 0:
        return f"killed by {signal.Signals(-code).name}"
    last = lines[-1] if lines else "not a word"
    if code == 0 and not last.startswith("MLflow is incomplete"):
        return "finished"
    kind = next((kind for kind, looks in CAUSES.items() if re.search(looks, last)), None)
    return f"{kind} (exit {code})" if kind else f"{NO_CAUSE} (exit {code}): {last}"


class Ledger:
    """The settled records of a sweep: none may change, but those whose own files a fault has damaged."""

    def __init__(self) -> None:
        """Nothing is known yet."""
        self.settled: dict[str, str] = {}

    def look(self, folder: SweepFolder) -> None:
        """Note the settled records with whole steps; fail if one of those noted before changed or is gone."""
        self.check(folder)
        for path in folder.latest_records():
            run = path.parent.name
            try:
                record = read_record(folder, run) if path.is_file() else None
                if record is not None and record.outcome.settled and steps_damage(record, folder.steps(run)) is None:
                    self.settled[run] = sha256_file(path)
            except DamagedFile:
                assert run not in self.settled, f"the record of {run} is damaged, and no fault was there"

    def check(self, folder: SweepFolder) -> None:
        """Fail if a noted record changed or is gone."""
        for run, digest in self.settled.items():
            path = folder.record(run)
            assert path.is_file(), f"the record of {run} is lost"
            assert sha256_file(path) == digest, f"the record of {run} changed, or it was measured again"

    def forgive(self, path: Path) -> None:
        """Forget the run whose record or steps lie at `path`, which a fault is about to damage."""
        if path.name in ("record.json", "steps.parquet") and "attempts" not in path.parts:
            self.settled.pop(path.parent.name, None)


def check_words(code: int, output: str) -> None:
    """Fail if the output of a command is a traceback, or if a command that failed named no remedy at its end.

    A command that a signal killed could say nothing, and one that the user interrupted says that. Before a line of ours
    is read, Python itself ends by SIGINT with a traceback.
    """
    if code == -signal.SIGINT:
        return
    assert "Traceback (most recent call last)" not in output, output
    if code == EXIT_INTERRUPTED:
        assert "interrupted" in output, output
    elif code > 0:
        said = [line for line in output.splitlines() if line.strip()]
        assert said, "the command failed without a word"
        assert any(REMEDY.search(line) for line in said[-3:]), f"no remedy: {output}"


def check_whole(folder: SweepFolder) -> None:
    """Fail unless every wanted run is measured and stands once, in files and in MLflow, and the report follows."""
    manifest = Manifest.read(folder.manifest)
    wanted = manifest.wanted_runs()
    records = {run: read_record(folder, run) for run in wanted}
    assert {record.outcome for record in records.values()} == {Outcome.measured}, records
    digests = {run: sha256_file(folder.record(run)) for run in wanted}
    for block in manifest.blocks:
        assert Done.read(folder.done(block.name)).records == {run: digests[run] for run in block.runs}
    found = audit(folder)
    assert (found.reopened, found.damaged, found.unsettled) == ((), (), ())
    assert published(folder.home / "mlflow.db", folder.name) == Counter(digests.values())
    _check_report(folder)


def _check_report(folder: SweepFolder) -> None:
    stood = {path.name: path.read_bytes() for path in folder.report.iterdir() if path.is_file()}
    for name in finalize(folder):
        assert (folder.report / name).read_bytes() == stood.get(name), f"{name} of the report is another one"


def published(database: Path, sweep: str) -> Counter[str]:
    """Return how often MLflow's store shows each record of the sweep, by its checksum."""
    query = (
        "select value from runs join tags using (run_uuid) join experiments using (experiment_id)"
        " where tags.key = 'record_sha256' and runs.lifecycle_stage = 'active' and experiments.name = ?"
    )
    with closing(sqlite3.connect(database)) as connection:
        return Counter(str(row[0]) for row in connection.execute(query, (sweep,)))


def check_nothing_left(folder: SweepFolder, temporary: Path) -> None:
    """Fail if a process, a hold or a temporary file is left."""
    running = left_running(folder.home, temporary)
    assert running == [], f"processes are left: {running}"
    names = ("*.lock.json", "started.json", "stop", "*.halt.json", ".*.part", ".mlflow.db.*", ".import.*")
    left = [path for name in names for path in folder.home.rglob(name) if ".damaged-" not in str(path)]
    assert left == [], f"marks are left: {left}"
    left = sorted(temporary.rglob("*"))
    assert left == [], f"temporary files are left: {left}"


def left_running(home: Path, temporary: Path) -> list[str]:
    """Return the command lines of living processes that work in `home`, or have their temporary files there."""
    found = {process.pid: process for process in working_in(home)}
    for process in psutil.process_iter(["environ"]):
        variables = process.info["environ"] or {}
        if variables.get("TMPDIR", "").startswith(str(temporary)) and process.status() != psutil.STATUS_ZOMBIE:
            found[process.pid] = process
    return [" ".join(process.cmdline()) for process in found.values()]
