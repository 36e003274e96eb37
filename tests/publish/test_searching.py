"""Every search that docs/mlflow.md promises finds what it says, and every column sorts, in each kind of store."""

from __future__ import annotations

import math
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

import pytest
from example_sweep import build_example_sweep

from accelsweep.records.findings import CellFinding, Findings
from accelsweep.records.layout import SweepFolder
from accelsweep.records.run_record import Doubt, Metric, Outcome, Record
from accelsweep.tracking.publisher import publish

pytestmark = pytest.mark.real

PAGE = Path(__file__).resolve().parents[2] / "docs" / "mlflow.md"
THROTTLED = Doubt(code="throttled", message="it ran slower than it could", remedy="cool it")

Of = Callable[[Any], bool]

RUNS: dict[str, Of] = {
    "params.batch_size = '128' and params.precision = 'bf16-mixed'": lambda record: (
        (record.axes["batch_size"], record.axes["precision"]) == (128, "bf16-mixed")
    ),
    "tags.outcome = 'out_of_memory'": lambda record: record.outcome is Outcome.out_of_memory,
    "tags.doubts LIKE '%throttled%'": lambda record: THROTTLED in record.doubts,
    "params.`effective.strategy` = 'ddp'": lambda record: (
        record.effective is not None and record.effective.strategy == "ddp"
    ),
    "tags.kind = 'run' and metrics.energy_joules < 300": lambda record: (
        (record.metrics["energy_joules"].value or math.inf) < 300 if record.metrics else False
    ),
}
"""The page's searches for repeats, and which records each must find."""

SETTINGS = ("cell", "unsupported")

CELLS: dict[str, Of] = {
    "tags.kind = 'cell'": lambda found: Outcome.unsupported not in found.outcomes,
    "tags.kind = 'cell' and tags.verdict = 'faster'": lambda found: found.verdict == "faster",
    "tags.kind = 'cell' and metrics.speedup_low > 1.5": lambda found: (
        found.speedup is not None and (found.speedup.ratio.low or 0.0) > 1.5
    ),
    "params.batch_size = '128' and params.precision = 'bf16-mixed'": lambda found: (
        (found.axes["batch_size"], found.axes["precision"]) == (128, "bf16-mixed")
    ),
    "tags.kind = 'unsupported'": lambda found: Outcome.unsupported in found.outcomes,
    "tags.outcome = 'out_of_memory'": lambda found: set(found.outcomes) == {Outcome.out_of_memory},
    "tags.doubts LIKE '%throttled%'": lambda found: any(doubt.code == "throttled" for doubt in found.doubts),
}
"""The page's searches for cells, and which findings each must find."""


def documented() -> list[str]:
    """Return the searches of the page's table."""
    table = PAGE.read_text("utf-8").partition("## Useful searches")[2].partition("\n\nThe same")[0]
    cells = [line.split(" | ")[0].removeprefix("| ") for line in table.splitlines() if line.startswith("| `")]
    return [re.sub(r"^(`+) ?(.*?) ?\1$", r"\2", cell) for cell in cells]


# a server hands a search on to the same store
@pytest.fixture(scope="session", params=["sqlite", pytest.param("http", marks=pytest.mark.long)])
def searched(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, empty_database: Path
) -> tuple[SweepFolder, str]:
    """The example with energy in every record and a throttled run, analysed and published to each kind of store."""
    from accelsweep.analysis.analyse_sweep import analyse
    from accelsweep.analysis.collect import collect
    from accelsweep.records.plan import Manifest

    sweep = build_example_sweep(tmp_path_factory.mktemp("searched"), name=f"searched-{request.param}")
    for number, path in enumerate(sorted(sweep.root.glob("runs/*/record.json"))):
        record = Record.read(path)
        energy = {"energy_joules": Metric(value=100.0 + 20 * number, unit="J")} if record.metrics else {}
        doubts = (*record.doubts, THROTTLED) if record.metrics and number % 7 == 0 else record.doubts
        record.model_copy(update={"metrics": record.metrics | energy, "doubts": doubts}).write(path)
    analyse(collect(sweep), Manifest.read(sweep.manifest)).write(sweep.findings)
    shutil.copy(empty_database, sweep.home / "mlflow.db")
    uri = str(request.getfixturevalue("server")) if request.param == "http" else f"sqlite:///{sweep.home}/mlflow.db"
    publish(sweep, uri)
    return sweep, uri


@pytest.fixture
def sweep(searched: tuple[SweepFolder, str], monkeypatch: pytest.MonkeyPatch) -> SweepFolder:
    """The searched sweep, its store the one that MLflow's own functions ask."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", searched[1])
    return searched[0]


def records(sweep: SweepFolder) -> list[Record]:
    return [Record.read(path) for path in sorted(sweep.root.glob("runs/*/record.json"))]


def found(sweep: SweepFolder, query: str, order: str | None = None) -> list[Any]:
    """Return what `mlflow.search_runs`, which the page names too, finds."""
    import mlflow

    order_by = None if order is None else [order]
    runs: list[Any] = mlflow.search_runs(
        experiment_names=[sweep.name], filter_string=query, order_by=order_by, output_format="list"
    )
    return runs


def test_every_search_of_the_page_is_tried_here() -> None:
    assert set(documented()) == RUNS.keys() | CELLS.keys()
    assert len(documented()) == 9


def test_every_search_of_the_page_finds_what_it_says(sweep: SweepFolder) -> None:
    cells: tuple[CellFinding, ...] = Findings.read(sweep.findings).cells
    for query in documented():
        runs = {record.run for record in records(sweep) if query in RUNS and RUNS[query](record)}
        named = {cell.cell for cell in cells if query in CELLS and CELLS[query](cell)}
        hits = found(sweep, query)
        assert {run.data.tags["run"] for run in hits if run.data.tags["kind"] == "run"} == runs, query
        assert {run.data.tags["cell_id"] for run in hits if run.data.tags["kind"] in SETTINGS} == named, query
        assert hits, f"{query} finds nothing in the example, so nothing is shown"


def test_runs_sort_by_every_param_metric_and_tag(sweep: SweepFolder) -> None:
    every = found(sweep, "tags.kind = 'run'")
    columns = [
        (f"{kind}.`{name}`", lambda run, kind=kind, name=name: getattr(run.data, kind).get(name))
        for kind in ("metrics", "params", "tags")
        for name in sorted({name for run in every for name in getattr(run.data, kind)})
        if not name.startswith(("accelsweep.", "mlflow."))
    ]
    assert len(columns) > 40
    turned = {column.partition(".")[0]: (column, value) for column, value in columns}.values()  # one of each kind
    for direction, asked in (("ASC", columns), ("DESC", turned)):
        for column, value in asked:
            values = [value(run) for run in found(sweep, "tags.kind = 'run'", f"{column} {direction}")]
            known = [one for one in values if one is not None]
            assert len(values) == len(every)
            assert known == sorted(known, reverse=direction == "DESC"), column
            assert known == values[: len(known)], f"{column}: what has no value stands last"


def test_a_cell_has_the_median_of_its_rates_beside_their_mean(sweep: SweepFolder) -> None:
    rates: dict[str, list[float]] = {}
    for record in records(sweep):
        if record.outcome is Outcome.measured:
            rates.setdefault(record.cell, []).append(record.metrics["samples_per_second"].value or 0.0)
    cells = [run for run in found(sweep, "tags.kind = 'cell'") if "samples_per_second" in run.data.metrics]
    assert {run.data.tags["cell_id"] for run in cells} == rates.keys()
    for run in cells:
        own = rates[run.data.tags["cell_id"]]
        assert run.data.metrics["samples_per_second_median"] == pytest.approx(median(own), rel=1e-5)
        assert run.data.metrics["samples_per_second"] == pytest.approx(geometric_mean(own), rel=1e-5)
