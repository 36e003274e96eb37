"""The account of a run's job beside its record: named as the whole job's, and never in the place of the window's."""

from __future__ import annotations

from pathlib import Path

import pytest
from queued_sweep import NO_COUNTER, account_for, on_slurm

from accelsweep.analysis.analyse_sweep import analyse_folder
from accelsweep.analysis.collect import read_runs
from accelsweep.analysis.run_results import RunRow
from accelsweep.features.accounting.sacct import accounting_file
from accelsweep.features.archives.check import checked
from accelsweep.features.archives.pack import pack
from accelsweep.metrics import Metric
from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import Manifest
from accelsweep.records.run_files import record_or_none
from accelsweep.results import Outcome

JOB = ("job_queue_seconds", "job_elapsed_seconds", "job_energy_joules")
RESULT = ("time_to_result_seconds", "time_to_result_with_queue_seconds")


@pytest.fixture
def queued(example_sweep: SweepFolder) -> SweepFolder:
    """The example sweep on a cluster, with passes of 80 000 samples."""
    folder = on_slurm(example_sweep)
    for run in Manifest.read(folder.manifest).wanted_runs():
        record = record_or_none(folder, run)
        if record is not None and record.outcome is Outcome.measured:
            metrics = record.metrics | {"epoch_samples": Metric(value=80_000.0, unit="samples")}
            record.model_copy(update={"metrics": metrics}).write(folder.record(run))
    return folder


def rows_of(folder: SweepFolder) -> list[RunRow]:
    return read_runs(folder, Manifest.read(folder.manifest))


def test_each_run_has_the_account_of_its_own_job(queued: SweepFolder) -> None:
    account_for(queued, 5.0, 50.0, 500.0, joules=9000.0)
    blocks = [block.name for block in Manifest.read(queued.manifest).blocks]
    recorded = [row for row in rows_of(queued) if row.recorded]
    assert {row.block: row.metrics["job_queue_seconds"].value for row in recorded} == dict(
        zip(blocks, (5.0, 50.0, 500.0), strict=True)
    )
    for row in recorded:
        assert row.metrics["job_energy_joules"].value == 9000.0
        assert "whole job" in str(row.metrics["job_energy_joules"].scope)
        assert [row.metrics[name].provenance for name in JOB] == ["slurm"] * 3


def test_a_result_takes_a_pass_over_the_data_without_the_queue_and_with_it(queued: SweepFolder) -> None:
    account_for(queued, 100.0, 100.0, 100.0)
    row = next(row for row in rows_of(queued) if row.outcome is Outcome.measured)
    alone, with_queue = (row.metrics[name].value for name in RESULT)
    assert alone == pytest.approx(80_000 / row.metrics["samples_per_second"].value)
    assert with_queue == pytest.approx(alone + 100.0)


def test_where_a_target_is_trained_to_that_is_the_result(queued: SweepFolder) -> None:
    account_for(queued, 100.0, 100.0, 100.0)
    for run in Manifest.read(queued.manifest).wanted_runs():
        if (record := record_or_none(queued, run)) is not None and record.outcome is Outcome.measured:
            missed = record.repeat == 1
            time = Metric(value=None if missed else 42.0, unit="s", reason="missed its target" if missed else None)
            metrics = record.metrics | {"time_to_target_wall_seconds": time}
            record.model_copy(update={"metrics": metrics}).write(queued.record(run))
    rows = [row for row in rows_of(queued) if row.outcome is Outcome.measured]
    found = {(row.repeat, *(row.metrics[name] for name in RESULT)) for row in rows}
    values = {(repeat, alone.value, both.value) for repeat, alone, both in found}
    assert values == {(0, 42.0, 142.0), (1, None, None), (2, 42.0, 142.0)}
    assert {both.reason for repeat, _, both in found if repeat == 1} == {"missed its target"}


def test_a_job_that_the_cluster_does_not_know_has_the_reason(queued: SweepFolder) -> None:
    account_for(queued, 5.0, None, 5.0)
    unknown = [row for row in rows_of(queued) if row.recorded and row.repeat == 1]
    assert unknown
    for row in unknown:
        assert {(row.metrics[name].value, row.metrics[name].reason) for name in JOB} == {(None, "job 22 is not known")}
    known = next(row for row in rows_of(queued) if row.recorded and row.repeat == 0)
    assert known.metrics["job_energy_joules"] == Metric(
        None, "J", NO_COUNTER, known.metrics["job_energy_joules"].scope, "slurm"
    )


def test_accounts_change_no_record_and_no_other_number(queued: SweepFolder) -> None:
    without, records = analyse_folder(queued), {path: path.read_bytes() for path in queued.latest_records()}
    account_for(queued, 5.0, 50.0, 500.0)
    found = analyse_folder(queued)
    assert {path: path.read_bytes() for path in queued.latest_records()} == records
    own = [
        {name: one for name, one in setting.metrics.items() if name not in {*JOB, *RESULT}}
        for setting in found.settings
    ]
    bare = [setting.model_copy(update={"metrics": one}) for setting, one in zip(found.settings, own, strict=True)]
    assert found.model_copy(update={"settings": tuple(bare)}) == without
    summary = next(setting for setting in found.settings if setting.measured == 3).metrics["job_queue_seconds"]
    assert (summary.median, summary.minimum, summary.maximum, summary.provenance) == (50.0, 5.0, 500.0, "slurm")


def test_damaged_accounts_cost_no_findings(queued: SweepFolder) -> None:
    without = analyse_folder(queued)
    accounting_file(queued).write_bytes(b"{}")
    assert analyse_folder(queued) == without


def test_an_archive_carries_the_accounts_from_which_its_findings_were_made(queued: SweepFolder, tmp_path: Path) -> None:
    account_for(queued, 5.0, 50.0, 500.0)
    analyse_folder(queued).write(queued.findings)
    queued.report.mkdir(parents=True)
    (queued.report / "index.html").write_text("<html></html>")
    pack(queued, ["index.html"], {}, tmp_path / "packed.zip")
    with checked(tmp_path / "packed.zip") as archive:
        assert archive.read("sweep/accounting.json") == accounting_file(queued).read_bytes()
