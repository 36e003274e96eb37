"""Robustness: however a run ends, the device is left as it was before."""

from __future__ import annotations

import itertools
import os
import signal
from pathlib import Path

import cases
import psutil
from board import Board
from calibration import window
from checks import CannotApply, Check, Findings
from place import Place, wait_for

TIMES = 10
LONG_SECONDS = 3.0
"""The length of the kernel during which a rank is killed."""


def batch_growth(place: Place, findings: Findings) -> None:
    """Batches grow until the memory is full; the rows say so, and the next run is as fast as before."""
    board = _needs_memory(place)
    sizes = (8, 32, 128, 512) if place.small else (128, 256, 512, 1024, 2048, 4096)
    case = cases.truth(place.small)["resnet50_bf16"]
    place.cases({"growth": {key: value for key, value in case.items() if key != "batch_size"}})
    overrides = (
        "experiment=cases",
        "case=growth",
        f"batch_size={','.join(map(str, sizes))}",
        f"data.samples={2 * sizes[-1]}",
    )
    records = place.sweep("growth", *overrides, *window(place), "measure.warmup_steps=3", "measure.min_steps=5")
    by_size = {int(record.body["axes"]["batch_size"]): record for record in records}
    rows = [
        (size, one.outcome, one.metric("samples_per_second"), (one.metric("peak_memory_allocated_bytes") or 0) / 2**30)
        for size, one in sorted(by_size.items())
    ]
    findings.table("Batch sizes (ResNet-50, bf16-mixed)", ("batch", "outcome", "samples/s", "peak GiB"), rows)
    outcomes = [row[1] for row in rows]
    known = {"measured", "out_of_memory"}
    findings.expect("every size is measured or out of memory", set(outcomes) <= known, outcomes)
    findings.expect("what fits stands before what does not", outcomes == sorted(outcomes), outcomes)
    findings.expect("some fit and some do not", set(outcomes) == known, outcomes)
    later = [b.outcome for a, b in itertools.pairwise(records) if a.outcome == "out_of_memory"]
    findings.note(f"runs right after one that was out of memory, in the order of the block: {later}")
    _clean(board, findings, "after the largest batch")


def out_of_memory_often(place: Place, findings: Findings) -> None:
    """Ten runs in a row without enough memory say so and leave nothing behind; the run after them is measured."""
    board = _needs_memory(place)
    place.cases({"far_too_large": cases.too_large(place.small), "fits": cases.known(0.005)})
    records = place.sweep("too_large", "experiment=cases", "case=far_too_large", *window(place, repeats=TIMES))
    outcomes = [record.outcome for record in records]
    findings.table(
        "Out of memory",
        ("repeat", "outcome", "reason"),
        [(one.body["repeat"], one.outcome, str(one.body["reason"])[:80]) for one in records],
    )
    findings.expect(f"all {TIMES} say out_of_memory", outcomes == ["out_of_memory"] * TIMES, outcomes)
    _clean(board, findings, f"after {TIMES} times out of memory")
    after = place.sweep("after", "experiment=cases", "case=fits", *window(place))
    findings.expect("the next run is measured", [one.outcome for one in after] == ["measured"], after[0].body["reason"])


def _needs_memory(place: Place) -> Board:
    if place.device == "cpu":
        raise CannotApply("a CPU has no device allocator: the kernel ends what takes too much of the host's memory")
    return place.board()


def killed_in_a_kernel(place: Place, findings: Findings) -> None:
    """A rank that is killed while its kernel runs is recorded as crashed, and the device is free again."""
    mark, name = place.home / "killed.pid", "killed"
    place.cases({name: cases.known(LONG_SECONDS, str(mark))})
    board = _board_or_none(place)
    with place.started(name, "experiment=cases", f"case={name}", *window(place), "limits.retries=0") as command:
        rank = wait_for(lambda: _marked(mark), "a rank inside its kernel")
        os.kill(rank, signal.SIGKILL)
        code = command.wait(120)
    records = place.records(name)
    findings.expect("the command says that a run has no number", code == 1, f"exit code {code}")
    findings.expect("the record says crashed", [one.outcome for one in records] == ["crashed"], _endings(place, name))
    findings.expect(
        "its reason names the signal", "SIGKILL" in str(records[0].body["reason"]), records[0].body["reason"]
    )
    _nothing_left(place, board, findings, rank, "after the kill")


def interrupted(place: Place, findings: Findings) -> None:
    """Ctrl-C ends the command with 130, its processes with it, and the device is free again."""
    mark, name = place.home / "interrupted.pid", "interrupted"
    place.cases({name: cases.known(LONG_SECONDS, str(mark))})
    board = _board_or_none(place)
    with place.started(name, "experiment=cases", f"case={name}", *window(place)) as command:
        rank = wait_for(lambda: _marked(mark), "a rank inside its kernel")
        os.killpg(command.pid, signal.SIGINT)
        code = command.wait(120)
    findings.expect("the command ends with 130", code == 130, f"exit code {code}")
    findings.expect("the run has no record", not place.records(name), _endings(place, name))
    _nothing_left(place, board, findings, rank, "after Ctrl-C")


def _marked(mark: Path) -> int | None:
    text = mark.read_text("utf-8") if mark.exists() else ""
    return int(text) if text else None


def _endings(place: Place, name: str) -> str:
    return "; ".join(f"{one.outcome}: {one.body['reason']}" for one in place.records(name)) or "no record"


def _board_or_none(place: Place) -> Board | None:
    return place.board() if place.asynchronous else None


def _nothing_left(place: Place, board: Board | None, findings: Findings, rank: int, when: str) -> None:
    findings.expect(f"{when} the rank is gone", not psutil.pid_exists(rank), f"process {rank}")
    left = [process.pid for process in psutil.process_iter() if _works_in(process, place.home)]
    findings.expect(f"{when} no process works in the home", not left, left)
    if board is None:
        findings.note(f"a {place.device} device has no memory of its own that could stay occupied")
    else:
        _clean(board, findings, when)


def _works_in(process: psutil.Process, home: Path) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE and Path(process.cwd()).is_relative_to(home.resolve())
    except (psutil.Error, OSError):
        return False


def _clean(board: Board, findings: Findings, when: str) -> None:
    done, left = board.clean()
    findings.expect(f"{when} the device is as idle as before", done, left)


CHECKS = (
    Check("robustness", "a rank killed inside a kernel", 0.4, killed_in_a_kernel),
    Check("robustness", "Ctrl-C", 0.4, interrupted),
    Check("robustness", "batches up to out of memory", 0.9, batch_growth),
    Check("robustness", "out of memory ten times", 1.2, out_of_memory_often),
)
