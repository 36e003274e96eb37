"""However a sweep ends, the last line that its user reads says what kept runs from being measured."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import pytest
from home import Home
from polling import PATIENCE_SECONDS, until

from accelsweep.records.run_record import Record
from accelsweep.results import Outcome

pytestmark = pytest.mark.real


@pytest.mark.long  # driver/test_snakemake_process.py tells it, storms fill disks
def test_a_disk_with_too_little_room_is_told_in_the_last_line_and_in_the_report(home: Home) -> None:
    result = home.accelsweep("run", "experiment=tiny", "repeats=1", "limits.free_disk_bytes=1000000000000000000")
    assert result.returncode == 1, result.stdout
    last = result.stdout.splitlines()[-1]
    assert last.startswith("not_run: 2 runs: the disk of sweeps/tiny has "), result.stdout
    assert "MB free, but limits.free_disk_bytes requires 1000000000000 MB; free some space" in last
    report = (home.path / "reports/tiny/report.md").read_text().replace("\\", "")
    assert "limits.free_disk_bytes requires 1000000000000 MB" in report
    mended = home.accelsweep("run", "experiment=tiny", "repeats=1")
    assert mended.returncode == 0, mended.stdout
    assert "not_run" not in mended.stdout
    for log in home.path.glob("sweeps/tiny/logs/b*.log"):
        lines = log.read_text().splitlines()
        assert len([line for line in lines if line.startswith("# ")]) == 2, "each command begins with a line of its own"
        assert "limits.free_disk_bytes requires" in lines[1], "what an earlier command said is kept"
        assert "measured after" in lines[-1]


@pytest.mark.long  # records/test_file_times.py clamps stamps; only here Snakemake would mind them
def test_a_clock_that_was_set_back_is_named_and_costs_no_result(continued: Home) -> None:
    """All that an earlier command wrote is stamped three days ahead, and one block is to be measured again."""
    later = time.time() + 3 * 86_400
    before = continued.records("tiny")
    for path in [*continued.path.glob("sweeps/tiny/*.*"), *continued.path.glob("sweeps/tiny/blocks/*")]:
        os.utime(path, (later, later))
    done = sorted(continued.path.glob("sweeps/tiny/blocks/*.done.json"))
    done[0].unlink()
    result = continued.accelsweep("run", "experiment=tiny")
    assert result.returncode == 0, result.stdout
    assert re.search(r"files in sweeps/tiny were stamped 2 days, 23:\d\d:\d\d in the future", result.stdout)
    assert all(path.exists() for path in done)
    assert continued.records("tiny") == before


@pytest.mark.long  # storms put folders into the places of all files
def test_folders_in_the_places_of_files_are_set_aside_and_named(continued: Home) -> None:
    before = continued.records("tiny")
    sweep = continued.path / "sweeps/tiny"
    done = next(sweep.glob("blocks/*.done.json"))
    page = continued.path / "reports/tiny/index.html"
    places = [sweep / "findings.json", sweep / "records.parquet", sweep / "manifest.json", sweep / "driver.lock.json"]
    places += [done, page, sweep / "logs/snakemake.log", sweep / f"logs/{done.name.partition('.')[0]}.log"]
    for path in places:
        path.unlink(missing_ok=True)
        (path / "inside").mkdir(parents=True)
    result = continued.accelsweep("run", "experiment=tiny")
    assert result.returncode == 0, result.stdout
    assert "it is not a file: something else was in its place; set aside as findings.json.damaged-1" in result.stdout
    assert "Traceback" not in result.stdout
    assert all(path.is_file() for path in places if path.name != "driver.lock.json")
    assert all((path.with_name(f"{path.name}.damaged-1") / "inside").is_dir() for path in places)
    assert continued.records("tiny") == before


LASTING = ("run", "experiment=tiny", "measure.min_seconds=2", "measure.max_steps=100000")


@pytest.mark.long  # planning/test_plan.py goes on from such a manifest, driver/test_snakemake_process.py tells it
def test_a_manifest_that_is_emptied_during_a_run_is_told_in_a_sentence_and_the_same_command_goes_on(home: Home) -> None:
    process = begun(home)
    (home.path / "sweeps/tiny/manifest.json").write_text("")
    output, _ = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 1, output
    assert "manifest.json: not a complete JSON document" in output.splitlines()[-1]
    assert not [line for line in output.splitlines() if "Traceback" in line or "returned non-zero" in line], output
    kept = home.records("tiny")
    again = home.accelsweep(*LASTING)
    assert again.returncode == 0, again.stdout
    assert {run: stamp for run, stamp in home.records("tiny").items() if run in kept} == kept


@pytest.mark.long  # driver/test_snakemake_process.py tells it, storms stop it
def test_a_snakemake_that_is_stopped_from_outside_is_told_in_a_sentence(home: Home) -> None:
    process = begun(home)
    for pid in home.processes("snakemake"):
        os.kill(pid, signal.SIGINT)
    output, _ = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 1, output
    assert "it was told to stop; sweeps/tiny/logs/snakemake.log has more" in output.splitlines()[-1], output
    assert "Traceback" not in output


MINE = """
import os
import signal
import time

from accelsweep.workloads.image_models import SmallCNN


class Killer(SmallCNN):
    def training_step(self, batch, number):
        if len(batch[0]) == 32:
            os.kill(os.getppid(), signal.SIGKILL)
        return super().training_step(batch, number)


class Broken(SmallCNN):
    def training_step(self, batch, number):
        time.sleep(1)  # the driver looks twice a second
        raise ValueError(f"{len(batch[0])} rows are wrong")
"""


@pytest.mark.long  # executor/test_block.py charges such a run and puts it last; only here Snakemake starts again
def test_a_run_that_kills_its_executor_is_crashed_after_two_attempts_and_all_others_are_measured(
    home: Home, last_line: Callable[[str, str], None]
) -> None:
    home.module("mine", MINE)
    result = home.accelsweep("run", "experiment=tiny", "model._target_=mine.Killer", "batch_size=16,32,64", "repeats=1")
    assert result.returncode == 1, result.stdout
    records = [Record.read(path) for path in home.path.glob("sweeps/tiny/runs/*/record.json")]
    ended = {record.config.batch_size: (record.outcome, record.attempt) for record in records}
    assert ended == {16: (Outcome.measured, 1), 32: (Outcome.crashed, 3), 64: (Outcome.measured, 1)}
    last = result.stdout.splitlines()[-1]
    assert last.startswith("crashed: 1 run: its executor died 2 times while it ran (attempts 1, 2)"), result.stdout
    last_line("a run kills its executor twice", last)


@pytest.mark.long  # driver/test_progress_display.py tells which are alike; only here a sweep ends by it
def test_a_sweep_whose_first_two_settings_raise_alike_ends_there_and_goes_on_with_keep_going(
    home: Home, last_line: Callable[[str, str], None]
) -> None:
    home.module("mine", MINE)
    command = ("run", "experiment=tiny", "model._target_=mine.Broken", "batch_size=16,32,64,128", "repeats=3")
    result = home.accelsweep(*command)
    assert result.returncode == 1, result.stdout
    tried = len(home.records("tiny"))
    assert tried < 5, "two runs, and what began before the second was looked at"
    last = result.stdout.splitlines()[-1]
    where = r"\(mine.py, line 19, in training_step\)"
    assert re.search(
        rf"^not_run: \d+ runs: the first two settings ended with the same exception, .*{where}; fix it", last
    )
    assert "--keep-going" in last
    assert "MLflow is incomplete" not in result.stdout
    last_line("the first two settings raise the same exception", last)
    result = home.accelsweep(*command, "repeats=1", "--keep-going")
    assert result.stdout.splitlines()[-1].startswith("crashed: "), result.stdout
    assert "not_run" not in result.stdout


@pytest.mark.long  # executor/test_block.py charges each such run; only here no run of a sweep survives
def test_a_sweep_all_of_whose_runs_kill_their_executors_ends_after_two_settings(
    home: Home, last_line: Callable[[str, str], None]
) -> None:
    home.module("mine", MINE.replace("if len(batch[0]) == 32", "if True"))
    result = home.accelsweep("run", "experiment=tiny", "model._target_=mine.Killer", "batch_size=16,32,64", "repeats=2")
    assert result.returncode == 1, result.stdout
    last = result.stdout.splitlines()[-1]
    assert "runs of the first two settings killed their executors without a message" in last, result.stdout
    assert "--keep-going" in last
    assert home.records("tiny") == {}
    last_line("every run kills its executor", last)


def test_a_command_whose_output_nobody_reads_any_more_says_so_and_leaves_nothing_running(
    home: Home, last_line: Callable[[str, str], None]
) -> None:
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "accelsweep", "run", "experiment=tiny"]
    with os.fdopen(write, "wb") as closed:
        ended = subprocess.run(
            command, cwd=home.path, env=home.environment, stdout=closed, stderr=subprocess.PIPE, text=True, check=False
        )
    last = ended.stderr.splitlines()[-1]
    assert ended.returncode == 1, ended.stderr
    assert "the output pipe of this command was closed" in last
    assert last.endswith("accelsweep run experiment=tiny > sweep.txt 2>&1")
    assert "Exception ignored" not in ended.stderr
    assert home.processes("cli", "snakemake", "publisher") == []
    last_line("run | head -1", last)


def begun(home: Home) -> subprocess.Popen[str]:
    """Start a command and return when its first run has begun."""
    process = home.start(*LASTING)
    until(lambda: list(home.path.glob("sweeps/tiny/runs/*/attempts/1/run-spec.json")))
    return process
