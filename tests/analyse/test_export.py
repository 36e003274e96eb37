"""The exported table holds every run, in columns that are the same for the same runs, byte by byte."""

from __future__ import annotations

import json
from typing import Any

import pyarrow.parquet as pq

from accelsweep.analysis.collect import collect, table_of
from accelsweep.analysis.run_results import Reading, RunRow
from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import Manifest
from accelsweep.records.run_record import Outcome


def _run(axes: dict[str, Any], **fields: Any) -> RunRow:
    return RunRow("s", "c", Outcome.measured, axes, **fields)


def _exported(folder: SweepFolder) -> list[dict[str, Any]]:
    collect(folder)
    return list(pq.read_table(folder.records).to_pylist())


def test_every_wanted_run_and_every_unsupported_cell_is_one_row(example_sweep: SweepFolder) -> None:
    manifest, rows = Manifest.read(example_sweep.manifest), _exported(example_sweep)
    assert [row["run"] for row in rows] == [*manifest.wanted_runs(), None, None]
    assert [row["outcome"] for row in rows[-2:]] == ["unsupported"] * 2


def test_the_columns_stand_in_a_fixed_order_and_the_file_carries_no_librarys_metadata(example_sweep) -> None:
    collect(example_sweep)
    schema = pq.read_schema(example_sweep.records)
    assert ",".join(schema.names) == (
        "sweep,cell,run,block,repeat,position,attempt,seed,outcome,reason,started_at,finished_at,wall_seconds,"
        "config,effective,metrics,hardware,software,builds,sources,environment,git,doubts,record_sha256,"
        "axis.devices,axis.batch_size,axis.precision,"
        "energy_joules,final_train_loss,first_step_seconds,host_pss_bytes,load_seconds,peak_memory_allocated_bytes,"
        "quality,quality_seconds,samples_per_second,step_seconds,step_seconds_p50,step_seconds_p99,window_samples,"
        "window_seconds,window_steps"
    )
    assert schema.metadata is None


def test_metrics_are_columns_whose_absent_values_are_null_with_the_reason_beside(example_sweep: SweepFolder) -> None:
    measured = [row for row in _exported(example_sweep) if row["outcome"] == "measured"]
    assert all(row["samples_per_second"] > 0 and row["energy_joules"] is None for row in measured)
    energy = json.loads(measured[0]["metrics"])["energy_joules"]
    assert energy == {"value": None, "unit": "J", "reason": energy["reason"], "scope": None, "provenance": None}
    assert energy["reason"].startswith("unavailable")


def test_what_only_a_record_tells_is_null_where_there_is_none_and_json_where_there_is_one(example_sweep) -> None:
    rows = _exported(example_sweep)
    told = ("metrics", "hardware", "software", "builds", "sources", "environment", "git", "doubts")
    for row in rows:
        recorded = row["outcome"] not in ("not_run", "unsupported")
        assert {row[name] is not None for name in (*told, "record_sha256")} == {recorded}
        assert all(json.loads(row[name]) is not None for name in told if recorded)
    (absent,) = (row for row in rows if row["outcome"] == "not_run")
    assert json.loads(absent["config"])["batch_size"] == 32


def test_collecting_again_writes_the_same_bytes(example_sweep: SweepFolder) -> None:
    collect(example_sweep)
    content = example_sweep.records.read_bytes()
    example_sweep.records.unlink()
    collect(example_sweep)
    assert example_sweep.records.read_bytes() == content


def test_an_axis_of_one_type_keeps_it_and_a_mixed_axis_is_json() -> None:
    values = [(1, "a", 1), (2, "b", "1"), (2**62, "c", None)]
    rows = [_run({"whole": w, "text": t, "mixed": m}) for w, t, m in values]
    columns = table_of(rows, ["whole", "text", "mixed"]).to_pydict()
    assert columns["axis.whole"] == [1, 2, 2**62]
    assert columns["axis.text"] == ["a", "b", "c"]
    assert columns["axis.mixed"] == ["1", '"1"', "null"]


def test_a_number_too_large_for_a_column_and_half_a_surrogate_pair_are_kept_as_json() -> None:
    columns = table_of([_run({"large": 2**70, "odd": "\udc80"})], ["large", "odd"]).to_pydict()
    assert columns["axis.large"] == [str(2**70)]
    assert columns["axis.odd"] == ["\\udc80"]


def test_a_users_metric_that_is_called_like_a_column_does_not_replace_it() -> None:
    metrics = {"reason": Reading(1.0, "1"), "my_metric": Reading(2.0, "1")}
    columns = table_of([_run({}, reason="text", metrics=metrics)], []).to_pydict()
    assert columns["reason"] == ["text"]
    assert columns["my_metric"] == [2.0]
