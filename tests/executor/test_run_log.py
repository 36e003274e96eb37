"""A run's log keeps whole lines, masks secrets in URLs wherever the pipe split them, and stays bounded."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from accelsweep.executor.run_log import STACKS_HEADING, RunLog, log_tail

SECRET = b"fetching postgresql://me:hunter2@db/labels\n"
MASKED = b"fetching postgresql://***@db/labels\n"


def logged(path: Path, *chunks: bytes, limit_bytes: int = 1_000_000) -> bytes:
    """Return the content of a log whose pipe received these chunks one by one."""
    with RunLog(path, limit_bytes) as log:
        for chunk in chunks:
            os.write(log.write_end, chunk)
            log.pump()
    return path.read_bytes()


@pytest.mark.parametrize("cut", range(len(SECRET)))
def test_a_secret_is_masked_wherever_the_pipe_split_its_line(tmp_path: Path, cut: int) -> None:
    assert logged(tmp_path / "run.log", SECRET[:cut], SECRET[cut:]) == MASKED


def test_a_last_line_without_a_newline_is_kept_and_masked(tmp_path: Path) -> None:
    assert logged(tmp_path / "run.log", b"one\n", SECRET.rstrip()) == b"one\n" + MASKED.rstrip()


def test_binary_output_is_unchanged(tmp_path: Path) -> None:
    noise = bytes(range(256)) * 3
    assert logged(tmp_path / "run.log", noise[:300], noise[300:]) == noise


def test_an_endless_line_is_bounded(tmp_path: Path) -> None:
    content = logged(tmp_path / "run.log", *[b"x" * 60_000] * 10, limit_bytes=100_000)
    assert 100_000 <= len(content) < 100_200
    assert b"limits.log_bytes" in content


@pytest.mark.timeout(20)
def test_endless_output_does_not_block_the_executor(tmp_path: Path) -> None:
    with RunLog(tmp_path / "run.log", limit_bytes=1000) as log:
        os.close(log.read_end)
        log.read_end = os.open("/dev/zero", os.O_RDONLY)
        try:
            log.pump()
            assert log.descriptors() == [log.read_end]
        finally:
            log.eof = True


def test_the_log_tail_leaves_out_lightnings_banner(tmp_path: Path) -> None:
    advertised = "\N{ELECTRIC LIGHT BULB} Tip: For seamless cloud logging and experiment tracking, try installing x"
    log = tmp_path / "run.log"
    log.write_text(f"GPU available: False, used: False\nTPU available: False, using: 0 TPU cores\n{advertised}\nboom\n")
    assert log_tail(log) == "boom"


def test_the_log_tail_leaves_out_advice_of_libraries_but_not_warnings_about_the_machine(tmp_path: Path) -> None:
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
    warning = (
        "torch/cuda/__init__.py:129: UserWarning: CUDA initialization: the driver is too old | return torch._C._cuda_"
    )
    assert log_tail(tmp_path / "run.log") == f"{place}/{warning}getDeviceCount() > 0"


def test_the_tail_of_a_missing_log_is_empty(tmp_path: Path) -> None:
    assert log_tail(tmp_path / "none") == ""


def test_the_log_tail_ends_before_the_stacks_however_long_these_are(tmp_path):
    path = tmp_path / "run.log"
    path.write_text(f"step 7 began\n{STACKS_HEADING} rank 0\n" + "  File model.py, line 3 in forward\n" * 5000)
    assert log_tail(path) == "step 7 began"
