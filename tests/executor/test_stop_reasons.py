"""Whatever ends a block early reaches the user: `status`, `runs` and the report give the reason."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from polling import until
from tiny_executor import TinyBlock

from accelsweep.analysis.collect import collect
from accelsweep.cli.runs import print_runs
from accelsweep.cli.status import print_status
from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import Manifest
from accelsweep.results import Outcome


def _stop(folder: SweepFolder) -> None:
    folder.stop.touch()


def _damage(folder: SweepFolder) -> None:
    (block,) = folder.root.glob("blocks/*.json")
    block.write_bytes(block.read_bytes()[:-20])


def _link_attempts_to_itself(folder: SweepFolder) -> None:
    """Cause an unexpected error."""
    for run in Manifest.read(folder.manifest).wanted_runs():
        folder.run(run).mkdir(parents=True)
        (folder.run(run) / "attempts").symlink_to("attempts")


CASES: list[tuple[tuple[str, ...], Mapping[str, Any], Callable[[SweepFolder], None] | None, str]] = [
    (("measured",), {"free_disk_bytes": 10**18}, None, "limits.free_disk_bytes requires 1000000000000 MB"),
    (("measured",), {}, _stop, "the time budget was used up"),
    (
        ("slow:1", "slow:2"),
        {"block_seconds": 0.01},
        None,
        "the 0.01 s of its block (limits.block_seconds) were used up",
    ),
    (("measured",), {}, _damage, "running the same `accelsweep run` rewrites it"),
    (("measured",), {}, _link_attempts_to_itself, "the executor of its block failed (OSError"),
    (("kill_executor",), {}, None, "died without a message"),
]


@pytest.mark.parametrize(("tasks", "limits", "prepare", "message"), CASES, ids=[case[-1] for case in CASES])
def test_the_reason_why_a_block_ended_early_reaches_the_user(
    tiny_block: TinyBlock, capsys, tasks, limits, prepare, message: str
) -> None:
    tiny_block.plan(*tasks, limits=limits)
    if prepare is not None:
        prepare(tiny_block.folder)
    assert tiny_block.run()[0] != 0
    assert message in shown_reason(tiny_block, capsys)


def test_a_stop_reason_is_shown_until_the_next_executor_begins(tiny_block: TinyBlock, capsys) -> None:
    tiny_block.plan("lasting")
    process = tiny_block.start()
    until((tiny_block.attempt() / "run-spec.json").exists)
    process.terminate()
    assert process.wait() == 128 + signal.SIGTERM
    assert "the executor of its block was stopped by SIGTERM" in shown_reason(tiny_block, capsys)
    again = tiny_block.start()
    until((tiny_block.attempt(attempt=2) / "run-spec.json").exists)
    assert "stopped by" not in shown_reason(tiny_block, capsys), "it is running"
    assert again.wait() == 0
    assert tiny_block.folder.halts() == []


def shown_reason(tiny_block: TinyBlock, capsys) -> str:
    """Return the reason for the last run that `status`, `runs` and the table of all runs agree on."""
    print_status(tiny_block.home, "tiny")
    status = capsys.readouterr().out
    print_runs(tiny_block.home, "tiny", "not_run")
    runs = capsys.readouterr().out
    row = collect(tiny_block.folder)[-1]
    assert row.outcome is Outcome.not_run
    why = str(row.reason).removesuffix("; the same command measures it")
    assert f"{why}; the same command measures it" in runs
    assert (f"run: {why}" in status) == (why != "it has not run yet")
    return why


def test_a_block_file_from_the_future_does_not_make_its_done_file_outdated(tiny_block: TinyBlock) -> None:
    tiny_block.plan("measured")
    later = time.time() + 86_400
    os.utime(tiny_block.block_file, (later, later))
    assert tiny_block.run()[0] == 0
    done = tiny_block.done_file
    os.utime(done)  # as Snakemake touches each output
    assert tiny_block.block_file.stat().st_mtime <= done.stat().st_mtime
