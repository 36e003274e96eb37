"""A run's log keeps whole lines, masks the secrets in their addresses wherever the pipe cut them, and stays bounded."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from accelsweep.executor.processes import STACKS_OF, RunLog, last_words

SECRET = b"fetching postgresql://me:hunter2@db/labels\n"
SHOWN = b"fetching postgresql://***@db/labels\n"


def logged(path: Path, *chunks: bytes, limit_bytes: int = 1_000_000) -> bytes:
    """What the log holds after these chunks came through its pipe one by one."""
    with RunLog(path, limit_bytes) as log:
        for chunk in chunks:
            os.write(log.write_end, chunk)
            log.pump()
    return path.read_bytes()


@pytest.mark.parametrize("cut", range(len(SECRET)))
def test_a_secret_is_masked_wherever_the_pipe_cut_its_line(tmp_path: Path, cut: int) -> None:
    assert logged(tmp_path / "run.log", SECRET[:cut], SECRET[cut:]) == SHOWN


def test_a_last_line_without_an_end_is_kept_and_masked(tmp_path: Path) -> None:
    assert logged(tmp_path / "run.log", b"one\n", SECRET.rstrip()) == b"one\n" + SHOWN.rstrip()


def test_bytes_that_are_no_text_come_through_unchanged(tmp_path: Path) -> None:
    noise = bytes(range(256)) * 3
    assert logged(tmp_path / "run.log", noise[:300], noise[300:]) == noise


def test_an_endless_line_is_written_and_bounded(tmp_path: Path) -> None:
    kept = logged(tmp_path / "run.log", *[b"x" * 60_000] * 10, limit_bytes=100_000)
    assert 100_000 <= len(kept) < 100_200
    assert b"limits.log_bytes" in kept


@pytest.mark.timeout(20)
def test_output_that_never_stops_is_left_for_the_next_time(tmp_path: Path) -> None:
    with RunLog(tmp_path / "run.log", limit_bytes=1000) as log:
        os.close(log.read_end)
        log.read_end = os.open("/dev/zero", os.O_RDONLY)
        try:
            log.pump()
            assert log.descriptors() == [log.read_end]
        finally:
            log.ended = True


def test_what_lightning_prints_at_every_start_is_no_last_word(tmp_path: Path) -> None:
    advertised = "\N{ELECTRIC LIGHT BULB} Tip: For seamless cloud logging and experiment tracking, try installing x"
    log = tmp_path / "run.log"
    log.write_text(f"GPU available: False, used: False\nTPU available: False, using: 0 TPU cores\n{advertised}\nboom\n")
    assert last_words(log) == "boom"


def test_advice_of_libraries_is_no_last_word_and_a_warning_about_the_machine_is(tmp_path: Path) -> None:
    place = "/venv/lib/python3.11/site-packages"
    (tmp_path / "run.log").write_text(
        f"{place}/lightning/fabric/plugins/environments/slurm.py:204: The `srun` command is available on your system\n"
        f"{place}/lightning/pytorch/utilities/_pytree.py:21: `isinstance(treespec, LeafSpec)` is deprecated, use\n"
        f"{place}/lightning/pytorch/trainer/connectors/data_connector.py:434: PossibleUserWarning: few workers\n"
        "  rank_zero_warn(\n"
        f"{place}/some/old.py:7: FutureWarning: this will be removed\n  warnings.warn(\n"
        "LOCAL_RANK: 0 - CUDA_VISIBLE_DEVICES: [0]\n"
        f"{place}/torch/cuda/__init__.py:129: UserWarning: CUDA initialization: the driver is too old\n"
        "  return torch._C._cuda_getDeviceCount() > 0\n"
    )
    told = (
        "torch/cuda/__init__.py:129: UserWarning: CUDA initialization: the driver is too old | return torch._C._cuda_"
    )
    assert last_words(tmp_path / "run.log") == f"{place}/{told}getDeviceCount() > 0"


def test_the_last_words_of_a_missing_log_are_empty(tmp_path: Path) -> None:
    assert last_words(tmp_path / "none") == ""


def test_the_last_words_stand_before_stacks_however_long_these_are(tmp_path):
    path = tmp_path / "run.log"
    path.write_text(f"step 7 began\n{STACKS_OF} rank 0\n" + "  File model.py, line 3 in forward\n" * 5000)
    assert last_words(path) == "step 7 began"
