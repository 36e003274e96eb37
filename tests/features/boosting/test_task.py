"""`task: boosting` on one rank and on two, from its spec to its result."""

from __future__ import annotations

import pytest
from one_rank import DIGITS, MEASURE, make_spec, run_ranks
from tiny_sweep import config_with

from accelsweep.devices.memory_limits import FreeMemory
from accelsweep.errors import InputError, Unsupported
from accelsweep.features.boosting.rows import sets_of
from accelsweep.features.boosting.task import together
from accelsweep.results import Outcome
from accelsweep.worker.error_classification import classify
from accelsweep.worker.rank_setup import RankPlace
from accelsweep.workloads.instantiate import build_data

PACKAGE = "accelsweep.features.boosting."
XGBOOST = {"_target_": f"{PACKAGE}boosters.XGBoost", "rounds": 4}
LIBRARIES = {
    "xgboost": XGBOOST,
    "lightgbm": {"_target_": f"{PACKAGE}boosters.LightGBM", "rounds": 4},
    "sklearn": {"_target_": f"{PACKAGE}boosters.HistGradientBoosting", "rounds": 4},
}
ROWS = {"_target_": f"{PACKAGE}rows.MadeRows", "rows": 2000, "held_out": 1000}
FITS = {**MEASURE, "warmup_steps": 2, "min_steps": 3, "min_seconds": 0.01, "max_steps": 3, "quality_metric": "AUC"}
BOOSTED = {"task": "boosting", "model": XGBOOST, "data": ROWS, "measure": FITS}
ROOM = FreeMemory(10**9, "machine memory")


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_library_is_timed_by_rows_times_rounds_and_guarded_by_rows_that_it_has_not_seen(run, library):
    pytest.importorskip(library)
    result = run(**{**BOOSTED, "model": LIBRARIES[library]})
    assert result.outcome is Outcome.measured, result.traceback
    value = {name: metric.value for name, metric in result.metrics.items()}
    assert value["window_samples"] == 3 * 2000 * 4, "three fits of four rounds over all rows"
    assert value["row_rounds_per_second"] == pytest.approx(value["window_samples"] / value["window_seconds"])
    assert value["samples_per_second"] == value["row_rounds_per_second"]
    assert (value["boosting_rounds"], value["epoch_samples"], value["epoch_ends_in_window"]) == (4, 2000, 12)
    assert 0.65 < value["quality"] < 0.95, "some of the rule is learnt in four rounds, and not all of it"
    assert (value["prepare_seconds"] is None) == (library == "sklearn"), "which bins the rows in each fit"


@pytest.mark.parametrize("library", LIBRARIES)
def test_of_several_classes_the_area_is_the_mean_over_them(run, library):
    pytest.importorskip(library)
    quality = run(**{**BOOSTED, "model": LIBRARIES[library], "data": DIGITS}).metrics["quality"]
    assert quality.value > 0.95
    assert quality.scope == "359 held-out rows, last fit"


def own_trees(folder, **methods):
    """Write a library of one's own that takes 10 ms a fit; return its `model`. A method that is None is left out."""
    bodies = {
        "fit": "def fit(self, features, labels): time.sleep(0.01)",
        "predict": "def predict(self, features): return features[:, 0]",
        "count": "def count(self): return 5",
    } | methods
    text = "\n".join(f"    {body}" for body in bodies.values() if body)
    name = f"own_trees_{'_'.join(methods)}"
    (folder / f"{name}.py").write_text(f"import time\nclass Trees:\n{text}\n")
    return {"_target_": f"{name}.Trees"}


def test_a_library_of_ones_own_needs_three_methods_and_its_fits_take_what_they_take(run, tmp_path):
    result = run(**{**BOOSTED, "model": own_trees(tmp_path)})
    assert result.outcome is Outcome.measured, result.traceback
    assert result.metrics["step_seconds"].value >= 0.01
    assert result.metrics["row_rounds_per_second"].value <= 2000 * 5 / 0.01
    assert 0.4 < result.metrics["quality"].value < 0.6, "one feature alone tells nothing"


def test_scores_that_are_no_numbers_leave_a_reason_and_an_error_of_the_library_is_its_own(run, tmp_path):
    nothing = own_trees(tmp_path, predict="def predict(self, features): return features[:, 0] * float('nan')")
    assert "contains NaN" in run(**{**BOOSTED, "model": nothing}).metrics["quality"].reason
    fails = own_trees(
        tmp_path,
        predict="def predict(self, features): raise ValueError('no trees')",
        fit="def fit(self, features, labels): pass",
    )
    result = run(**{**BOOSTED, "model": fails})
    assert (result.outcome, result.reason) == (Outcome.crashed, "ValueError: no trees")


def test_what_is_no_library_of_trees_is_told_what_it_lacks(run, tmp_path):
    result = run(**{**BOOSTED, "model": own_trees(tmp_path, count=None)})
    assert result.outcome is Outcome.unsupported
    assert "model._target_=own_trees_count.Trees has no count: use model=xgboost" in result.reason


def test_rows_that_do_not_fit_are_out_of_memory_before_they_are_made(run):
    bounded = {**FITS, "rank_memory_bytes": 100_000}
    result = run(**{**BOOSTED, "measure": bounded})
    assert result.outcome is Outcome.out_of_memory
    assert "data.rows=2000 of data.features=20 take 0.00024 GB, and as much again" in result.reason
    assert "(measure.rank_memory_bytes): lower data.rows" in result.reason


def test_a_build_without_cuda_is_refused_because_xgboost_would_train_on_the_cpu_in_silence():
    xgboost = pytest.importorskip("xgboost")
    if xgboost.build_info()["USE_CUDA"]:
        pytest.skip("this build has CUDA")
    from accelsweep.features.boosting.boosters import XGBoost

    with pytest.raises(Unsupported, match="was built without CUDA: pip uninstall xgboost-cpu, then pip install xgb"):
        XGBoost(device="cuda:0")
    with pytest.raises(Unsupported, match="accelerator=mps: XGBoost supports only cpu and cuda"):
        XGBoost(device="mps")


def test_memory_that_xgboost_lacks_on_a_gpu_is_told_as_memory():
    """Its errors are ValueErrors, which are the user's everywhere else."""
    xgboost = pytest.importorskip("xgboost")
    from accelsweep.features.boosting.boosters import _words_of

    words = "device_vector.cu: Memory allocation error on worker 0: std::bad_alloc: cudaErrorMemoryAllocation: out of"
    with pytest.raises(RuntimeError) as told, _words_of(xgboost):
        raise xgboost.core.XGBoostError(f"{words} memory")
    assert classify(told.value) == "out_of_memory"


def test_a_library_for_one_process_is_not_run_in_two():
    with pytest.raises(Unsupported, match="object has no `together`, so it trains in one process"):
        together(object(), RankPlace(0, 0, 2, 2))


@pytest.mark.real
def test_two_ranks_train_one_model_on_half_of_the_rows_each(run, tmp_path):
    pytest.importorskip("xgboost")
    shared = tmp_path / "shared"
    shared.mkdir()
    first, second = run_ranks(make_spec(shared, **BOOSTED, devices=2), shared)
    assert first.outcome is second.outcome is Outcome.measured, first.traceback
    assert first.metrics["window_samples"].value == 3 * 2000 * 4, "all rows, once a round"
    assert first.effective.world_size == 2
    assert first.effective.strategy == "rows shared by the ranks"
    assert first.metrics["quality"].value == pytest.approx(run(**BOOSTED).metrics["quality"].value, abs=0.02)


def test_a_module_of_ones_own_gives_its_rows_through_its_loaders(tmp_path, own_data):
    sets = sets_of(own_data("TensorDataset(torch.randn(12, 2, 3), torch.arange(12) % 2)"), ROOM)
    assert sets.training.features.shape == (12, 6)
    assert (sets.classes, sets.held_out) == (2, None)
    third = sets.training.share(1, 3)
    assert third.labels.tolist() == sets.training.labels[1::3].tolist()


def test_a_set_that_holds_nothing_out_has_a_rate_and_no_quality(run):
    result = run(**{**BOOSTED, "data": {**DIGITS, "validation_share": 0.0}})
    assert result.outcome is Outcome.measured, result.traceback
    assert result.metrics["quality"].reason == "the data set has no held-out rows"


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ("TensorDataset(torch.randn(12, 3), torch.randn(12))", "one integer class per row; the data set yields torch."),
        ("TensorDataset(torch.randn(12, 3), torch.zeros(12).long())", "needs at least two classes"),
        ("TensorDataset(torch.randn(12, 3))", "batches that start with features and classes"),
        ("Stream()", "an endless stream"),
    ],
)
def test_rows_without_classes_are_refused(own_data, rows, words):
    with pytest.raises(InputError, match=words):
        sets_of(own_data(rows), ROOM)


@pytest.fixture
def own_data(tmp_path, monkeypatch):
    """Write a data module whose training loader has these rows; return it."""
    monkeypatch.syspath_prepend(tmp_path)

    def make(rows):
        name = f"own_rows_{abs(hash(rows))}"
        (tmp_path / f"{name}.py").write_text(
            "import lightning.pytorch as pl, torch\n"
            "from torch.utils.data import DataLoader, IterableDataset, TensorDataset\n"
            "class Stream(IterableDataset):\n"
            "    def __iter__(self):\n"
            "        while True:\n"
            "            yield torch.zeros(3), 1\n"
            "class Rows(pl.LightningDataModule):\n"
            "    def train_dataloader(self):\n"
            f"        return DataLoader({rows}, batch_size=5)\n"
        )
        return build_data(config_with(data={"_target_": f"{name}.Rows"}, batch_size=5), 1)

    return make
