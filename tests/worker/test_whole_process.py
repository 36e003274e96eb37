"""The user's own command, measured as a whole process: any program, started as it is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from one_rank import MEASURE, make_spec, run_ranks
from polling import until

from accelsweep.records.run_files import read_rank_result
from accelsweep.results import Outcome, RankResult
from accelsweep.worker.run_spec import RunSpec

pytestmark = pytest.mark.heavy


def whole_process(home: Path, command: list[str], kind: str = "command", **changes: Any) -> RunSpec:
    (home / "attempt").mkdir()
    entry = {"kind": kind, "command": command, "package": None, **changes.pop("entry", {})}
    settings: dict[str, Any] = {"loop": "script", "model": {}, "data": {}, "optimizer": None, "trainer": {}}
    measure = {**MEASURE, "scope": "process"}
    spec = make_spec(home / "attempt", entry=entry, **{**settings, "threads": None, "measure": measure, **changes})
    return replace(spec, world_size=spec.config.ranks)


def measured(home: Path, script: str, *arguments: str, **changes: Any) -> RankResult:
    """Run a shell script in `home` as a setting does."""
    (home / "train.sh").write_text(f"#!/bin/sh\n{script}\n")
    (home / "train.sh").chmod(0o755)
    (result,) = run_ranks(whole_process(home, ["./train.sh", *arguments], **changes), home)
    return result


def test_a_shell_script_is_timed_from_its_start_to_its_exit(tmp_path: Path) -> None:
    result = measured(tmp_path, "sleep 0.4")
    assert result.outcome is Outcome.measured, result.reason
    seconds, rate = result.metrics["process_seconds"].value, result.metrics["processes_per_hour"].value
    assert seconds is not None
    assert 0.4 < seconds < 2.0
    assert rate == pytest.approx(3600 / seconds)
    assert result.metrics["process_cpu_seconds"].value < 0.2  # type: ignore[operator]
    assert (result.files, result.effective) == (("train.sh",), None)


def test_the_variables_of_a_setting_reach_the_command(tmp_path: Path) -> None:
    result = measured(tmp_path, 'test "$MODE" = half', entry={"variables": {"MODE": "half"}})
    assert result.outcome is Outcome.measured, result.reason


def test_placeholders_become_the_settings_words_and_the_runs_seed_and_folder(tmp_path: Path) -> None:
    spec = whole_process(
        tmp_path,
        [
            "sh",
            "-c",
            'echo "$#" "$@" > seen; test -d "$1"',
            "x",
            "{run_dir}",
            "{precision}",
            "-b{batch_size}",
            "{seed}",
        ],
        entry={"placeholders": {"precision": "--amp --half", "batch_size": "64"}, "arguments": ["--lr=1"]},
    )
    (result,) = run_ranks(spec, tmp_path)
    assert result.outcome is Outcome.measured, result.reason
    count, folder, *words = (tmp_path / "seen").read_text().split()
    assert (count, words) == ("6", ["--amp", "--half", "-b64", "1", "--lr=1"])
    assert str(tmp_path / "attempt") in folder


def test_the_command_is_no_rank_and_sends_nothing_to_trackers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    result = measured(tmp_path, "env > seen", devices=2, threads=3)
    assert result.outcome is Outcome.measured, result.reason
    seen = dict(line.partition("=")[::2] for line in (tmp_path / "seen").read_text().splitlines())
    assert {"RANK", "WORLD_SIZE", "MASTER_ADDR", "NODE_RANK", "PYTHONSAFEPATH"}.isdisjoint(seen)
    assert (seen["WANDB_MODE"], seen["HF_HUB_OFFLINE"], seen["OMP_NUM_THREADS"]) == ("disabled", "0", "3")


def test_a_python_script_runs_in_the_projects_own_interpreter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "python").write_text(f'#!/bin/sh\necho theirs > seen\nexec {sys.executable} "$@"\n')
    (tmp_path / "python").chmod(0o755)
    (tmp_path / "train.py").write_text("import sys\nprint(sys.argv)\n")
    monkeypatch.setenv("ACCELSWEEP_PROJECT_PYTHON", str(tmp_path / "python"))
    (result,) = run_ranks(whole_process(tmp_path, ["train.py", "--epochs=1"], "script"), tmp_path)
    assert result.outcome is Outcome.measured, result.reason
    assert (tmp_path / "seen").read_text() == "theirs\n"


def test_a_command_that_fails_has_crashed_with_its_last_lines(tmp_path: Path) -> None:
    result = measured(tmp_path, "echo loading >&2; echo 'error: no such data' >&2; exit 3", "--data=x")
    assert result.outcome is Outcome.crashed
    assert result.reason == "./train.sh --data=x ended with exit code 3: loading | error: no such data"
    assert "process_seconds" not in result.metrics


def test_a_command_that_is_killed_has_crashed_with_the_signal(tmp_path: Path) -> None:
    result = measured(tmp_path, "kill -KILL $$")
    assert result.reason == "./train.sh was ended by SIGKILL (killed by signal: Killed)"


def test_a_command_that_runs_out_of_memory_is_recorded_as_such(tmp_path: Path) -> None:
    result = measured(tmp_path, "echo 'torch.OutOfMemoryError: CUDA out of memory. Tried to allocate' >&2; exit 1")
    assert result.outcome is Outcome.out_of_memory


def start(spec: RunSpec, home: Path, then: str = "") -> subprocess.Popen[str]:
    """Start the rank in an interpreter and a process group of its own; `then` is Python code that runs afterwards."""
    spec.write()
    code = f"import sys; from accelsweep.worker.main import main; main([{str(spec.file())!r}]); {then}"
    place = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"}
    return subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=home,
        env={**os.environ, **place},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def test_the_peak_memory_is_that_of_the_command_whose_worker_does_not_even_load_torch(tmp_path: Path) -> None:
    spec = whole_process(tmp_path, ["sh", "-c", f'{sys.executable} -c "x = bytearray(90 << 20)"; true'])
    loaded, _ = start(spec, tmp_path, "print('torch' in sys.modules)").communicate()
    assert loaded == "False\n"
    peak = read_rank_result(spec.rank_result(0)).metrics["process_peak_bytes"].value
    assert peak is not None
    assert 90 * 2**20 < peak < 130 * 2**20


def test_a_command_may_clean_up_when_its_run_is_ended(tmp_path: Path) -> None:
    (tmp_path / "train.sh").write_text(
        "trap 'kill $!; echo > cleaned; exit 0' TERM\necho > started\nsleep 60 &\nwait\n"
    )
    spec = whole_process(tmp_path, ["sh", "train.sh"])
    rank = start(spec, tmp_path)
    until((tmp_path / "started").exists)
    os.killpg(rank.pid, signal.SIGTERM)
    rank.communicate()
    assert rank.returncode == -signal.SIGTERM
    assert (tmp_path / "cleaned").exists()
    assert not spec.rank_result(0).exists()
