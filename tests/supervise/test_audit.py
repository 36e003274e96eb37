"""What stands of a sweep: a done file must be true, whatever happened to the records behind it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from patience import PATIENCE_SECONDS, until
from tiny_supervisor import Supervised
from tiny_sweep import CONFIG

from accelsweep.config.site import Site, Slurm
from accelsweep.errors import DamagedFile
from accelsweep.executor.result_reuse import Present, audit, standing
from accelsweep.json_documents import sha256_file
from accelsweep.records.file_lock import DEAD_AFTER_SECONDS
from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import Done, Hold
from accelsweep.records.run_record import Outcome, Record
from accelsweep.records.sweep_progress import status
from accelsweep.worker.run_spec import RunSpec


@pytest.fixture
def finished(supervised: Supervised) -> Supervised:
    supervised.plan("measured:1", "measured:2")
    supervised.run()
    return supervised


def reopened(supervised: Supervised) -> bool:
    found = audit(supervised.folder)
    exists = supervised.folder.done(supervised.block.stem).exists()
    assert bool(found.reopened) != exists
    return bool(found.reopened)


def test_a_true_done_file_stays(finished: Supervised) -> None:
    found = audit(finished.folder, check_present=True)
    assert (found.reopened, found.damaged, found.unsettled) == ((), (), ())
    assert found.outcomes == {Outcome.measured: 2}
    assert not reopened(finished)


def test_a_deleted_run_folder_reopens_its_block(finished: Supervised) -> None:
    shutil.rmtree(finished.folder.run(finished.runs()[1]))
    assert reopened(finished)
    assert [run.run for run in audit(finished.folder).unsettled] == [finished.runs()[1]]


def test_a_record_that_was_rewritten_since_reopens_its_block(finished: Supervised) -> None:
    finished.record().model_copy(update={"wall_seconds": 1.0}).write(finished.folder.record(finished.runs()[0]))
    assert reopened(finished)


def test_a_damaged_record_is_set_aside_named_and_reopens_its_block(finished: Supervised) -> None:
    path = finished.folder.record(finished.runs()[0])
    path.write_bytes(path.read_bytes().replace(b"100.0", b"900.0"))
    found = audit(finished.folder)
    assert found.reopened == (finished.block.stem,)
    assert [error.path for error in found.damaged] == [path]
    assert "record.json.damaged-1" in str(found.damaged[0])
    assert not path.exists()
    assert path.with_name("record.json.damaged-1").exists()


@pytest.mark.parametrize("content", [b"steps of rank 1", b"", None], ids=["altered", "empty", "deleted"])
def test_damaged_steps_are_named_and_their_run_is_measured_again_with_the_old_record_kept(
    finished: Supervised, content: bytes | None
) -> None:
    run, other = finished.runs()
    steps, untouched = finished.folder.steps(run), sha256_file(finished.folder.record(other))
    if content is None:
        steps.unlink()
    else:
        steps.write_bytes(content)
    found = audit(finished.folder)
    assert found.reopened == (finished.block.stem,)
    assert [error.path for error in found.damaged] == [steps]
    assert [(state.run, state.reason) for state in found.unsettled] == [
        (run, "its steps.parquet is damaged: " + found.damaged[0].why.partition(";")[0])
    ]
    assert steps.with_name("steps.parquet.damaged-1").exists() == (content is not None)
    code, output = finished.run()
    assert (code, audit(finished.folder).unsettled) == (0, ())
    assert "steps.parquet: it is missing" in output
    assert finished.record().attempt == 2
    assert Record.read(finished.attempt(0, 1) / "record.json").attempt == 1
    assert sha256_file(finished.folder.record(other)) == untouched


def test_an_old_record_that_vouches_for_no_steps_stands_whatever_they_are(finished: Supervised) -> None:
    path, done = finished.folder.record(finished.runs()[0]), finished.folder.done(finished.block.stem)
    finished.record().model_copy(update={"steps_sha256": None}).write(path)
    records = {**Done.read(done).records, finished.runs()[0]: sha256_file(path)}
    Done(block=finished.block.stem, records=records).write(done)
    finished.folder.steps(finished.runs()[0]).write_bytes(b"?")
    assert audit(finished.folder, check_present=True).unsettled == ()
    assert not reopened(finished)
    assert "2 runs wanted, 0 to measure" in finished.run()[1]


def test_an_outcome_that_is_no_answer_reopens_its_block(supervised: Supervised) -> None:
    supervised.plan("measured", "exit_three")
    supervised.run()
    assert reopened(supervised)
    assert [(run.outcome, run.settled) for run in audit(supervised.folder).runs] == [
        (Outcome.measured, True),
        (Outcome.crashed, False),
    ]


def test_a_done_file_that_lacks_a_wanted_run_is_removed(finished: Supervised) -> None:
    path = finished.folder.done(finished.block.stem)
    done = Done.read(path)
    first = finished.runs()[0]
    done.model_copy(update={"records": {first: done.records[first]}}).write(path)
    assert reopened(finished)


def test_a_damaged_done_file_is_set_aside(finished: Supervised) -> None:
    path = finished.folder.done(finished.block.stem)
    path.write_text("{}")
    assert reopened(finished)
    assert path.with_name(f"{path.name}.damaged-1").read_text() == "{}"


def test_a_damaged_block_is_set_aside_and_the_message_says_what_to_do(finished: Supervised) -> None:
    finished.block.write_bytes(finished.block.read_bytes()[:-9])
    (damaged,) = audit(finished.folder).damaged
    assert damaged.path == finished.block
    assert "the same `accelsweep run` writes it anew" in str(damaged)
    assert not finished.block.exists()


def test_a_damaged_manifest_cannot_be_audited_and_is_named(finished: Supervised) -> None:
    finished.folder.manifest.write_text("[]")
    with pytest.raises(DamagedFile, match=r"manifest\.json"):
        audit(finished.folder)


def test_records_made_on_other_hardware_reopen_their_block_only_where_asked(finished: Supervised) -> None:
    record = finished.record()
    other = record.fingerprint.model_copy(update={"hardware": {"host": "another"}})
    record.model_copy(update={"fingerprint": other}).write(finished.folder.record(record.run))
    path = finished.folder.done(finished.block.stem)
    done = Done.read(path)
    digest = sha256_file(finished.folder.record(record.run))
    done.model_copy(update={"records": {**done.records, record.run: digest}}).write(path)
    assert audit(finished.folder).reopened == ()
    assert audit(finished.folder, check_present=True).reopened == (finished.block.stem,)


CLUSTER = Site(name="box", scheduler="slurm")


def linked(supervised: Supervised, **data: str) -> Path:
    """Measure a sweep with these paths in its config, on a cluster; return the link to one of two folders."""
    for name in ("one", "two"):
        (supervised.home / name / "part").mkdir(parents=True)
    (link := supervised.home / "set").symlink_to(supervised.home / "one")
    supervised.plan("measured", config={"data": {**CONFIG["data"], **data}}, site=CLUSTER)
    supervised.run()
    return link


def test_a_run_gets_the_path_where_the_project_lies_now_and_its_record_names_it_from_there(
    supervised: Supervised,
) -> None:
    """The project was moved after it was planned."""
    supervised.plan("measured", config={"data": {**CONFIG["data"], "root": "{home}/set"}, "env": {"SET": "{home}"}})
    now = supervised.home.rename(supervised.home.with_name("moved"))
    moved = Supervised(now, supervised.leases)
    moved.folder, moved.block = (
        SweepFolder(now, supervised.folder.name),
        now / supervised.block.relative_to(supervised.home),
    )
    moved.run()
    (spec,) = moved.folder.root.rglob("run-spec.json")
    given = RunSpec.read(spec).config
    assert (given.data["root"], given.env["SET"]) == (f"{now}/set", str(now))
    assert moved.record().config.data["root"] == "{home}/set"


PATHS = {"marked": "{home}/set/part", "relative": "set/part", "a word": "set", "through others": "one/../set"}


@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS)
def test_a_link_that_leads_elsewhere_reopens_its_block_on_a_cluster_too(supervised: Supervised, path: str) -> None:
    link = linked(supervised, root=path)
    assert audit(supervised.folder, check_present=True).reopened == ()
    link.unlink()
    link.symlink_to(supervised.home / "two")
    assert audit(supervised.folder, check_present=True).reopened == (supervised.block.stem,)
    place = "/part" if path.endswith("part") else ""
    assert f"links data.root: {{home}}/one{place} then, {{home}}/two{place} now" in supervised.run()[1]
    assert supervised.record().attempt == 2
    assert audit(supervised.folder, check_present=True).reopened == ()


def test_the_head_of_a_cluster_leaves_links_elsewhere_and_the_hardware_to_the_nodes(
    supervised: Supervised, tmp_path: Path
) -> None:
    """A node may mount the same folder at another place."""
    (elsewhere := tmp_path / "elsewhere").symlink_to(tmp_path / "there")
    linked(supervised, root=str(elsewhere))
    record = supervised.record()
    assert record.fingerprint.links == {"data.root": str(tmp_path / "there")}
    there = {"hardware": {"host": "a node's"}, "links": {"data.root": "/mnt/there"}}
    path = supervised.folder.record(record.run)
    record.model_copy(update={"fingerprint": record.fingerprint.model_copy(update=there)}).write(path)
    Done(block=supervised.block.stem, records={record.run: sha256_file(path)}).write(
        supervised.folder.done(supervised.block.stem)
    )
    assert audit(supervised.folder, check_present=True).reopened == ()


def test_other_sources_reopen_a_block_on_a_cluster_and_those_of_a_container_are_left_to_it(
    supervised: Supervised,
) -> None:
    supervised.home.mkdir()
    (supervised.home / "own_net.py").write_text("class Net: ...\n")
    contained = CLUSTER.model_copy(update={"slurm": Slurm(container="apptainer exec image.sif")})
    model = {"_target_": "own_net.Net", "inner": {"_target_": "torchmetrics.Metric"}}
    for number, site in enumerate((CLUSTER, contained)):
        supervised.plan("measured", config={"model": model}, site=site, name=f"sweep{number}")
        supervised.run()
        record = supervised.record()
        sources = record.fingerprint.sources | {"torchmetrics": "that of the container"}
        software = {"torch": "that of the container"}
        other = record.fingerprint.model_copy(update={"sources": sources, "software": software})
        present = Present(supervised.home, None, site)
        assert (present.why_again(record.model_copy(update={"fingerprint": other})) is None) == (site is contained)
        assert standing([record], supervised.folder, site) == {record.run}
        (supervised.home / "own_net.py").write_text(f"class Net: x = {number}\n")
        assert standing([record], supervised.folder, site) == set()
        assert audit(supervised.folder, check_present=True).reopened == (supervised.block.stem,)


def test_a_block_that_a_living_supervisor_works_on_is_reopened_but_its_records_are_left_to_it(
    supervised: Supervised,
) -> None:
    supervised.plan("measured", "lasting")
    process = supervised.start()
    until(supervised.folder.record(supervised.runs()[0]).exists)
    path = supervised.folder.record(supervised.runs()[0])
    whole = path.read_bytes()
    path.write_bytes(whole[:-7])
    Done(block=supervised.block.stem, records={}).write(supervised.folder.done(supervised.block.stem))
    audited = audit(supervised.folder)
    assert audited.reopened == (supervised.block.stem,)
    assert [error.path for error in audited.damaged] == [path]
    assert path.exists()
    found = status(supervised.folder)
    assert [running.hold.pid for running in found.running] == [process.pid]
    assert [running.alive for running in found.running] == [True]
    path.write_bytes(whole)
    process.communicate(timeout=PATIENCE_SECONDS)


def test_damage_in_a_block_that_a_dead_node_claims_is_set_aside(finished: Supervised) -> None:
    hold = finished.folder.hold(finished.block.stem)
    Hold(block=finished.block.stem, host="node7", pid=1, process_started=0.0, since="then").write(hold)
    record = finished.folder.record(finished.runs()[0])
    record.write_text("{")
    audit(finished.folder)
    assert record.exists(), "node 7 was heard of just now"
    os.utime(hold, (time.time() - DEAD_AFTER_SECONDS - 5,) * 2)
    assert [running.alive for running in status(finished.folder).running] == [False]
    audit(finished.folder)
    assert not record.exists()


def test_status_counts_what_is_done_and_what_remains(supervised: Supervised) -> None:
    supervised.plan("measured", "exit_three", "break_at_the_end")
    before = status(supervised.folder)
    assert (before.planned, before.remaining, before.seconds_left, before.running) == (3, 3, None, ())
    supervised.run()
    after = status(supervised.folder)
    assert after.outcomes == {Outcome.measured: 2, Outcome.crashed: 1}
    assert after.remaining == 1
    assert [(run, doubt.code) for run, doubt in after.doubts] == [(supervised.runs()[2], "bad_teardown")]


def test_what_is_left_is_judged_by_the_runs_that_took_time(supervised: Supervised) -> None:
    supervised.plan("measured:1", "measured:2", "exit_three", "measured:3")
    supervised.run()
    endings = (
        (Outcome.measured, None, 10.0),
        (Outcome.unsupported, "no device", 0.0),
        (Outcome.crashed, "exit 3", 20.0),
    )
    for run, (outcome, reason, seconds) in zip(supervised.runs(), endings, strict=False):
        path = supervised.folder.record(run)
        changed = {"outcome": outcome, "reason": reason, "wall_seconds": seconds}
        Record.read(path).model_copy(update=changed).write(path)
    supervised.folder.record(supervised.runs()[3]).unlink()
    found = status(supervised.folder)
    assert (found.remaining, found.seconds_left) == (2, 2 * 15.0)


def test_neither_audit_nor_status_nor_a_skipped_block_imports_torch_or_pandas() -> None:
    code = (
        "import sys, accelsweep.executor.result_reuse, accelsweep.records.sweep_progress, accelsweep.executor.block\n"
        "heavy = ('torch', 'lightning', 'pandas', 'mlflow', 'hydra', 'pyarrow')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
