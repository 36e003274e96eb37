"""Robustness: however a run ends, the device is left as it was before."""

from __future__ import annotations

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


SEARCH = ("experiment=cases", "case=searched", "measure=largest_batch", "measure.batch_resolution=0.05", "repeats=1")
"""The overrides of a search for the largest batch, to a twentieth of it."""


def largest_batch(place: Place, findings: Findings) -> None:
    """The largest batch is found by `task=largest_batch`; it trains, twice the next one is out of memory."""
    board = _needs_memory(place)
    case = cases.largest_batch(place.small)
    place.cases({"searched": case | {"task": "largest_batch"}, "around": case})
    (found,) = place.sweep("largest_batch", *SEARCH)
    _clean(board, findings, "after the search")
    trials = (found.body.get("largest_batch") or {}).get("trials", [])
    rows = [(one["batch_size"], one["fits"], (one.get("peak_bytes") or 0) / 2**20, one["seconds"]) for one in trials]
    findings.table("Batches that were tried (ResNet-50, bf16-mixed)", ("batch", "fits", "peak MiB", "s"), rows)
    largest, beyond = int(found.seen("largest_batch")), int(found.seen("too_large_batch"))
    findings.expect("memory ends between two batches", largest < beyond <= 1.06 * largest + 1, (largest, beyond))
    peak, limit = found.seen("peak_rank_bytes"), found.seen("memory_limit_bytes")
    findings.expect("the peak of the largest one is within the bound", 0.5 * limit < peak <= limit, (peak, limit))
    wanted = {largest: "measured", 2 * beyond: "out_of_memory"}
    sizes = f"batch_size={','.join(map(str, wanted))}"
    around = place.sweep("around", "experiment=cases", "case=around", sizes, *window(place), "measure.min_steps=5")
    outcomes = {one.body["axes"]["batch_size"]: one.outcome for one in around}
    findings.expect("the largest one trains, and twice what is too large does not", outcomes == wanted, outcomes)
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
    Check("robustness", "a rank killed inside a kernel", 0.5, killed_in_a_kernel),
    Check("robustness", "Ctrl-C", 0.5, interrupted),
    Check("robustness", "the largest batch, and back", 2.0, largest_batch),
    Check("robustness", "out of memory ten times", 1.5, out_of_memory_often),
)
