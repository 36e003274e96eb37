"""Faults at seeded random instants: whatever is killed or damaged, the same command completes the sweep.

After each injection the block is run again until it is done, and the invariants are checked: no finished run is lost or
measured again, no record is duplicated, the done file is true, no process is left, no foreign file is touched.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest
from polling import PATIENCE_SECONDS
from record_audit import mounted
from tiny_executor import TinyBlock

from accelsweep.errors import DamagedFile
from accelsweep.executor.result_reuse import audit
from accelsweep.files import sha256_file
from accelsweep.records.plan import Done
from accelsweep.records.run_record import Record, steps_damage

pytestmark = pytest.mark.real

SETTINGS = [f"brief:{number}" for number in range(4)]
SPAN_SECONDS = 0.75
"""The block takes longer: four runs of a fifth of a second each. So there is always something to strike."""


@dataclass
class Ledger:
    """What is known of a sweep from outside: a finished record may never change again.

    After a SIGKILL, temporary files and marks of the killed attempt may stay behind; otherwise nothing may.
    """

    tiny_block: TinyBlock
    finished: dict[str, str] = field(default_factory=dict)
    killed: bool = False

    def look(self) -> None:
        """Note the finished records; fail if one of those noted before changed or is gone."""
        for run in self.tiny_block.runs():
            path = self.tiny_block.folder.record(run)
            if run in self.finished:
                assert sha256_file(path) == self.finished[run], f"{run} was lost or measured again"
            elif path.exists():
                Record.read(path)
                self.finished[run] = sha256_file(path)

    def forget_damaged(self) -> None:
        """Forget runs whose record or steps the test itself damaged or deleted."""
        for run in list(self.finished):
            try:
                record = Record.read(self.tiny_block.folder.record(run))
            except (DamagedFile, FileNotFoundError):
                del self.finished[run]
            else:
                if steps_damage(record, self.tiny_block.folder.steps(run)):
                    del self.finished[run]

    def complete(self) -> None:
        """Run the block to its end; check everything."""
        code, output = self.tiny_block.run()
        assert code == 0, output
        self.look()
        assert len(self.finished) == len(SETTINGS)
        folder, block = self.tiny_block.folder, self.tiny_block.name
        assert Done.read(folder.done(block)).records == self.finished
        assert audit(folder).reopened == ()
        assert not folder.lock(block).exists()
        assert self.killed or not [*folder.root.rglob("*.part"), *folder.root.rglob("started.json")]
        assert processes_in(self.tiny_block.home) == []


def processes_in(home: Path) -> list[int]:
    """Return the processes that were started for the sweep in `home` and still run."""
    running = psutil.process_iter(["cwd", "status"])
    return [
        process.pid
        for process in running
        if process.info["cwd"] == str(home) and process.info["status"] != psutil.STATUS_ZOMBIE
    ]


def inject(process: subprocess.Popen[str], seconds: float, number: signal.Signals) -> None:
    """Send a signal to the executor after so many seconds, and wait for its end."""
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(seconds)
    process.send_signal(number)
    process.communicate(timeout=PATIENCE_SECONDS)


@pytest.fixture
def ledger(tiny_block: TinyBlock) -> Ledger:
    tiny_block.plan(*SETTINGS)
    (tiny_block.home / "foreign").write_text("not ours")
    return Ledger(tiny_block)


@pytest.mark.parametrize("seed", range(6))
def test_a_killed_executor_loses_no_finished_run(ledger: Ledger, seed: int) -> None:
    dice = random.Random(seed)
    ledger.killed = True
    inject(ledger.tiny_block.start(), dice.uniform(0.1, SPAN_SECONDS), signal.SIGKILL)
    ledger.look()
    ledger.complete()
    assert (ledger.tiny_block.home / "foreign").read_text() == "not ours"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_stopped_executor_loses_no_finished_run_and_leaves_no_half_written_file(
    ledger: Ledger, number: signal.Signals
) -> None:
    inject(ledger.tiny_block.start(), random.Random(int(number)).uniform(0.2, SPAN_SECONDS), number)
    assert not list(ledger.tiny_block.folder.root.rglob("*samples.jsonl"))
    ledger.look()
    ledger.complete()


@pytest.mark.parametrize("seed", range(3))
def test_a_killed_rank_costs_one_more_attempt_and_nothing_else(ledger: Ledger, seed: int) -> None:
    process = ledger.tiny_block.start()
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(random.Random(seed).uniform(0.3, SPAN_SECONDS))
    for rank in psutil.Process(process.pid).children():
        with contextlib.suppress(ProcessLookupError):  # it may have come to its own end
            os.kill(rank.pid, signal.SIGKILL)
    process.communicate(timeout=PATIENCE_SECONDS)
    ledger.complete()


@pytest.mark.parametrize("seed", range(4))
def test_a_damaged_record_done_file_or_steps_file_is_never_used(ledger: Ledger, seed: int) -> None:
    dice = random.Random(seed)
    ledger.tiny_block.run()
    folder = ledger.tiny_block.folder
    victims = [
        folder.record(ledger.tiny_block.runs()[dice.randrange(len(SETTINGS))]),
        folder.done(ledger.tiny_block.name),
        folder.steps(ledger.tiny_block.runs()[dice.randrange(len(SETTINGS))]),
    ]
    ledger.look()
    for path in victims:
        content = bytearray(path.read_bytes())
        if dice.random() < 0.5:
            del content[dice.randrange(len(content)) :]
        else:
            content[dice.randrange(len(content) - 1)] ^= 1 << dice.randrange(8)
        path.write_bytes(bytes(content))
    ledger.forget_damaged()
    assert audit(folder).reopened == (ledger.tiny_block.name,)
    ledger.complete()


def test_a_read_only_folder_is_a_clear_error(ledger: Ledger, tmp_path: Path) -> None:
    ledger.tiny_block.run()
    ledger.look()
    folder = ledger.tiny_block.folder
    folder.done(ledger.tiny_block.name).unlink()
    with mounted(folder.root, "ro"):
        code, output = ledger.tiny_block.run()
    assert code == 1
    assert "Read-only file system" in output
    assert str(folder.root) in output
    ledger.complete()


def test_a_full_disk_is_a_clear_error_and_not_the_runs_fault(tiny_block: TinyBlock) -> None:
    tiny_block.home.mkdir(parents=True)
    with mounted(tiny_block.home, "size=512k"):
        tiny_block.plan(*SETTINGS, limits={"free_disk_bytes": 1000})
        ledger = Ledger(tiny_block)
        inject(tiny_block.start(), 0.5, signal.SIGTERM)
        ledger.look()
        ballast = tiny_block.home / "ballast"
        with pytest.raises(OSError, match="No space"):
            ballast.write_bytes(b"x" * 600_000)
        code, output = tiny_block.run()
        assert code == 1
        assert "free some space" in output
        ledger.look()
        ballast.unlink()
        ledger.complete()
