"""Collect turns whatever a sweep left behind into one table, and never uses a damaged record."""

from __future__ import annotations

import json
import shutil

import pandas as pd
import pytest

from accelsweep.analyse.collect import collect, read_records, table_of
from accelsweep.core.config import CellConfig
from accelsweep.core.documents import sha256_file
from accelsweep.core.plans import Block, Manifest
from accelsweep.state.folders import SweepFolder


def _row(table: pd.DataFrame, run: str) -> pd.Series:
    (found,) = (row for _, row in table.iterrows() if row["run"] == run)
    return found


def _a_measured_run(folder: SweepFolder) -> str:
    table = collect(folder)
    return str(table[table["outcome"] == "measured"]["run"].iloc[0])


def test_every_wanted_run_and_every_unsupported_cell_is_one_row(example_sweep: SweepFolder) -> None:
    manifest, table = Manifest.read(example_sweep.manifest), collect(example_sweep)
    assert table["run"].dropna().tolist() == manifest.wanted_runs()
    assert table["outcome"].value_counts().to_dict() == {
        "measured": 17,
        "out_of_memory": 3,
        "unsupported": 2,
        "diverged": 1,
        "timed_out": 1,
        "crashed": 1,
        "not_run": 1,
    }


def test_every_row_but_the_measured_ones_says_why(example_sweep: SweepFolder) -> None:
    table = collect(example_sweep)
    assert (table["reason"].isna() == (table["outcome"] == "measured")).all()


def test_metrics_are_columns_whose_absent_values_are_null_with_the_reason_beside(example_sweep: SweepFolder) -> None:
    table = collect(example_sweep)
    measured = table[table["outcome"] == "measured"]
    assert (measured["samples_per_second"] > 0).all()
    assert measured["energy_joules"].isna().all()
    energy = json.loads(measured["metrics"].iloc[0])["energy_joules"]
    assert energy == {"value": None, "unit": "J", "reason": energy["reason"], "scope": None, "provenance": None}
    assert energy["reason"].startswith("unavailable")


def test_collecting_again_writes_the_same_bytes_and_reading_gives_the_same_table(example_sweep: SweepFolder) -> None:
    first = collect(example_sweep)
    content = example_sweep.records.read_bytes()
    example_sweep.records.unlink()
    collect(example_sweep)
    assert example_sweep.records.read_bytes() == content
    pd.testing.assert_frame_equal(read_records(example_sweep.records), first)


def test_a_row_names_the_digest_of_the_record_it_was_read_from(example_sweep: SweepFolder) -> None:
    run = _a_measured_run(example_sweep)
    assert _row(collect(example_sweep), run)["record_sha256"] == sha256_file(example_sweep.record(run))


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda text: text[: len(text) // 2], "not a whole JSON document"),
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
    assert row["outcome"] == "not_run"
    assert "record.json.damaged-1" in row["reason"]
    assert why in row["reason"]
    assert pd.isna(row["samples_per_second"])
    assert not path.exists()
    assert path.with_name("record.json.damaged-1").exists()


def test_a_damaged_record_is_reported_in_the_same_words_when_collected_again(example_sweep: SweepFolder) -> None:
    run = _a_measured_run(example_sweep)
    example_sweep.record(run).write_text("{")
    assert _row(collect(example_sweep), run)["reason"] == _row(collect(example_sweep), run)["reason"]


def test_a_record_that_was_copied_to_another_runs_folder_is_not_used(example_sweep: SweepFolder) -> None:
    table = collect(example_sweep)
    one, other = table[table["outcome"] == "measured"]["run"].iloc[:2]
    shutil.copy(example_sweep.record(one), example_sweep.record(other))
    row = _row(collect(example_sweep), other)
    assert row["outcome"] == "not_run"
    assert "it is the record of another run" in row["reason"]


def test_a_run_without_a_record_is_not_run_and_keeps_its_place(example_sweep: SweepFolder) -> None:
    run = _a_measured_run(example_sweep)
    shutil.rmtree(example_sweep.run(run))
    row = _row(collect(example_sweep), run)
    assert (row["outcome"], row["cell"], f"{row['cell']}-r{row['repeat']}") == ("not_run", run.rpartition("-r")[0], run)


def test_a_run_without_a_record_has_the_config_that_its_block_holds_without_its_secrets(example_sweep) -> None:
    run = _a_measured_run(example_sweep)
    measured = _row(collect(example_sweep), run)
    shutil.rmtree(example_sweep.run(run))
    assert _row(collect(example_sweep), run)["config"] == measured["config"]
    path = example_sweep.block(measured["block"])
    block = Block.read(path)
    there = {"url": "https://me:hunter2@host/d"}
    secret = {cell: CellConfig.model_validate({**one.raw, "data": there}) for cell, one in block.configs.items()}
    block.model_copy(update={"configs": secret}).write(path)
    config = json.loads(_row(collect(example_sweep), run)["config"])
    assert config["data"] == {"url": "https://***@host/d"}


def test_a_run_without_a_record_in_a_block_that_is_lost_has_no_config(example_sweep: SweepFolder) -> None:
    run = _a_measured_run(example_sweep)
    block = _row(collect(example_sweep), run)["block"]
    shutil.rmtree(example_sweep.run(run))
    example_sweep.block(block).write_text("{")
    row = _row(collect(example_sweep), run)
    assert row["outcome"] == "not_run"
    assert pd.isna(row["config"])


def test_an_axis_that_was_added_later_has_values_for_the_runs_from_before(example_sweep: SweepFolder) -> None:
    manifest = Manifest.read(example_sweep.manifest)
    cells = tuple(cell.model_copy(update={"axes": {**cell.axes, "loop": "raw"}}) for cell in manifest.cells)
    grown = manifest.model_copy(update={"axes": (*manifest.axes, "loop"), "cells": cells, "revision": 2})
    grown.write(example_sweep.manifest)
    assert set(collect(example_sweep)["axis.loop"]) == {"raw"}


def test_an_axis_of_one_type_keeps_it_and_a_mixed_axis_is_json() -> None:
    values = [(1, "a", 1), (2, "b", "1"), (2**62, "c", None)]
    rows = [{"axes": {"whole": w, "text": t, "mixed": m}, "values": {}} for w, t, m in values]
    columns = table_of(rows, ["whole", "text", "mixed"]).to_pydict()
    assert columns["axis.whole"] == [1, 2, 2**62]
    assert columns["axis.text"] == ["a", "b", "c"]
    assert columns["axis.mixed"] == ["1", '"1"', "null"]


def test_a_number_too_large_for_a_column_and_half_a_surrogate_pair_are_kept_as_json() -> None:
    rows = [{"axes": {"large": 2**70, "odd": "\udc80"}, "values": {}}]
    columns = table_of(rows, ["large", "odd"]).to_pydict()
    assert columns["axis.large"] == [str(2**70)]
    assert columns["axis.odd"] == ["\\udc80"]


def test_a_users_metric_that_is_called_like_a_column_does_not_replace_it() -> None:
    rows = [{"axes": {}, "values": {"reason": 1.0, "my_metric": 2.0}, "reason": "text"}]
    columns = table_of(rows, []).to_pydict()
    assert columns["reason"] == ["text"]
    assert columns["my_metric"] == [2.0]
