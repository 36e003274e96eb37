"""Collect turns whatever a sweep left behind into one list of runs, and never uses a damaged record."""

from __future__ import annotations

import json
import shutil
from collections import Counter

import pytest

from accelsweep.analysis.collect import collect
from accelsweep.analysis.run_results import RunRow
from accelsweep.config.schema import CellConfig
from accelsweep.files import sha256_file
from accelsweep.json_documents import canonical_json, sha256_text
from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import Block, Manifest
from accelsweep.records.run_files import read_record
from accelsweep.records.run_record import Outcome


def _row(rows: list[RunRow], run: str) -> RunRow:
    (found,) = (row for row in rows if row.run == run)
    return found


def _measured(rows: list[RunRow]) -> list[RunRow]:
    return [row for row in rows if row.outcome is Outcome.measured]


def _a_measured_run(folder: SweepFolder) -> str:
    return str(_measured(collect(folder))[0].run)


def test_every_wanted_run_and_every_unsupported_cell_is_one_row(example_sweep: SweepFolder) -> None:
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
    shared = ("sweep", "cell", "run", "block", "repeat", "position", "attempt", "seed", "outcome", "axes", "config")
    shared += ("effective", "environment", "git", "doubts", "started_at", "finished_at", "wall_seconds")
    assert {name: getattr(row, name) for name in shared} == {name: getattr(record, name) for name in shared}
    fingerprint = {"hardware": row.hardware.details, "software": row.software, "builds": row.builds}
    assert {**fingerprint, "sources": row.sources} == record.fingerprint.model_dump()
    assert {name: reading._asdict() for name, reading in row.metrics.items()} == {
        name: metric.model_dump() for name, metric in record.metrics.items()
    }


def test_a_row_names_the_digest_of_the_record_it_was_read_from(example_sweep: SweepFolder) -> None:
    run = _a_measured_run(example_sweep)
    assert _row(collect(example_sweep), run).record_sha256 == sha256_file(example_sweep.record(run))


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
    assert (row.outcome, row.cell, f"{row.cell}-r{row.repeat}") == (Outcome.not_run, run.rpartition("-r")[0], run)


def test_a_run_without_a_record_has_the_config_that_its_block_holds_without_its_secrets(example_sweep) -> None:
    run = _a_measured_run(example_sweep)
    measured = _row(collect(example_sweep), run)
    shutil.rmtree(example_sweep.run(run))
    assert _row(collect(example_sweep), run).config == measured.config
    path = example_sweep.block(measured.block)
    block = Block.read(path)
    there = {"url": "https://me:hunter2@host/d"}
    secret = {cell: CellConfig.model_validate({**one.raw, "data": there}) for cell, one in block.configs.items()}
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
    cells = tuple(cell.model_copy(update={"axes": {**cell.axes, "loop": "raw"}}) for cell in manifest.cells)
    grown = manifest.model_copy(update={"axes": (*manifest.axes, "loop"), "cells": cells, "revision": 2})
    grown.write(example_sweep.manifest)
    assert {row.axes["loop"] for row in collect(example_sweep)} == {"raw"}
