"""Which results of a sweep are reusable: an outdated done file is removed, damaged files are set aside."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from polling import PATIENCE_SECONDS, until
from tiny_executor import TinyBlock
from tiny_sweep import CONFIG

from accelsweep.config.site import Site, Slurm
from accelsweep.errors import DamagedFile
from accelsweep.executor.result_reuse import CurrentConditions, audit, reusable_runs
from accelsweep.files import sha256_file
from accelsweep.records.file_lock import STALE_AFTER_SECONDS
from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import Done, LockOwner, Manifest
from accelsweep.records.run_record import Record
from accelsweep.records.sweep_progress import status
from accelsweep.results import Outcome
from accelsweep.worker.run_spec import RunSpec


@pytest.fixture
def finished(tiny_block: TinyBlock) -> TinyBlock:
    tiny_block.plan("measured:1", "measured:2")
    tiny_block.run()
    return tiny_block


def is_reopened(tiny_block: TinyBlock) -> bool:
    reopened = bool(audit(tiny_block.folder).reopened)
    assert reopened != tiny_block.done_file.exists()
    return reopened


def test_an_accurate_done_file_stays(finished: TinyBlock) -> None:
    found = audit(finished.folder, check_conditions=True)
    assert (found.reopened, found.damaged, found.unsettled) == ((), (), ())
    assert [run.outcome for run in found.runs] == [Outcome.measured] * 2
    assert not is_reopened(finished)


def test_a_deleted_run_folder_reopens_its_block(finished: TinyBlock) -> None:
    shutil.rmtree(finished.folder.run(finished.runs()[1]))
    assert is_reopened(finished)
    assert [run.run for run in audit(finished.folder).unsettled] == [finished.runs()[1]]


def test_a_rewritten_record_reopens_its_block(finished: TinyBlock) -> None:
    finished.record().model_copy(update={"wall_seconds": 1.0}).write(finished.record_file())
    assert is_reopened(finished)


def test_a_damaged_record_is_set_aside_and_reported_and_reopens_its_block(finished: TinyBlock) -> None:
    path = finished.record_file()
    path.write_bytes(path.read_bytes().replace(b"100.0", b"900.0"))
    found = audit(finished.folder)
    assert found.reopened == (finished.name,)
    assert [error.path for error in found.damaged] == [path]
    assert "record.json.damaged-1" in str(found.damaged[0])
    assert not path.exists()
    assert path.with_name("record.json.damaged-1").exists()


@pytest.mark.parametrize("content", [b"steps of rank 1", b"", None], ids=["altered", "empty", "deleted"])
def test_damaged_steps_are_reported_and_their_run_is_measured_again_with_the_old_record_kept(
    finished: TinyBlock, content: bytes | None
) -> None:
    run, other = finished.runs()
    steps, untouched = finished.folder.steps(run), sha256_file(finished.folder.record(other))
    if content is None:
        steps.unlink()
    else:
        steps.write_bytes(content)
    found = audit(finished.folder)
    assert found.reopened == (finished.name,)
    assert [error.path for error in found.damaged] == [steps]
    assert [(state.run, state.reason) for state in found.unsettled] == [
        (run, "its steps.parquet is damaged: " + found.damaged[0].reason.partition(";")[0])
    ]
    assert steps.with_name("steps.parquet.damaged-1").exists() == (content is not None)
    code, output = finished.run()
    assert (code, audit(finished.folder).unsettled) == (0, ())
    assert "steps.parquet: it is missing" in output
    assert finished.record().attempt == 2
    assert Record.read(finished.attempt(0, 1) / "record.json").attempt == 1
    assert sha256_file(finished.folder.record(other)) == untouched


def test_a_record_without_a_digest_of_steps_is_reusable_whatever_the_steps_are(finished: TinyBlock) -> None:
    path, done = finished.record_file(), finished.done_file
    finished.record().model_copy(update={"steps_sha256": None}).write(path)
    records = {**Done.read(done).records, finished.runs()[0]: sha256_file(path)}
    Done(block=finished.name, records=records).write(done)
    finished.folder.steps(finished.runs()[0]).write_bytes(b"?")
    assert audit(finished.folder, check_conditions=True).unsettled == ()
    assert not is_reopened(finished)
    assert "2 runs wanted, 0 to measure" in finished.run()[1]


def test_a_crashed_run_reopens_its_block(tiny_block: TinyBlock) -> None:
    tiny_block.plan("measured", "exit_three")
    tiny_block.run()
    assert is_reopened(tiny_block)
    found = audit(tiny_block.folder)
    assert [run.outcome for run in found.runs] == [Outcome.measured, Outcome.crashed]
    assert found.unsettled == found.runs[1:]


def test_a_done_file_without_a_wanted_run_is_removed(finished: TinyBlock) -> None:
    path = finished.done_file
    done = Done.read(path)
    first = finished.runs()[0]
    done.model_copy(update={"records": {first: done.records[first]}}).write(path)
    assert is_reopened(finished)


def test_a_damaged_done_file_is_set_aside(finished: TinyBlock) -> None:
    path = finished.done_file
    path.write_text("{}")
    assert is_reopened(finished)
    assert path.with_name(f"{path.name}.damaged-1").read_text() == "{}"


def test_a_damaged_block_is_set_aside_with_the_remedy(finished: TinyBlock) -> None:
    finished.block_file.write_bytes(finished.block_file.read_bytes()[:-9])
    (damaged,) = audit(finished.folder).damaged
    assert damaged.path == finished.block_file
    assert "running the same `accelsweep run` rewrites it" in str(damaged)
    assert not finished.block_file.exists()


def test_a_damaged_manifest_is_an_error_that_names_it(finished: TinyBlock) -> None:
    finished.folder.manifest.write_text("[]")
    with pytest.raises(DamagedFile, match=r"manifest\.json"):
        audit(finished.folder)


def test_records_from_other_hardware_reopen_their_block_only_if_conditions_are_checked(finished: TinyBlock) -> None:
    record = finished.record()
    other = replace(record.fingerprint, hardware={"host": "another"})
    record.model_copy(update={"fingerprint": other}).write(finished.folder.record(record.run))
    path = finished.done_file
    done = Done.read(path)
    digest = sha256_file(finished.folder.record(record.run))
    done.model_copy(update={"records": {**done.records, record.run: digest}}).write(path)
    assert audit(finished.folder).reopened == ()
    assert audit(finished.folder, check_conditions=True).reopened == (finished.name,)


CLUSTER = Site(name="box", scheduler="slurm")


def measured_through_link(tiny_block: TinyBlock, **data: str) -> Path:
    """Measure a sweep with these paths in its config, on a cluster; return the symbolic link to one of two folders."""
    for name in ("one", "two"):
        (tiny_block.home / name / "part").mkdir(parents=True)
    (link := tiny_block.home / "set").symlink_to(tiny_block.home / "one")
    tiny_block.plan("measured", config={"data": {**CONFIG["data"], **data}}, site=CLUSTER)
    tiny_block.run()
    return link


def test_a_project_can_be_moved_after_planning(tiny_block: TinyBlock) -> None:
    """The run gets the present path; the record keeps the path relative to the project."""
    tiny_block.plan("raise_error", config={"data": {**CONFIG["data"], "root": "{home}/set"}, "env": {"SET": "{home}"}})
    now = tiny_block.home.rename(tiny_block.home.with_name("moved"))
    moved = TinyBlock(now, tiny_block.leases)
    moved.folder = SweepFolder(now, tiny_block.folder.name)
    moved.block_file = now / tiny_block.block_file.relative_to(tiny_block.home)
    moved.run()
    config = RunSpec.read(moved.attempt() / "run-spec.json").config
    assert (config.data["root"], config.env["SET"]) == (f"{now}/set", str(now))
    assert moved.record().config.data["root"] == "{home}/set"


PATHS = {"in home": "{home}/set/part", "relative": "set/part", "name": "set", "through a parent": "one/../set"}


@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS)
def test_a_link_with_a_new_target_reopens_its_block_even_on_a_cluster(tiny_block: TinyBlock, path: str) -> None:
    link = measured_through_link(tiny_block, root=path)
    assert audit(tiny_block.folder, check_conditions=True).reopened == ()
    link.unlink()
    link.symlink_to(tiny_block.home / "two")
    assert audit(tiny_block.folder, check_conditions=True).reopened == (tiny_block.name,)
    place = "/part" if path.endswith("part") else ""
    assert f"links data.root: {{home}}/one{place} then, {{home}}/two{place} now" in tiny_block.run()[1]
    assert tiny_block.record().attempt == 2
    assert audit(tiny_block.folder, check_conditions=True).reopened == ()


def test_the_driver_on_a_cluster_leaves_absolute_links_and_hardware_to_the_nodes(
    tiny_block: TinyBlock, tmp_path: Path
) -> None:
    """A node may mount the same folder elsewhere."""
    (elsewhere := tmp_path / "elsewhere").symlink_to(tmp_path / "there")
    measured_through_link(tiny_block, root=str(elsewhere))
    record = tiny_block.record()
    assert record.fingerprint.links == {"data.root": str(tmp_path / "there")}
    there = {"hardware": {"host": "a node's"}, "links": {"data.root": "/mnt/there"}}
    path = tiny_block.folder.record(record.run)
    record.model_copy(update={"fingerprint": replace(record.fingerprint, **there)}).write(path)
    Done(block=tiny_block.name, records={record.run: sha256_file(path)}).write(tiny_block.done_file)
    assert audit(tiny_block.folder, check_conditions=True).reopened == ()


def test_changed_sources_reopen_a_block_on_a_cluster_but_packages_in_a_container_do_not(
    tiny_block: TinyBlock,
) -> None:
    tiny_block.home.mkdir()
    (tiny_block.home / "own_net.py").write_text("class Net: ...\n")
    contained = CLUSTER.model_copy(update={"slurm": Slurm(container="apptainer exec image.sif")})
    model = {"_target_": "own_net.Net", "inner": {"_target_": "torchmetrics.Metric"}}
    for number, site in enumerate((CLUSTER, contained)):
        tiny_block.plan("measured", config={"model": model}, site=site, name=f"sweep{number}")
        tiny_block.run()
        record = tiny_block.record()
        sources = record.fingerprint.sources | {"torchmetrics": "the container's"}
        software = {"torch": "the container's"}
        other = replace(record.fingerprint, sources=sources, software=software)
        current = CurrentConditions(tiny_block.folder, site)
        assert (current.why_rerun(record.model_copy(update={"fingerprint": other})) is None) == (site is contained)
        assert reusable_runs([record], tiny_block.folder, site) == {record.run}
        (tiny_block.home / "own_net.py").write_text(f"class Net: x = {number}\n")
        assert reusable_runs([record], tiny_block.folder, site) == set()
        assert CurrentConditions(tiny_block.folder, site).why_outdated(record) == "the code changed (own_net)"
        assert audit(tiny_block.folder, check_conditions=True).reopened == (tiny_block.name,)


def test_a_block_with_a_living_executor_is_reopened_but_its_damaged_records_are_left_in_place(
    tiny_block: TinyBlock,
) -> None:
    tiny_block.plan("measured", "lasting")
    process = tiny_block.start()
    until(tiny_block.record_file().exists)
    path = tiny_block.record_file()
    whole = path.read_bytes()
    path.write_bytes(whole[:-7])
    Done(block=tiny_block.name, records={}).write(tiny_block.done_file)
    audited = audit(tiny_block.folder)
    assert audited.reopened == (tiny_block.name,)
    assert [error.path for error in audited.damaged] == [path]
    assert path.exists()
    found = status(tiny_block.folder, Manifest.read(tiny_block.folder.manifest))
    assert [running.pid for running in found.running] == [process.pid]
    assert [running.alive for running in found.running] == [True]
    path.write_bytes(whole)
    process.communicate(timeout=PATIENCE_SECONDS)


def test_damage_in_a_block_locked_by_a_dead_node_is_set_aside(finished: TinyBlock) -> None:
    lock = finished.lock_file
    LockOwner(block=finished.name, host="node7", pid=1, process_started=0.0, since="then").write(lock)
    record = finished.record_file()
    record.write_text("{")
    audit(finished.folder)
    assert record.exists(), "node 7 has just renewed its lock"
    os.utime(lock, (time.time() - STALE_AFTER_SECONDS - 5,) * 2)
    assert [running.alive for running in status(finished.folder, Manifest.read(finished.folder.manifest)).running] == [
        False
    ]
    audit(finished.folder)
    assert not record.exists()


def test_status_counts_finished_and_remaining_runs(tiny_block: TinyBlock) -> None:
    tiny_block.plan("measured", "exit_three", "break_at_the_end")
    before = status(tiny_block.folder, Manifest.read(tiny_block.folder.manifest))
    assert (before.planned, before.remaining, before.seconds_left, before.running) == (3, 3, None, ())
    tiny_block.run()
    after = status(tiny_block.folder, Manifest.read(tiny_block.folder.manifest))
    assert after.outcomes == {Outcome.measured: 2, Outcome.crashed: 1}
    assert after.remaining == 1
    assert [(doubted.run, doubted.doubt.code) for doubted in after.doubts] == [(tiny_block.runs()[2], "bad_teardown")]


def test_the_remaining_time_is_estimated_from_the_runs_that_took_time(tiny_block: TinyBlock) -> None:
    tiny_block.plan("measured:1", "measured:2", "exit_three", "measured:3")
    tiny_block.run()
    endings = (
        (Outcome.measured, None, 10.0),
        (Outcome.unsupported, "no device", 0.0),
        (Outcome.crashed, "exit 3", 20.0),
    )
    for run, (outcome, reason, seconds) in zip(tiny_block.runs(), endings, strict=False):
        path = tiny_block.folder.record(run)
        changed = {"outcome": outcome, "reason": reason, "wall_seconds": seconds, "earlier_attempts": ()}
        Record.read(path).model_copy(update=changed).write(path)
    tiny_block.record_file(3).unlink()
    found = status(tiny_block.folder, Manifest.read(tiny_block.folder.manifest))
    assert (found.remaining, found.seconds_left) == (2, 2 * 15.0)


def test_neither_audit_nor_status_nor_a_skipped_block_imports_torch_or_pandas() -> None:
    code = (
        "import sys, accelsweep.executor.result_reuse, accelsweep.records.sweep_progress, accelsweep.executor.block\n"
        "heavy = ('torch', 'lightning', 'pandas', 'mlflow', 'hydra', 'pyarrow')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
