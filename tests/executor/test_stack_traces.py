"""What each rank was doing when it hung is read from the stacks in the log."""

from __future__ import annotations

from pathlib import Path

import pytest

import accelsweep
from accelsweep.config.sweep_options import Limits
from accelsweep.executor.attempt_outcome import classify
from accelsweep.executor.run_watchdog import Ending
from accelsweep.executor.stack_traces import describe_hang

TORCH, LIGHTNING = "/venv/lib/python3.11/site-packages/torch", "/venv/lib/python3.11/site-packages/lightning/pytorch"
OURS = str(Path(accelsweep.__file__).parent)
ENTRY = (f"{OURS}/worker/main.py:56 run_rank", "/venv/bin/accelsweep:8 <module>")
FETCHING = (
    "/usr/lib/python3.11/selectors.py:415 select",
    "/usr/lib/python3.11/multiprocessing/queues.py:113 get",
    f"{TORCH}/utils/data/dataloader.py:1297 _try_get_data",
    f"{TORCH}/utils/data/dataloader.py:741 __next__",
)


def stack(process: str, *calls: str, thread: str = "Current thread") -> list[str]:
    """Return what a process prints for calls as `file:line function`, innermost first."""
    head = [f"accelsweep: stacks of {process}, process 7, sleeping in futex_wait"] if process else []
    parts = [(call.rpartition(":")[0], *call.rpartition(":")[2].split(" ")) for call in calls]
    frames = [f'  File "{file}", line {line} in {function}' for file, line, function in parts]
    return [*head, f"{thread} 0x00007fce847f4b80 (most recent call first):", *frames, ""]


WORKER = stack(
    "a child of rank 0",
    "/usr/lib/python3.11/logging/__init__.py:922 acquire",
    "/home/me/own.py:12 __getitem__",
    f"{TORCH}/utils/data/_utils/worker.py:349 _worker_loop",
    *ENTRY,
)
BACKWARD = stack(
    "rank 1", f"{TORCH}/autograd/graph.py:829 _engine_run_backward", f"{LIGHTNING}/x.py:9 backward", *ENTRY
)
BARRIER = (f"{TORCH}/distributed/distributed_c10d.py:4635 barrier", f"{OURS}/measure/timed_window.py:90 begin", *ENTRY)
HANGING = ("/usr/lib/python3.11/socket.py:718 readinto", "/home/me/io.py:3 read", "/home/me/own.py:30 training_step")


@pytest.mark.parametrize(
    ("lines", "steps", "expected"),
    [
        (
            [
                *stack("rank 0", *FETCHING, f"{OURS}/worker/loops/trainer_replacement.py:66 endless", *ENTRY),
                *WORKER,
                *WORKER,
            ],
            0,
            "it was waiting for the first training batch of 2 workers, which were in __getitem__ (own.py, line 12)",
        ),
        (
            stack("rank 0", *FETCHING, f"{LIGHTNING}/loops/evaluation_loop.py:150 run", *ENTRY),
            40,
            "it was waiting for the next validation batch of its workers",
        ),
        (
            stack("rank 0", *FETCHING, f"{LIGHTNING}/loops/training_epoch_loop.py:150 advance", *ENTRY),
            40,
            "it was waiting for the next training batch of its workers",
        ),
        (
            [*stack("rank 0", *HANGING, *ENTRY), *BACKWARD],
            3,
            "rank 0 was in training_step, in read (io.py, line 3); "
            "rank 1 was in the backward pass, where ranks wait for each other's gradients",
        ),
        (
            [*stack("rank 0", *BARRIER), *stack("rank 1", *BARRIER)],
            0,
            "ranks 0, 1 were waiting for the other ranks in barrier",
        ),
        (
            [
                *stack("rank 0", "/usr/lib/python3.11/threading.py:331 wait", thread="Thread"),
                *stack("", *HANGING, *ENTRY),
            ],
            0,
            "it was in training_step, in read (io.py, line 3)",
        ),
        (["output", *stack("rank 0")], 0, ""),
    ],
    ids=["first batch", "validation", "next batch", "two ranks", "barrier", "several threads", "empty stack"],
)
def test_the_stacks_say_where_each_rank_hung(tmp_path: Path, lines, steps, expected, last_line) -> None:
    (tmp_path / "run.log").write_text("\n".join(lines))
    hung = describe_hang(tmp_path / "run.log", steps)
    assert hung == expected
    ending = Ending((-15,), "time_limit", frozenset(), frozenset({0}), False, 0, 1.0, stacks=True)
    reason = classify(ending, {}, "", Limits(run_seconds=60.0), hung).reason
    assert reason == "it ran longer than 60 s (limits.run_seconds)" + (f"; {expected}" if expected else "")
    last_line("a run that ends by time", str(reason))
