"""The whole analysis of a realistic sweep: right, complete, and the same to the last digit every time."""

from __future__ import annotations

import random
import subprocess
import sys
from dataclasses import replace
from types import ModuleType

import pytest

from accelsweep.analysis.analyse_sweep import analyse, main
from accelsweep.analysis.collect import collect
from accelsweep.records.estimates import Verdict
from accelsweep.records.findings import Findings
from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import Manifest
from accelsweep.records.run_record import Outcome

pytestmark = pytest.mark.heavy

EXPECTED = {
    (1, 32, "32-true"): Verdict.baseline,
    (1, 32, "bf16-mixed"): Verdict.slower,
    (1, 32, "16-mixed"): Verdict.not_measured,
    (1, 128, "32-true"): Verdict.faster,
    (1, 128, "bf16-mixed"): Verdict.not_yet,
    (2, 32, "32-true"): Verdict.faster,
    (2, 32, "bf16-mixed"): Verdict.not_yet,
    (2, 32, "16-mixed"): Verdict.not_measured,
    (2, 128, "32-true"): Verdict.not_measured,
    (2, 128, "bf16-mixed"): Verdict.not_yet,
}


@pytest.fixture
def findings(example_sweep: SweepFolder) -> Findings:
    return analyse(collect(example_sweep), Manifest.read(example_sweep.manifest))


def test_each_cell_has_the_verdict_that_its_invented_rate_asks_for(findings: Findings) -> None:
    assert {tuple(cell.axes[key] for key in findings.axes): cell.verdict for cell in findings.cells} == EXPECTED


def test_the_true_ratio_lies_within_the_interval(findings: Findings) -> None:
    for cell in findings.cells:
        if cell.speedup is not None and cell.speedup.ratio.low is not None and cell.speedup.ratio.high is not None:
            truth = 1.8 if cell.axes["devices"] == 2 else 1.0
            truth *= 1.25 if cell.axes["batch_size"] == 128 else 1.0
            truth *= 0.6 if cell.axes["precision"] == "bf16-mixed" else 1.0
            assert cell.speedup.ratio.low <= truth <= cell.speedup.ratio.high


def test_every_run_and_every_outcome_is_accounted_for(findings: Findings) -> None:
    assert sum(len(cell.runs) for cell in findings.cells) == findings.planned_runs == 24
    assert findings.outcomes[Outcome.not_run] == 1
    assert findings.outcomes[Outcome.unsupported] == 2
    out_of_memory = findings.cells[8]
    assert out_of_memory.outcomes == {Outcome.out_of_memory: 3}
    assert out_of_memory.reasons == ("CPU allocator: cannot allocate 1073741824 bytes",)


def test_what_is_absent_has_its_reason_beside_it(findings: Findings) -> None:
    for cell in findings.cells:
        for summary in cell.metrics.values():
            assert summary.median is not None or summary.reason
        for estimate in (cell.rate, cell.speedup and cell.speedup.ratio, cell.quality):
            assert estimate is None or estimate.low is not None or estimate.reason
        assert all(run.rate or run.reason for run in cell.runs)


def test_the_order_of_the_rows_changes_no_digit(example_sweep: SweepFolder) -> None:
    runs, manifest = collect(example_sweep), Manifest.read(example_sweep.manifest)
    expected = analyse(runs, manifest).model_dump_json()
    for seed in range(5):
        shuffled = random.Random(seed).sample(runs, len(runs))
        assert analyse(shuffled, manifest).model_dump_json() == expected


def test_the_digest_of_the_records_changes_with_any_record(example_sweep: SweepFolder, findings: Findings) -> None:
    (first, *others), manifest = collect(example_sweep), Manifest.read(example_sweep.manifest)
    altered = [replace(first, record_sha256="0" * 64), *others]
    assert analyse(altered, manifest).records_sha256 != findings.records_sha256


def test_the_module_writes_findings_that_read_back_and_stay_the_same(example_sweep: SweepFolder) -> None:
    subprocess.run([sys.executable, "-m", "accelsweep.analysis.analyse_sweep", str(example_sweep.root)], check=True)
    content = example_sweep.findings.read_bytes()
    assert main([str(example_sweep.root)]) == 0
    assert example_sweep.findings.read_bytes() == content
    assert Findings.read(example_sweep.findings).sweep == "example"


def test_the_module_names_a_sweep_that_is_not_there(
    example_sweep: SweepFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(example_sweep.root.with_name("absent"))]) == 2
    assert "no sweep 'absent'" in capsys.readouterr().err


def test_analysing_imports_neither_torch_nor_mlflow() -> None:
    code = (
        "import sys, accelsweep.analysis.analyse_sweep, accelsweep.analysis.collect; "
        "import accelsweep.analysis.compare_sweeps; "
        "print([name for name in ('torch', 'lightning', 'mlflow', 'hydra') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"


def test_a_cell_that_left_the_plan_leaves_the_findings(simulated: ModuleType) -> None:
    cells = [{"batch_size": size} for size in (32, 64)]
    rows = [simulated.make_run(axes, block, 1000.0 + block) for axes in cells for block in range(3)]
    found = analyse(rows, simulated.make_manifest(cells[:1], 3))
    assert [cell.axes for cell in found.cells] == cells[:1]


def test_a_plan_without_any_run_gives_findings_and_no_error(simulated: ModuleType) -> None:
    manifest = simulated.make_manifest([{"batch_size": 32}], 0)
    found = analyse([], manifest)
    assert (found.planned_runs, found.cells[0].verdict) == (0, Verdict.not_measured)
    assert found.recommendation.choice is None
