"""The storm's check of a failed command's words: a remedy counts, and a path or a command's output does not."""

from __future__ import annotations

import pytest
from promises import check_words

DAMAGED = "accelsweep: error: sweeps/tiny/manifest.json: not a whole JSON document"


@pytest.mark.parametrize(
    "said",
    [
        f"{DAMAGED}; the same command goes on",
        f"{DAMAGED}: remove it",
        "accelsweep: error: sweep 'tiny' is run by process 7 on this; --cancel-old ends it",
        "the disk has 120 MB free, limits.free_disk_bytes asks for 200 MB",
        "2 of 4 runs have no final outcome (2 not_run); the same command tries them again",
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
        check_words(1, "Traceback (most recent call last)\nthe same command goes on")
