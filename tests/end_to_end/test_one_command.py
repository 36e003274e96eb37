"""One command does everything, and the same command again does only what is missing."""

import re

import pandas as pd
import pytest

from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import Block, Manifest
from accelsweep.records.run_record import Record
from accelsweep.results import Outcome

pytestmark = pytest.mark.real


def test_one_command_leaves_every_file_of_the_road(finished):
    home, result = finished
    assert result.returncode == 0, result.stdout
    folder = SweepFolder(home.path, "tiny")
    manifest = Manifest.read(folder.manifest)
    assert len(manifest.wanted_runs()) == 4
    for run in manifest.wanted_runs():
        record = Record.read(folder.record(run))
        assert record.outcome is Outcome.measured
        assert folder.steps(run).exists()
        assert (folder.run(run) / "run.log").exists()
    assert len(pd.read_parquet(folder.records)) == 4
    for name in ("index.html", "report.md"):
        assert (folder.report / name).stat().st_size > 0
    assert (home.path / "mlflow.db").exists()


def test_its_blocks_are_forked_from_one_process_in_the_surroundings_that_snakemake_gives(finished):
    home, _ = finished
    logs = SweepFolder(home.path, "tiny").root / "logs"
    assert not (logs / "fork_server.log").exists(), "it said nothing"
    blocks = [path.read_text() for path in logs.glob("b*.log")]
    assert len(blocks) == 2
    assert not [log for log in blocks if "imports torch itself" in log]


def test_its_last_words_are_a_table_the_report_and_the_ui(finished):
    _, result = finished
    assert re.search(r"cpu|batch 16", result.stdout)
    assert "reports/tiny/index.html" in result.stdout
    assert "accelsweep ui" in result.stdout


def test_every_block_holds_every_setting_once_in_an_order_of_its_own(finished):
    home, _ = finished
    folder = SweepFolder(home.path, "tiny")
    manifest = Manifest.read(folder.manifest)
    assert len(manifest.blocks) == 2
    for planned in manifest.blocks:
        block = Block.read(folder.block(planned.name))
        assert sorted(run.setting for run in block.runs) == sorted(setting.name for setting in manifest.settings)


@pytest.mark.long  # planning/test_plan.py plans those blocks; only here they are measured beside old records
def test_another_batch_size_runs_only_new_blocks_with_a_fresh_baseline(continued):
    before = continued.records("tiny")
    old_blocks = {name: stamp for name, stamp in continued.files().items() if re.search(r"blocks/b\w+\.json$", name)}
    result = continued.accelsweep("run", "experiment=tiny", "batch_size=16,32,64")
    assert result.returncode == 0, result.stdout
    after = continued.records("tiny")
    assert {name: after[name] for name in before} == before
    new = [Record.read(continued.path / name) for name in sorted(set(after) - set(before))]
    assert sorted(record.axes["batch_size"] for record in new) == [16, 16, 64, 64]
    files = continued.files()
    assert {name: files[name] for name in old_blocks} == old_blocks


@pytest.mark.long  # planning/test_plan.py adds blocks, executor/test_result_reuse.py reopens one; here both at once
def test_more_repeats_add_whole_blocks_and_a_deleted_run_is_measured_again_and_nothing_else(continued):
    before = continued.records("tiny")
    victim = next(iter(before))
    (continued.path / victim).unlink()
    result = continued.accelsweep("run", "experiment=tiny", "--add-repeats", "1")
    assert result.returncode == 0, result.stdout
    manifest = Manifest.read(SweepFolder(continued.path, "tiny").manifest)
    assert [len(block.runs) for block in manifest.blocks] == [2, 2, 2]
    after = continued.records("tiny")
    assert len(after) == 6
    assert {name for name in before if after[name] != before[name]} == {victim}


MEETING = """\
import os, time
from pathlib import Path
from accelsweep.workloads.image_models import SmallCNN


class Meeting(SmallCNN):
    def on_train_start(self):
        here = Path(__file__).parent
        (here / f"met-{os.getpid()}").touch()
        while len(list(here.glob("met-*"))) < 2:
            time.sleep(0.05)
"""


@pytest.mark.long  # executor/test_device_lease.py and analysis/test_sweep_doubts.py cover the parts; here two runs meet
def test_runs_that_share_the_machine_carry_the_doubt(home):
    """Each waits for the other, so that both are there at once however slow the machine is."""
    home.module("mine", MEETING)
    shared = ("measure.concurrency=2", "block.size=1", "repeats=1", "limits.retries=0")
    result = home.accelsweep("run", "experiment=tiny", "model._target_=mine.Meeting", *shared)
    assert result.returncode == 0, result.stdout
    assert "shared_timing" in result.stdout
