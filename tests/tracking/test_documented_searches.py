"""Every search in docs/mlflow.md finds what the page says, and every column sorts, in each kind of store."""

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

from accelsweep.metrics import Metric
from accelsweep.records.findings import Findings, SettingFinding
from accelsweep.records.layout import SweepFolder
from accelsweep.records.run_record import Record
from accelsweep.results import Doubt, Outcome
from accelsweep.tracking.publisher import publish

pytestmark = pytest.mark.real

PAGE = Path(__file__).resolve().parents[2] / "docs" / "mlflow.md"
THROTTLED = Doubt(code="throttled", message="it ran slower than it could", remedy="cool it")

Predicate = Callable[[Any], bool]

RUNS: dict[str, Predicate] = {
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
"""The page's searches for repeats, and the records that each must find."""

SETTINGS: dict[str, Predicate] = {
    "tags.kind = 'setting'": lambda finding: Outcome.unsupported not in finding.outcomes,
    "tags.kind = 'setting' and tags.verdict = 'faster'": lambda finding: finding.verdict == "faster",
    "tags.kind = 'setting' and metrics.speedup_low > 1.5": lambda finding: (
        finding.speedup is not None and (finding.speedup.ratio.low or 0.0) > 1.5
    ),
    "params.batch_size = '128' and params.precision = 'bf16-mixed'": lambda finding: (
        (finding.axes["batch_size"], finding.axes["precision"]) == (128, "bf16-mixed")
    ),
    "tags.kind = 'unsupported'": lambda finding: Outcome.unsupported in finding.outcomes,
    "tags.outcome = 'out_of_memory'": lambda finding: set(finding.outcomes) == {Outcome.out_of_memory},
    "tags.doubts LIKE '%throttled%'": lambda finding: any(doubt.code == "throttled" for doubt in finding.doubts),
}
"""The page's searches for settings, and the findings that each must find."""


def documented_searches() -> list[str]:
    """Return the searches in the page's table."""
    table = PAGE.read_text("utf-8").partition("## Useful searches")[2].partition("\n\nThe same")[0]
    settings = [line.split(" | ")[0].removeprefix("| ") for line in table.splitlines() if line.startswith("| `")]
    return [re.sub(r"^(`+) ?(.*?) ?\1$", r"\2", setting) for setting in settings]


# a server passes a search on to the same kind of store
@pytest.fixture(scope="session", params=["sqlite", pytest.param("http", marks=pytest.mark.long)])
def searched(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, empty_database: Path
) -> tuple[SweepFolder, str]:
    """The example with energy in every record and a throttled run, analysed and published to each kind of store."""
    from accelsweep.analysis.analyse_sweep import analyse
    from accelsweep.analysis.collect import collect
    from accelsweep.records.plan import Manifest

    sweep = build_example_sweep(tmp_path_factory.mktemp("searched"), name=f"searched-{request.param}")
    manifest = Manifest.read(sweep.manifest)
    for number, path in enumerate(sorted(sweep.root.glob("runs/*/record.json"))):
        record = Record.read(path)
        energy = {"energy_joules": Metric(value=100.0 + 20 * number, unit="J")} if record.metrics else {}
        throttled = (record.setting, record.repeat) == (
            manifest.baseline,
            1,
        )  # one of three: its setting keeps a verdict
        doubts = (*record.doubts, THROTTLED) if throttled else record.doubts
        record.model_copy(update={"metrics": record.metrics | energy, "doubts": doubts}).write(path)
    analyse(collect(sweep), manifest).write(sweep.findings)
    shutil.copy(empty_database, sweep.home / "mlflow.db")
    uri = str(request.getfixturevalue("server")) if request.param == "http" else f"sqlite:///{sweep.home}/mlflow.db"
    publish(sweep, uri)
    return sweep, uri


@pytest.fixture
def sweep(searched: tuple[SweepFolder, str], monkeypatch: pytest.MonkeyPatch) -> SweepFolder:
    """The published sweep; MLflow's own functions use its store."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", searched[1])
    return searched[0]


def records(sweep: SweepFolder) -> list[Record]:
    return [Record.read(path) for path in sorted(sweep.root.glob("runs/*/record.json"))]


def search(sweep: SweepFolder, query: str, order: str | None = None) -> list[Any]:
    """Return what `mlflow.search_runs` finds, which the page names too."""
    import mlflow

    order_by = None if order is None else [order]
    runs: list[Any] = mlflow.search_runs(
        experiment_names=[sweep.name], filter_string=query, order_by=order_by, output_format="list"
    )
    return runs


def test_every_search_of_the_page_is_tested_here() -> None:
    assert set(documented_searches()) == RUNS.keys() | SETTINGS.keys()
    assert len(documented_searches()) == 9


def test_every_search_finds_what_the_page_says(sweep: SweepFolder) -> None:
    findings: tuple[SettingFinding, ...] = Findings.read(sweep.findings).settings
    for query in documented_searches():
        runs = {record.run for record in records(sweep) if query in RUNS and RUNS[query](record)}
        settings = {finding.setting for finding in findings if query in SETTINGS and SETTINGS[query](finding)}
        hits = search(sweep, query)
        assert {run.data.tags["run"] for run in hits if run.data.tags["kind"] == "run"} == runs, query
        assert {
            run.data.tags["setting_id"] for run in hits if run.data.tags["kind"] in ("setting", "unsupported")
        } == settings, query
        assert hits, f"{query} finds nothing in the example, so it is not tested"


def test_runs_sort_by_every_param_metric_and_tag(sweep: SweepFolder) -> None:
    runs = search(sweep, "tags.kind = 'run'")
    columns = [
        (f"{kind}.`{name}`", lambda run, kind=kind, name=name: getattr(run.data, kind).get(name))
        for kind in ("metrics", "params", "tags")
        for name in sorted({name for run in runs for name in getattr(run.data, kind)})
        if not name.startswith(("accelsweep.", "mlflow."))
    ]
    assert len(columns) > 40
    one_per_kind = {column.partition(".")[0]: (column, value) for column, value in columns}.values()
    for direction, tested in (("ASC", columns), ("DESC", one_per_kind)):
        for column, value in tested:
            values = [value(run) for run in search(sweep, "tags.kind = 'run'", f"{column} {direction}")]
            known = [item for item in values if item is not None]
            assert len(values) == len(runs)
            assert known == sorted(known, reverse=direction == "DESC"), column
            assert known == values[: len(known)], f"{column}: runs without a value come last"


def test_a_setting_has_the_median_and_the_geometric_mean_of_its_rates(sweep: SweepFolder) -> None:
    rates: dict[str, list[float]] = {}
    for record in records(sweep):
        if record.outcome is Outcome.measured:
            rates.setdefault(record.setting, []).append(record.metrics["samples_per_second"].value or 0.0)
    settings = [run for run in search(sweep, "tags.kind = 'setting'") if "samples_per_second" in run.data.metrics]
    assert {run.data.tags["setting_id"] for run in settings} == rates.keys()
    for run in settings:
        measured = rates[run.data.tags["setting_id"]]
        assert run.data.metrics["samples_per_second_median"] == pytest.approx(median(measured), rel=1e-5)
        assert run.data.metrics["samples_per_second"] == pytest.approx(geometric_mean(measured), rel=1e-5)
