"""A real ladder: a row for every rung, measured or not."""

import importlib.util

import pytest

from accelsweep.features.ladder.model import Ladder
from accelsweep.records.estimates import Verdict
from accelsweep.records.findings import Findings
from accelsweep.records.layout import SweepFolder

pytestmark = pytest.mark.real

SHORT = ("measure.warmup_steps=2", "measure.min_steps=10", "measure.min_seconds=0.2", "measure.quality_samples=null")
STEPS = "0_naive,2_resident_data,4_channels_last,5_mixed_precision"


@pytest.mark.long  # features/ladder has the unit tests: only here rungs are really measured
def test_a_ladder_of_a_model_without_convolutions(home):
    """`channels_last` would change nothing in a perceptron; the next rung is compared with the one before it."""
    model = ("model=mlp", "data=digits", "accelerator=cpu")
    result = home.accelsweep("run", "experiment=ladder", f"rung={STEPS}", "repeats=2", *model, *SHORT)
    folder = SweepFolder(home.path, "ladder")
    rungs = {rung.step: rung for rung in Findings.read(folder.findings).section(Ladder).rungs}
    assert list(rungs) == STEPS.split(","), result.stdout
    naive, resident, layout, mixed = rungs.values()
    assert (naive.verdict, naive.gain) == (Verdict.baseline, None)
    assert resident.gain.low < resident.gain.value < resident.gain.high
    assert (layout.rate, layout.verdict) == (None, Verdict.not_measured)
    assert "would have no effect: the model has no convolutions of images" in layout.reason
    assert (mixed.before, mixed.gain.count, mixed.total.count) == ("2_resident_data", 2, 2)
    assert "## Ladder" in (folder.report / "report.md").read_text()
    assert "5_mixed_precision" in (folder.report / "ladder.csv").read_text()


@pytest.mark.long  # the only end-to-end sweep with a data set of `datasets`, which is slow to load
@pytest.mark.skipif(importlib.util.find_spec("datasets") is None, reason="the extra `huggingface` is not installed")
def test_a_ladder_on_texts_skips_the_rung_that_is_for_images(home):
    """Images and texts have the same data keys, so only the run can tell that there is nothing to preprocess."""
    rows = "\n".join(f"{'a good film' if number % 2 else 'so bad'} {number},{number % 2}" for number in range(200))
    (home.path / "films.csv").write_text(f"text,label\n{rows}\n")
    load = f"data.load={{data_files: {home.path / 'films.csv'}, cache_dir: {home.path / 'cache'}}}"
    data = ("data=huggingface", "data.path=csv", "data.inputs=text", "data.sequence=6", "data.vocabulary=100", load)
    model = ("model=text_classifier", "model.vocabulary=100", "model.embedding=4", "model.hidden=4", "model.classes=2")
    steps = "0_naive,1_device_preprocessing,2_resident_data"
    result = home.accelsweep(
        "run", "experiment=ladder", f"rung={steps}", "repeats=2", "accelerator=cpu", *data, *model, *SHORT
    )
    rungs = Findings.read(SweepFolder(home.path, "ladder").findings).section(Ladder).rungs
    assert [rung.step for rung in rungs] == steps.split(","), result.stdout
    naive, moved, resident = rungs
    assert (naive.verdict, moved.rate) == (Verdict.baseline, None)
    assert "data.preprocess=device is for images, and this data set contains none" in moved.reason
    assert (resident.before, resident.gain.count) == ("0_naive", 2)
