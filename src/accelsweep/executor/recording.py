"""Write a run's record: merge its ranks' results and raw steps, and add what only the executor knows."""

from __future__ import annotations

import json
import os
import time
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from accelsweep.devices.clock import monotonic
from accelsweep.errors import DamagedFile
from accelsweep.executor.attempt_outcome import Conclusion
from accelsweep.executor.sampler import Samples, discard_samples
from accelsweep.files import sha256_file
from accelsweep.measure.run_doubts import with_series_doubts
from accelsweep.measure.series import columns_of, device_readings, summaries
from accelsweep.metrics import NOT_REACHED, Metric
from accelsweep.records.run_files import RunFolder, read_rank_result
from accelsweep.records.run_record import LargestBatch, Record, now
from accelsweep.redaction import masked, without_secrets
from accelsweep.results import Doubt, Fingerprint, Outcome, RankResult
from accelsweep.run_config import SettingConfig
from accelsweep.worker.run_spec import RunSpec

_NO_STEPS = Doubt(
    code="no_steps",
    message="the rate was measured, but the time of each step could not be stored",
    remedy="read run.log; without the steps, there is no way to check whether the window was steady",
)


@dataclass(frozen=True)
class Provenance:
    """The conditions of an attempt. `started_at` is UTC in ISO 8601; before that, it waited for a quiet machine."""

    launcher: str
    started_at: str
    fingerprint: Fingerprint
    git: Mapping[str, Any]
    waited_seconds: float = 0.0


def read_results(spec: RunSpec, ranks: Iterable[int]) -> dict[int, RankResult]:
    """Return the results of the `ranks` whose result files are intact."""
    results = {}
    for rank in sorted(ranks):
        try:
            results[rank] = read_rank_result(spec.rank_result(rank))
        except (DamagedFile, FileNotFoundError):
            continue
    return results


def results_after_window(
    spec: RunSpec, results: Mapping[int, RankResult], conclusion: Conclusion
) -> dict[int, RankResult] | None:
    """Return a run's results, marked as measured, if it failed after all ranks had closed their windows; else None.

    Metrics of later phases report the failure as their reason, with its location in the user's code. Divergence is a
    result, not a failure.
    """
    if conclusion.outcome in (Outcome.measured, Outcome.diverged):
        return None
    measured: dict[int, RankResult] = {}
    for rank in range(spec.world_size):
        result = results.get(rank)
        if result is None:
            try:
                result = read_rank_result(spec.rank_window(rank))
            except (DamagedFile, FileNotFoundError):
                return None
        if not result.window_is_valid:
            return None
        measured[rank] = result
    failed = (result for result in measured.values() if result.error_kind == "user_exception")
    location = next((result.user_location for result in failed), None)
    where = f", in {location}" if location and location not in str(conclusion.reason) else ""
    reason = masked(f"after the window: {conclusion.reason}{where}")
    for rank, result in measured.items():
        metrics = {
            name: replace(metric, reason=reason) if metric.reason == NOT_REACHED else metric
            for name, metric in result.metrics.items()
        }
        measured[rank] = replace(result, outcome=Outcome.measured, reason=None, error_kind="none", metrics=metrics)
    return measured


def write_record(
    run_folder: RunFolder,
    spec: RunSpec,
    config: SettingConfig,
    conclusion: Conclusion,
    results: Mapping[int, RankResult],
    provenance: Provenance,
    wall_seconds: float = 0.0,
    doubts: Iterable[Doubt] = (),
    largest_batch: LargestBatch | None = None,
    files: Mapping[str, str] | None = None,
    samples: Samples | None = None,
) -> Record:
    """Write and return an attempt's record, with rank 0's metrics, and all ranks' doubts plus `doubts`.

    `config` is the setting's config as stored in its block. `largest_batch` is the result of a search for the largest
    batch, `files` identifies the files that the user's own script had read, and `samples` is what the machine did.
    """
    steps, samples = run_folder.steps_file(spec.attempt), samples or Samples()
    first = results.get(0)
    phases = {} if first is None else first.phases
    has_steps = merge_tables(spec, steps, samples, phases, run_folder.series_file(spec.attempt))
    effective = None if first is None else first.effective
    all_doubts = [*(doubt for result in results.values() for doubt in result.doubts), *doubts]
    window = samples.span if config.whole_process or largest_batch is not None else phases.get("window")
    if window is not None:
        readings: Mapping[int, Mapping[str, Sequence[float]]] = device_readings(samples.rows, *window)
        if largest_batch is not None:  # it has no rate that heat or a power limit could affect
            readings = {number: _only({"foreign_processes"}, read) for number, read in readings.items()}
        elif config.whole_process:  # it begins on a cold device
            readings = {number: _only(read.keys() - {"celsius"}, read) for number, read in readings.items()}
        names = () if effective is None else effective.device_names
        all_doubts = with_series_doubts(all_doubts, readings, names)
    expects_steps = largest_batch is None and not config.whole_process
    if conclusion.outcome is Outcome.measured and not has_steps and expects_steps:
        all_doubts.append(_NO_STEPS)
    record = Record(
        sweep=spec.sweep,
        block=spec.block,
        run=spec.run.name,
        setting=spec.run.setting,
        repeat=spec.run.repeat,
        seed=spec.run.seed,
        planned_position=spec.planned_position,
        position=spec.position,
        attempt=spec.attempt,
        axes=without_secrets(spec.axes),
        config=without_secrets(config.raw),
        outcome=conclusion.outcome,
        reason=None if conclusion.reason is None else masked(conclusion.reason),
        started_at=provenance.started_at,
        finished_at=now(),
        wall_seconds=wall_seconds,
        effective=None if effective is None else replace(effective, launcher=provenance.launcher),
        metrics={**(first.metrics if first is not None else {}), **_series_metrics(samples, window)},
        fingerprint=provenance.fingerprint,
        environment=first.environment if first is not None else {},
        git=dict(provenance.git),
        breakdown=first.breakdown if first is not None else None,
        traits=first.traits if first is not None else None,
        learning=first.learning if first is not None else None,
        largest_batch=largest_batch,
        steps_sha256=sha256_file(steps) if has_steps else None,
        doubts=tuple({(doubt.code, doubt.message): doubt for doubt in all_doubts}.values()),
        files=dict(files or {}),
        earlier_attempts=run_folder.earlier_attempts(spec.attempt),
        waited_seconds=provenance.waited_seconds,
    )
    record.write(run_folder.record_file(spec.attempt))
    discard_samples(Path(spec.attempt_folder))
    for path in _files_in_record(spec, conclusion.outcome):
        path.unlink(missing_ok=True)
    return record


def _files_in_record(spec: RunSpec, outcome: Outcome) -> Iterator[Path]:
    """Yield the files of an attempt that its record replaces.

    Of a failed run, the results and the spec are kept; of a measured one, the results of ranks other than the first,
    whose metrics the record does not contain.
    """
    for rank in range(spec.world_size):
        yield from (spec.rank_steps(rank), spec.rank_window(rank), spec.heartbeat(rank))
    if outcome is Outcome.measured:
        yield from (spec.rank_result(0), spec.progress(), spec.file())


def _only(names: Set[str], readings: Mapping[str, Sequence[float]]) -> dict[str, Sequence[float]]:
    return {name: values for name, values in readings.items() if name in names}


def _series_metrics(samples: Samples, window: tuple[float, float] | None) -> dict[str, Metric]:
    """Return what the machine did during the window, and what it cost to sample it."""
    found = {} if window is None else summaries(samples.rows, *window)
    if samples.cpu_seconds is not None and samples.span is not None:
        seconds = samples.span[1] - samples.span[0]
        scope = f"{len(samples.rows)} readings in {seconds:.3g} s"
        share = samples.cpu_seconds / seconds
        found["sampler_cpu_cores"] = Metric(value=share, unit="cores", scope=scope, provenance="clock")
    return found


def source_doubts(before: Fingerprint, after: Fingerprint) -> list[Doubt]:
    """Return a doubt if the user's sources were edited during a run."""
    names = sorted(before.sources.keys() | after.sources.keys())
    changed = [name for name in names if before.sources.get(name) != after.sources.get(name)]
    if not changed:
        return []
    return [
        Doubt(
            code="sources_changed",
            message=f"{', '.join(changed)} changed during the run, which may have used either version",
            remedy="do not edit sources during a sweep; to measure the run again, remove its folder and repeat the "
            "command",
        )
    ]


def merge_tables(
    spec: RunSpec, steps: Path, samples: Samples, phases: Mapping[str, tuple[float, float]], series: Path
) -> bool:
    """Write the steps of all ranks to `steps`, ordered by rank, and the `samples` to `series`.

    Returns whether there are steps and all could be read. An error is logged but not raised, because the run is
    recorded all the same.
    """
    parts = [path for rank in range(spec.world_size) if (path := spec.rank_steps(rank)).exists()]
    if not parts and not samples.rows:
        return False
    has_steps = False
    try:
        _import_pyarrow()
        if parts:
            _write_steps([json.loads(part.read_bytes()) for part in parts], steps)
            has_steps = True
        if samples.rows:
            _write_series(samples, phases, series)
    except Exception:  # noqa: BLE001  whatever the error, the run's record reports that its steps are missing
        traceback.print_exc()
    return has_steps


def _import_pyarrow() -> None:
    """Import pyarrow without the thread that its allocator would start, because this process may still fork.

    The variable is removed again: runs inherit it only if their parent was prepared to fork, and then all of them do.
    """
    name = "JE_ARROW_MALLOC_CONF"
    if name in os.environ:
        import pyarrow.parquet
    else:
        os.environ[name] = "background_thread:false"
        try:
            import pyarrow.parquet  # noqa: F401
        finally:
            del os.environ[name]


def _write_series(samples: Samples, phases: Mapping[str, tuple[float, float]], target: Path) -> None:
    """Write `series.parquet`: seconds since the window opened (else sampling) and since 1970, the phase, and values.

    A value is null where nothing could be read; the table's metadata contains the `reasons`.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows, since_1970 = samples.rows, time.time() - monotonic()
    origin = phases["window"][0] if "window" in phases else rows[0]["seconds"]

    def phase_at(seconds: float) -> str | None:
        return next((name for name, (start, end) in phases.items() if start <= seconds < end), None)

    table = {
        "seconds": pa.array([row["seconds"] - origin for row in rows], pa.float64()),
        "unix_seconds": pa.array([row["seconds"] + since_1970 for row in rows], pa.float64()),
        "phase": pa.array([phase_at(row["seconds"]) for row in rows], pa.string()),
    }
    for column in columns_of(rows):
        table[column] = pa.array([row.get(column) for row in rows], pa.float64())
    described = pa.table(table).replace_schema_metadata({"reasons": json.dumps(samples.reasons)})
    pq.write_table(described, target, compression="zstd")


def _write_steps(ranks: Sequence[Mapping[str, Any]], target: Path) -> None:
    """Write `steps.parquet` from the output of `worker.main.write_steps` on each rank.

    `phase` is `warmup` or `window`; `train_loss` is null if a step returned no loss.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns: dict[str, tuple[pa.DataType, list[Any]]] = {
        "rank": (pa.int32(), []),
        "step": (pa.int64(), []),
        "phase": (pa.string(), []),
        "step_seconds": (pa.float64(), []),
        "samples": (pa.int64(), []),
        "train_loss": (pa.float64(), []),
    }
    for steps in ranks:
        count, warmup = len(steps["step_seconds"]), steps["warmup_steps"]
        columns["rank"][1].extend([steps["rank"]] * count)
        columns["step"][1].extend(range(count))
        columns["phase"][1].extend(["warmup"] * warmup + ["window"] * (count - warmup))
        columns["step_seconds"][1].extend(steps["step_seconds"])
        columns["samples"][1].extend(steps["samples"])
        columns["train_loss"][1].extend(None if loss is None else float(loss) for loss in steps["train_loss"])
    schema = pa.schema([(name, kind) for name, (kind, _) in columns.items()])
    table = pa.table({name: values for name, (_, values) in columns.items()}, schema=schema)
    temporary = target.with_name(f".{target.name}.part")
    pq.write_table(table, temporary, compression="zstd")
    temporary.replace(target)
