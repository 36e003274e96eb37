"""A real ladder: steps that are measured, and a step that the model lacks, each a row."""

import pytest

from accelsweep.core.findings import Findings, Verdict
from accelsweep.core.folders import SweepFolder

pytestmark = pytest.mark.real

SHORT = ("measure.warmup_steps=2", "measure.min_steps=10", "measure.min_seconds=0.2", "measure.quality_samples=null")
STEPS = "0_naive,2_resident_data,4_channels_last,5_mixed_precision"


def test_a_ladder_of_a_model_without_convolutions(home):
    """A perceptron has no convolutions to lay out; the step after that one goes on without."""
    model = ("model=mlp", "data=digits", "accelerator=cpu")
    result = home.accelsweep("run", "experiment=ladder", f"rung={STEPS}", "repeats=2", *model, *SHORT)
    folder = SweepFolder(home.path, "ladder")
    rungs = {rung.step: rung for rung in Findings.read(folder.findings).ladder}
    assert list(rungs) == STEPS.split(","), result.stdout
    naive, resident, layout, mixed = rungs.values()
    assert (naive.verdict, naive.gain) == (Verdict.baseline, None)
    assert resident.gain.low < resident.gain.value < resident.gain.high
    assert (layout.rate, layout.verdict) == (None, Verdict.not_measured)
    assert "would change nothing: no weight of the network is a convolution of images" in layout.reason
    assert (mixed.before, mixed.gain.count, mixed.total.count) == ("2_resident_data", 2, 2)
    assert "## Ladder" in (folder.report / "report.md").read_text()
    assert "5_mixed_precision" in (folder.report / "ladder.csv").read_text()
