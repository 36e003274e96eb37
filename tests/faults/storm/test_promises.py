"""The storm's check of a failed command's words: a remedy counts, and a path or a command's output does not."""

from __future__ import annotations

import pytest
from promises import NO_CAUSE, check_words, kind_of_ending

DAMAGED = "accelsweep: error: sweeps/tiny/manifest.json: not a complete JSON document"


@pytest.mark.parametrize(
    "said",
    [
        f"{DAMAGED}; the same command resumes",
        f"{DAMAGED}: remove it",
        "accelsweep: error: sweep 'tiny' is run by process 7 on this; --cancel-old ends it",
        "the disk has 120 MB free, but limits.free_disk_bytes requires 200 MB",
        "2 of 4 runs have no final outcome (2 not_run): the same command tries them again",
        "`accelsweep publish tiny` sends them later",
    ],
)
def test_a_remedy_is_enough(said: str) -> None:
    check_words(1, f"[1/2] measured\n{said}\n")


@pytest.mark.parametrize(
    "said",
    [
        DAMAGED,
        "report: reports/tiny/index.html",
        "all records are in MLflow: sqlite:///mlflow.db",
        "accelsweep: error: it did not work",
        "rank 0 was ended by SIGKILL; sweeps/tiny/logs/b1.log has more",
        "",
    ],
)
def test_a_failure_without_a_remedy_is_found(said: str) -> None:
    with pytest.raises(AssertionError):
        check_words(1, said)


def test_a_traceback_is_found_even_with_a_remedy() -> None:
    with pytest.raises(AssertionError):
        check_words(1, "Traceback (most recent call last)\nthe same command resumes")


@pytest.mark.parametrize(
    ("code", "last", "kind"),
    [
        (0, "MLflow: accelsweep ui", "finished"),
        (0, "MLflow is incomplete: the disk is full", "MLflow not filled, with the cause (exit 0)"),
        (-9, "", "killed by SIGKILL"),
        (130, "interrupted; every finished run is kept. Resume with: accelsweep run", "interrupted (exit 130)"),
        (1, "crashed: 1 run: ValueError: 3", "runs failed, with their reasons (exit 1)"),
        (1, "not_run: 2 runs: the disk is full", "runs not reached, with the reason (exit 1)"),
        (1, "Snakemake ended early: it was told to stop", "Snakemake ended early, with the cause (exit 1)"),
        (2, "accelsweep: wrong input: no experiment 'x'", "refused, with the cause (exit 2)"),
    ],
)
def test_an_ending_is_named_by_its_last_line(code: int, last: str, kind: str) -> None:
    assert kind_of_ending(code, f"[1/2] measured\n{last}\n") == kind


@pytest.mark.parametrize(
    ("code", "last"),
    [
        (1, "Snakemake ended early: it ended with exit code 1; sweeps/tiny/logs/snakemake.log has more"),
        (1, "no report was written, because Snakemake failed: it ended with exit code 1"),
        (1, "2 of 4 runs have no final outcome (2 not_run): the same command tries them again"),
        (0, "MLflow is incomplete: accelsweep publish tiny"),
        (1, ""),
    ],
)
def test_an_ending_without_a_cause_is_found(code: int, last: str) -> None:
    assert kind_of_ending(code, last).startswith(NO_CAUSE)
