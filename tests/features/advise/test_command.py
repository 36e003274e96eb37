"""`accelsweep advise`: an answer, as words and as JSON, and a sentence for each wrong question before anything else."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from resnet50 import RESNET50

from accelsweep.errors import InputError
from accelsweep.features.advise.command import Question, advise_training
from accelsweep.metrics import Metric
from accelsweep.records.layout import SweepFolder
from accelsweep.records.run_record import Record

QUESTION = Question(epochs=90, samples=50_000, deadline="24h", budget=200, onto="l4,h100-sxm", prices="cloud")


@pytest.fixture
def counted(example_sweep: SweepFolder) -> SweepFolder:
    """The example sweep, whose records have the counts of a forward pass."""
    for path in example_sweep.root.glob("runs/*/record.json"):
        record = Record.read(path)
        metrics = {**record.metrics, "parameters": Metric(value=2.56e7, unit="1")}
        record.model_copy(update={"traits": RESNET50, "metrics": metrics}).write(path)
    return example_sweep


def test_the_answer_is_printed_with_measured_and_projected_hardware_apart(
    counted: SweepFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    advise_training(counted.home, counted.name, QUESTION)
    printed = capsys.readouterr().out
    first, measured, projected = (
        printed.splitlines()[0],
        printed.index("measured here"),
        printed.index("projected, not measured; 90 % intervals"),
    )
    assert "(projected)" in first or "this machine" in first
    assert measured < printed.index("this machine (") or "this machine (" in first
    assert measured < projected
    assert "Assumed: The training run covers 90 epochs of 50,000 samples" in printed


def test_the_answer_as_json_is_one_object(counted: SweepFolder, capsys: pytest.CaptureFixture[str]) -> None:
    advise_training(counted.home, counted.name, QUESTION, as_json=True)
    answer = json.loads(capsys.readouterr().out)
    assert answer["accelsweep"] == "advise"
    assert (answer["deadline_hours"], answer["budget_usd"], answer["samples"]) == (24.0, 200.0, 50_000)
    offers = answer["offers"]
    assert {one["tier"] for one in offers} == {"no GPU", "one GPU", "several GPUs", "a cluster"}
    assert [one["key"] for one in offers if one["hours_measured"]] == [None]
    assert all(one["hours_measured"] is None for one in offers if one["hours_projected"])
    assert answer["choice"] is None or offers[answer["choice"]]["in_time"] == "surely"


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"epochs": 0}, "--epochs 0 must be a positive number"),
        ({"epochs": float("nan")}, "--epochs nan must be a positive number"),
        ({"samples": -1}, "--samples -1 must be a positive number"),
        ({"budget": -5}, "--budget -5 must be a positive number"),
        ({"batch": 0}, "--batch 0 must be a positive number"),
        ({"deadline": "0h"}, "--deadline '0h' is not a positive duration such as 90m, 24h, 3d or 2w"),
        ({"deadline": "soon"}, "--deadline 'soon' is not a positive duration"),
        ({"deadline": "-3h"}, "--deadline '-3h' is not a positive duration"),
        ({"prices": "clout"}, r"no prices 'clout' \(did you mean 'cloud'\?\)"),
        ({"onto": "l44"}, r"no board 'l44' \(did you mean 'l4'\?\)"),
        ({"samples": None}, "does not record its data set's size: set --samples"),
    ],
)
def test_a_wrong_question_is_refused_with_a_sentence(
    counted: SweepFolder, changed: dict[str, object], words: str
) -> None:
    before = sorted(counted.home.rglob("*"))
    with pytest.raises(InputError, match=words) as refused:
        advise_training(counted.home, counted.name, replace(QUESTION, **changed))
    assert refused.value.exit_code == 2
    assert sorted(counted.home.rglob("*")) == before


def test_a_sweep_without_counts_or_without_runs_is_refused(example_sweep: SweepFolder) -> None:
    with pytest.raises(InputError, match="operations of its forward pass were not recorded"):
        advise_training(example_sweep.home, example_sweep.name, QUESTION)
    with pytest.raises(InputError, match="no sweep 'nothing'"):
        advise_training(example_sweep.home, "nothing", QUESTION)
