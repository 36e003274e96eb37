"""Stores of each kind, published sweeps and invented findings for the tests of publishing."""

from __future__ import annotations

import shutil
import sqlite3
import uuid
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from example_sweep import build_example_sweep, effective_of
from stores import StoreContents, read_runs

from accelsweep.config.setting import label
from accelsweep.heartbeat import StepCount
from accelsweep.records.estimates import Estimate, Speedup, Summary, Verdict
from accelsweep.records.findings import Choice, Findings, Recommendation, SettingFinding
from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import Manifest
from accelsweep.records.run_files import RunFolder
from accelsweep.results import Doubt


@pytest.fixture
def uri(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URI of a store: the folder's own SQLite file, or a server over HTTP."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    if getattr(request, "param", "sqlite") == "http":
        return str(request.getfixturevalue("server"))
    shutil.copy(request.getfixturevalue("empty_database"), tmp_path / "mlflow.db")
    return f"sqlite:///{tmp_path / 'mlflow.db'}"


# A server takes five times as long; other tests of test_publisher.py publish to one, too.
@pytest.fixture(scope="session", params=["sqlite", pytest.param("http", marks=pytest.mark.long)])
def published(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[SweepFolder, str]:
    """The example sweep with findings, published once to each kind of store; tests must not change it."""
    from accelsweep.tracking.publisher import publish

    folder = build_example_sweep(tmp_path_factory.mktemp("published"), name=f"published-{request.param}")
    write_findings(folder, rate=100.0)
    (folder.home / "constraints.txt").write_text("torch==2.13.0\n", "utf-8")
    uri = f"sqlite:///{folder.home / 'mlflow.db'}"
    if request.param == "http":
        uri = str(request.getfixturevalue("server"))
    else:
        shutil.copy(request.getfixturevalue("empty_database"), folder.home / "mlflow.db")
    publish(folder, uri)
    return folder, uri


@pytest.fixture(scope="session")
def original(once: Callable[..., Path], empty_database: Path) -> Callable[[str], Path]:
    """A function that returns a folder with the example, `plain` or with `findings`, published to its SQLite store."""
    from accelsweep.tracking.publisher import publish

    def of(kind: str) -> Path:
        def make(home: Path) -> None:
            folder = build_example_sweep(home)
            if kind == "findings":
                write_findings(folder)
            shutil.copy(empty_database, home / "mlflow.db")
            publish(folder, f"sqlite:///{home / 'mlflow.db'}")

        return once(f"original-{kind}", make)

    return of


@pytest.fixture
def copied(original: Callable[[str], Path], tmp_path: Path) -> tuple[SweepFolder, str]:
    """A copy of the published example for this test, and the URI of its SQLite store."""
    return copy_published(original("plain"), tmp_path)


@pytest.fixture
def copied_with_findings(original: Callable[[str], Path], tmp_path: Path) -> tuple[SweepFolder, str]:
    """The same with findings and a report."""
    return copy_published(original("findings"), tmp_path)


def copy_published(original: Path, home: Path) -> tuple[SweepFolder, str]:
    """Copy a published sweep and its store to `home`, as if it had been published there."""
    from accelsweep.tracking.published_state import published_sweeps, remember_copy

    shutil.copytree(original, home, dirs_exist_ok=True)
    folder, uri = SweepFolder(home, "example"), f"sqlite:///{home / 'mlflow.db'}"
    addresses = (original.as_uri(), home.as_uri())
    with closing(sqlite3.connect(home / "mlflow.db")) as store, store:
        store.execute("update experiments set artifact_location = replace(artifact_location, ?, ?)", addresses)
        store.execute("update runs set artifact_uri = replace(artifact_uri, ?, ?)", addresses)
    (state,) = published_sweeps(original, f"sqlite:///{original / 'mlflow.db'}").values()
    folder.published.unlink()
    remember_copy(folder, uri, state)
    return folder, uri


@pytest.fixture
def sweep(tmp_path: Path) -> SweepFolder:
    """The example sweep under a unique name, so that tests can share a server."""
    return build_example_sweep(tmp_path, name=f"example-{uuid.uuid4().hex[:8]}")


@pytest.fixture
def small_sweep(tmp_path: Path) -> SweepFolder:
    """One repeat of the example sweep under a unique name, for tests that only need something to publish."""
    return build_example_sweep(tmp_path, name=f"small-{uuid.uuid4().hex[:8]}", repeats=1)


@pytest.fixture
def read_store() -> Callable[[SweepFolder, str], StoreContents]:
    """A function that returns the runs of a sweep in a store by key, without ids and times of publication."""
    return read_runs


@pytest.fixture
def count_steps() -> Callable[[SweepFolder, str, int], None]:
    """A function that writes the step count of a running run, as the run itself does."""

    def count(folder: SweepFolder, run: str, steps: int) -> None:
        run_folder = RunFolder(folder.run(run), run)
        latest = run_folder.latest()
        number = latest if run_folder.is_open(latest) else run_folder.begin("here", "now")
        StepCount(run_folder.attempt(number) / "progress")(steps)

    return count


@pytest.fixture
def with_findings() -> Callable[..., Findings]:
    """A function that writes findings with invented aggregates and a small report for a sweep."""
    return write_findings


def write_findings(
    folder: SweepFolder, *, rate: float | None = 100.0, sentence: str = "Train on 2 devices."
) -> Findings:
    """Write findings.json, in which every supported setting has this rate, and the files of a report."""
    manifest = Manifest.read(folder.manifest)
    settings = tuple(_finding(setting.name, setting.axes, rate, setting.unsupported) for setting in manifest.settings)
    findings = Findings(
        sweep=folder.name, revision=manifest.revision, experiment=manifest.experiment, overrides=manifest.overrides,
        command="accelsweep run experiment=example", axes=manifest.axes, baseline=manifest.baseline, threshold=0.02,
        confidence=0.95, family=7, quality_metric="val_accuracy", quality_better="higher", repeats=3, planned_runs=24,
        outcomes={}, smallest_visible_effect=0.05, hardware=(), settings=settings, excluded=(), refusals=(), doubts=(),
        scaling=(), environment={}, records_sha256="0" * 64,
        recommendation=Recommendation(
            choice=Choice(setting=settings[0].setting, title="t", sentence=sentence),
            sentence=sentence, alternatives=(), settle=None,
        ),
    )  # fmt: skip
    findings.write(folder.findings)
    folder.report.mkdir(parents=True, exist_ok=True)
    (folder.report / "index.html").write_text(f"<!doctype html><title>report</title><h1>{sentence}</h1>", "utf-8")
    (folder.report / "figures").mkdir(exist_ok=True)
    (folder.report / "figures" / "rate.csv").write_text("setting\n", "utf-8")
    return findings


def _finding(setting: str, axes: dict[str, Any], rate: float | None, unsupported: str | None) -> SettingFinding:
    known = rate is not None and unsupported is None
    memory = Summary(median=5e7, minimum=4e7, maximum=6e7, count=3, unit="B", scope="process group")
    energy = Summary(median=None, minimum=None, maximum=None, count=0, unit="J", reason="RAPL is not readable here")
    return SettingFinding(
        setting=setting, label=label(axes), axes=axes, hardware="Intel Xeon (example)", planned=3, measured=3 if known
        else 0, outcomes={}, reasons=(), verdict=Verdict.faster if known else Verdict.not_measured,
        verdict_reason="because", rate=_estimate(rate, "1/s") if known and rate else None,
        speedup=Speedup(ratio=_estimate(1.5, "1"), paired=True) if known else None, quality=_estimate(0.95,
        "val_accuracy") if known else None, quality_verdict="quality: undecided", quality_difference=_estimate(0.01,
        "val_accuracy") if known else None, metrics={"host_pss_bytes": memory, "energy_joules": energy},
        effective=effective_of(axes) if known else None, doubts=(Doubt(code="busy_cpu", message="Others used the CPU.",
        remedy="Stop them."),), runs=(), costs={"usd_per_epoch": _estimate(0.5, "USD")} if known else {},
    )  # fmt: skip


def _estimate(value: float, unit: str) -> Estimate:
    return Estimate(value=value, low=0.9 * value, high=1.1 * value, unit=unit, confidence=0.99, count=3)
