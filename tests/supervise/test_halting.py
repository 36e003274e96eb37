"""Whatever ends a block before its runs are measured reaches the user: `status`, `runs` and the report say why."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from patience import until
from tiny_supervisor import Supervised

from accelsweep.analysis.collect import collect
from accelsweep.cli.runs import print_runs
from accelsweep.cli.status import print_status
from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import Manifest
from accelsweep.records.run_record import Outcome


def _stop(folder: SweepFolder) -> None:
    folder.stop.touch()


def _damage(folder: SweepFolder) -> None:
    (block,) = folder.root.glob("blocks/*.json")
    block.write_bytes(block.read_bytes()[:-20])


def _make_a_link_to_itself_of_attempts(folder: SweepFolder) -> None:
    """Nobody foresaw this."""
    for run in Manifest.read(folder.manifest).wanted_runs():
        folder.run(run).mkdir(parents=True)
        (folder.run(run) / "attempts").symlink_to("attempts")


WAYS: list[tuple[tuple[str, ...], Mapping[str, Any], Callable[[SweepFolder], None] | None, str]] = [
    (("measured",), {"free_disk_bytes": 10**18}, None, "limits.free_disk_bytes asks for 1000000000000 MB"),
    (("measured",), {}, _stop, "the time budget was spent"),
    (("slow:1", "slow:2"), {"block_seconds": 0.01}, None, "the 0.01 s of its block (limits.block_seconds) were spent"),
    (("measured",), {}, _damage, "the same `accelsweep run` writes it anew"),
    (("measured",), {}, _make_a_link_to_itself_of_attempts, "the supervisor of its block failed (OSError"),
    (("kill_supervisor",), {}, None, "ended without a word"),
]


@pytest.mark.parametrize(("tasks", "limits", "prepare", "words"), WAYS, ids=[way[-1] for way in WAYS])
def test_each_way_in_which_a_block_ends_early_has_words_that_reach_the_user(
    supervised: Supervised, capsys, tasks, limits, prepare, words: str
) -> None:
    supervised.plan(*tasks, limits=limits)
    if prepare is not None:
        prepare(supervised.folder)
    assert supervised.run()[0] != 0
    assert words in told_by_all(supervised, capsys)


def test_a_stopped_supervisor_is_told_until_the_next_one_begins_its_work(supervised: Supervised, capsys) -> None:
    supervised.plan("lasting")
    process = supervised.start()
    until((supervised.attempt() / "run-spec.json").exists)
    process.terminate()
    assert process.wait() == 128 + signal.SIGTERM
    assert "the supervisor of its block was stopped by SIGTERM" in told_by_all(supervised, capsys)
    again = supervised.start()
    until((supervised.attempt(attempt=2) / "run-spec.json").exists)
    assert "stopped by" not in told_by_all(supervised, capsys), "it goes on"
    assert again.wait() == 0
    assert supervised.folder.halts() == []


def told_by_all(supervised: Supervised, capsys) -> str:
    """Return the reason that `status`, `runs` and the table of all runs give for the last run, if they agree on one."""
    print_status(supervised.home, "tiny")
    status = capsys.readouterr().out
    print_runs(supervised.home, "tiny", "not_run")
    runs = capsys.readouterr().out
    row = collect(supervised.folder)[-1]
    assert row.outcome is Outcome.not_run
    why = str(row.reason).removesuffix("; the same command measures it")
    assert f"{why}; the same `accelsweep run` measures it" in runs
    assert (f"run: {why}" in status) == (why != "it has not run yet")
    return why


def test_a_block_from_the_future_is_brought_back_before_its_done_file_is_too_old_for_snakemake(
    supervised: Supervised,
) -> None:
    supervised.plan("measured")
    later = time.time() + 86_400
    os.utime(supervised.block, (later, later))
    assert supervised.run()[0] == 0
    done = supervised.folder.done(supervised.block.stem)
    os.utime(done)  # as Snakemake stamps each output
    assert supervised.block.stat().st_mtime <= done.stat().st_mtime
