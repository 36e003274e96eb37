"""Collecting returns a row for every planned run, never uses a damaged record, and exports one table."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from dataclasses import asdict
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from accelsweep.analysis import collect as collect_module
from accelsweep.analysis.collect import collect, runs_tables
from accelsweep.analysis.run_results import RunRow
from accelsweep.config.schema import checked_config
from accelsweep.files import sha256_file
from accelsweep.metrics import Metric
from accelsweep.plain_json import canonical_json, sha256_text
from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import Block, Manifest
from accelsweep.records.run_files import read_record
from accelsweep.results import Outcome


def _row(rows: list[RunRow], run: str) -> RunRow:
    (found,) = (row for row in rows if row.run == run)
    return found


def _measured(rows: list[RunRow]) -> list[RunRow]:
    return [row for row in rows if row.outcome is Outcome.measured]


def _a_measured_run(folder: SweepFolder) -> str:
    return str(_measured(collect(folder))[0].run)


def test_every_wanted_run_and_every_unsupported_setting_is_one_row(example_sweep: SweepFolder) -> None:
    manifest, rows = Manifest.read(example_sweep.manifest), collect(example_sweep)
    assert [row.run for row in rows if row.run is not None] == list(manifest.wanted_runs())
    assert Counter(row.outcome for row in rows) == {
        "measured": 17,
        "out_of_memory": 3,
        "unsupported": 2,
        "diverged": 1,
        "timed_out": 1,
        "crashed": 1,
        "not_run": 1,
    }


def test_every_row_but_the_measured_ones_says_why(example_sweep: SweepFolder) -> None:
    assert all((row.reason is None) == (row.outcome is Outcome.measured) for row in collect(example_sweep))


def test_a_row_says_what_its_record_says(example_sweep: SweepFolder) -> None:
    row = _measured(collect(example_sweep))[0]
    record = read_record(example_sweep, str(row.run))
    shared = ("sweep", "setting", "run", "block", "repeat", "position", "attempt", "seed", "outcome", "axes", "config")
    shared += ("effective", "environment", "git", "doubts", "started_at", "finished_at", "wall_seconds")
    assert {name: getattr(row, name) for name in shared} == {name: getattr(record, name) for name in shared}
    fingerprint = {"hardware": row.hardware.details, "software": row.software, "builds": row.builds}
    assert {**fingerprint, "sources": row.sources} == {
        name: facts for name, facts in asdict(record.fingerprint).items() if name != "links"
    }
    assert row.metrics == record.metrics


def test_a_row_names_the_digest_of_the_record_it_was_read_from(example_sweep: SweepFolder) -> None:
    run = _a_measured_run(example_sweep)
    assert _row(collect(example_sweep), run).record_sha256 == sha256_file(example_sweep.record(run))


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda text: text[: len(text) // 2], "not a complete JSON document"),
        (lambda text: text.replace('"attempt":1', '"attempt":2'), "do not match its checksum"),
        (lambda text: text.replace('"format":1', '"format":99'), "format 99"),
    ],
    ids=["truncated", "altered", "of another format"],
)
def test_a_damaged_record_is_set_aside_and_its_run_says_so(example_sweep: SweepFolder, damage, why: str) -> None:
    run = _a_measured_run(example_sweep)
    path = example_sweep.record(run)
    path.write_text(damage(path.read_text("utf-8")), "utf-8")
    row = _row(collect(example_sweep), run)
    assert row.outcome is Outcome.not_run
    assert "record.json.damaged-1" in row.reason
    assert why in row.reason
    assert (row.metrics, row.recorded) == ({}, False)
    assert not path.exists()
    assert path.with_name("record.json.damaged-1").exists()


def test_a_damaged_record_is_reported_in_the_same_words_when_collected_again(example_sweep: SweepFolder) -> None:
    run = _a_measured_run(example_sweep)
    example_sweep.record(run).write_text("{")
    assert _row(collect(example_sweep), run).reason == _row(collect(example_sweep), run).reason


def test_a_record_of_an_older_version_that_lacks_what_came_later_is_a_row_like_any_other(
    example_sweep: SweepFolder,
) -> None:
    run = _a_measured_run(example_sweep)
    path = example_sweep.record(run)
    body = json.loads(path.read_text("utf-8"))["body"]
    del body["breakdown"], body["steps_sha256"], body["config"]["task"]
    del body["effective"]["deterministic"], body["effective"]["matmul_precision"]
    text = canonical_json(body)
    path.write_text(f'{{"accelsweep":"record","format":1,"sha256":"{sha256_text(text)}","body":{text}}}\n', "utf-8")
    row = _row(collect(example_sweep), run)
    assert (row.outcome, row.reason) == (Outcome.measured, None)
    assert (row.config.task, "task" in row.config.raw) == ("train_throughput", False)
    assert (row.effective.deterministic, row.effective.matmul_precision) == (False, "highest")


def test_a_record_that_was_copied_to_another_runs_folder_is_not_used(example_sweep: SweepFolder) -> None:
    one, other = (str(row.run) for row in _measured(collect(example_sweep))[:2])
    shutil.copy(example_sweep.record(one), example_sweep.record(other))
    row = _row(collect(example_sweep), other)
    assert row.outcome is Outcome.not_run
    assert "it is the record of another run" in row.reason


def test_a_run_without_a_record_is_not_run_and_keeps_its_place(example_sweep: SweepFolder) -> None:
    run = _a_measured_run(example_sweep)
    shutil.rmtree(example_sweep.run(run))
    row = _row(collect(example_sweep), run)
    assert (row.outcome, row.setting, f"{row.setting}-r{row.repeat}") == (Outcome.not_run, run.rpartition("-r")[0], run)


def test_a_run_without_a_record_has_the_config_that_its_block_holds_without_its_secrets(example_sweep) -> None:
    run = _a_measured_run(example_sweep)
    measured = _row(collect(example_sweep), run)
    shutil.rmtree(example_sweep.run(run))
    assert _row(collect(example_sweep), run).config == measured.config
    path = example_sweep.block(measured.block)
    block = Block.read(path)
    there = {"url": "https://me:hunter2@host/d"}
    secret = {setting: checked_config({**one.raw, "data": there}) for setting, one in block.configs.items()}
    block.model_copy(update={"configs": secret}).write(path)
    config = _row(collect(example_sweep), run).config
    assert config.raw["data"] == {"url": "https://***@host/d"}


def test_a_run_without_a_record_in_a_block_that_is_lost_has_no_config(example_sweep: SweepFolder) -> None:
    run = _a_measured_run(example_sweep)
    block = _row(collect(example_sweep), run).block
    shutil.rmtree(example_sweep.run(run))
    example_sweep.block(block).write_text("{")
    row = _row(collect(example_sweep), run)
    assert (row.outcome, row.config) == (Outcome.not_run, None)


def test_an_axis_that_was_added_later_has_values_for_the_runs_from_before(example_sweep: SweepFolder) -> None:
    manifest = Manifest.read(example_sweep.manifest)
    settings = tuple(
        setting.model_copy(update={"axes": {**setting.axes, "loop": "raw"}}) for setting in manifest.settings
    )
    grown = manifest.model_copy(update={"axes": (*manifest.axes, "loop"), "settings": settings, "revision": 2})
    grown.write(example_sweep.manifest)
    assert {row.axes["loop"] for row in collect(example_sweep)} == {"raw"}


def _run(axes: dict[str, Any], **fields: Any) -> RunRow:
    return RunRow("s", "c", Outcome.measured, axes, **fields)


def _exported(folder: SweepFolder) -> list[dict[str, Any]]:
    collect(folder)
    return list(pq.read_table(folder.records).to_pylist())


def test_the_table_has_a_row_for_every_planned_run_and_every_unsupported_setting(example_sweep: SweepFolder) -> None:
    manifest, rows = Manifest.read(example_sweep.manifest), _exported(example_sweep)
    assert [row["run"] for row in rows] == [*manifest.wanted_runs(), None, None]
    assert [row["outcome"] for row in rows[-2:]] == ["unsupported"] * 2


def test_the_columns_stand_in_a_fixed_order_and_the_file_carries_no_librarys_metadata(example_sweep) -> None:
    collect(example_sweep)
    schema = pq.read_schema(example_sweep.records)
    assert ",".join(schema.names) == (
        "sweep,setting,run,block,repeat,position,attempt,seed,outcome,reason,started_at,finished_at,wall_seconds,"
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
    columns = next(runs_tables(rows, ["whole", "text", "mixed"])).to_pydict()
    assert columns["axis.whole"] == [1, 2, 2**62]
    assert columns["axis.text"] == ["a", "b", "c"]
    assert columns["axis.mixed"] == ["1", '"1"', "null"]


def test_integers_beyond_64_bits_and_lone_surrogates_are_kept_as_json() -> None:
    columns = next(runs_tables([_run({"large": 2**70, "odd": "\udc80"})], ["large", "odd"])).to_pydict()
    assert columns["axis.large"] == [str(2**70)]
    assert columns["axis.odd"] == ["\\udc80"]


def test_a_long_table_is_written_in_parts_with_the_same_columns(monkeypatch) -> None:
    axes = [{"flag": flag, "mixed": value} for flag, value in ((True, 1), (False, "é"), (True, None))]
    rows = [_run(one, repeat=number, metrics={f"m{number}": Metric(0.5, "1")}) for number, one in enumerate(axes)]
    (whole,) = runs_tables(rows, ["flag", "mixed"])
    monkeypatch.setattr(collect_module, "_ROW_GROUP", 2)
    parts = list(runs_tables(rows, ["flag", "mixed"]))
    assert [part.num_rows for part in parts] == [2, 1]
    assert pa.concat_tables(parts).equals(whole)
    assert whole.column("axis.flag").to_pylist() == [True, False, True]
    assert whole.column("axis.mixed").to_pylist() == ["1", '"é"', "null"]
    assert whole.column("m1").to_pylist() == [None, 0.5, None]
    assert whole.column("block").null_count == 3
    whole.validate(full=True)


def test_a_table_without_runs_is_empty() -> None:
    (table,) = runs_tables([], ["axis"])
    assert table.num_rows == 0
    table.validate(full=True)


def test_a_users_metric_that_is_called_like_a_column_does_not_replace_it() -> None:
    metrics = {"reason": Metric(1.0, "1"), "my_metric": Metric(2.0, "1")}
    columns = next(runs_tables([_run({}, reason="text", metrics=metrics)], [])).to_pydict()
    assert columns["reason"] == ["text"]
    assert columns["my_metric"] == [2.0]
