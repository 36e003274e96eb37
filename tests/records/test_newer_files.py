"""A file of a later version is refused with the version that reads it, by every command, and nothing is changed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from archives import contents_of, members, relisted, write
from small_sweep import unpack_small_sweep

import accelsweep
from accelsweep.cli.runs import print_runs, retry_runs
from accelsweep.cli.status import print_status
from accelsweep.cli.sweeps import compare_sweeps
from accelsweep.driver.finalize import report_sweeps
from accelsweep.driver.up_to_date import CompletedState, is_up_to_date
from accelsweep.errors import EXIT_INCOMPLETE, NewerFile
from accelsweep.executor.result_reuse import audit
from accelsweep.features.archives.command import export_sweep, import_archive
from accelsweep.features.archives.pack import LISTING
from accelsweep.plain_json import canonical_json, sha256_text
from accelsweep.planning.plan import make_plan
from accelsweep.records.findings import Findings
from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import Manifest
from accelsweep.tracking.publisher import publish
from accelsweep.tracking.snapshot import take_snapshot

pytestmark = pytest.mark.heavy

COMMANDS: dict[str, Callable[[SweepFolder], object]] = {
    "status": lambda folder: print_status(folder.home, folder.name),
    "runs": lambda folder: print_runs(folder.home, folder.name, None),
    "report": lambda folder: report_sweeps(folder.home, [folder.name]),
    "compare": lambda folder: compare_sweeps(folder.home, folder.name, folder.name, None),
    "export": lambda folder: export_sweep(folder.home, folder.name, None),
    "open": lambda folder: accelsweep.open(folder.root).findings,
    "retry": lambda folder: retry_runs(folder.home, folder.name, "crashed"),
    "publish": publish,
    "run": audit,
}
"""What each command does with a sweep's files: `run` looks at all of them before anything is measured, `publish` before
anything is sent."""


def later(content: bytes, **head: object) -> bytes:
    """A document as version 99.0 may write it: whole, and with a key that this version does not know."""
    envelope = json.loads(content)
    body = envelope["body"] | {"weather": "fine"}
    return json.dumps({**envelope, "version": "99.0", **head, "body": body, "sha256": seal(body)}).encode()


def seal(body: object) -> str:
    return sha256_text(canonical_json(body))


def files_below(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


@pytest.fixture(params=[{}, {"format": 2}], ids=["another key", "another format"])
def head(request):
    return request.param


@pytest.fixture
def folder(tmp_path):
    return unpack_small_sweep(tmp_path)


@pytest.fixture(scope="session")
def archive(once):
    """The archive of a small finished sweep with a report of this version; tests must not change it."""

    def make(place: Path) -> None:
        sweep = unpack_small_sweep(place)
        report_sweeps(place, [sweep.name])
        export_sweep(place, sweep.name, place / "reported.zip")

    return once("reported", make) / "reported.zip"


def refused(folder: SweepFolder, command: Callable[[SweepFolder], object]) -> None:
    before = files_below(folder.home)
    with pytest.raises(NewerFile, match=r"install accelsweep 99\.0") as caught:
        command(folder)
    assert files_below(folder.home) == before
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_a_later_plan_is_refused(folder, command, head):
    folder.manifest.write_bytes(later(folder.manifest.read_bytes(), **head))
    refused(folder, command)


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_a_later_record_is_refused(folder, command, head):
    record = folder.latest_records()[0]
    record.write_bytes(later(record.read_bytes(), **head))
    refused(folder, command)


@pytest.mark.parametrize("name", ["manifest", "block"])
def test_a_plan_over_later_files_is_refused(folder, name, head):
    manifest = Manifest.read(folder.manifest)
    path = folder.manifest if name == "manifest" else folder.block(manifest.blocks[0].name)
    path.write_bytes(later(path.read_bytes(), **head))
    refused(folder, lambda folder: make_plan(folder.home, manifest.overrides, name=folder.name))


def test_a_later_up_to_date_mark_is_refused(folder, head):
    folder.completed_state.write_bytes(later(CompletedState(digest="0", report={}).sealed(), **head))
    refused(folder, is_up_to_date)


def test_later_findings_are_not_copied_to_mlflow(folder, head):
    folder.findings.write_bytes(later(folder.findings.read_bytes(), **head))
    refused(folder, take_snapshot)


def test_later_findings_hide_no_state_and_are_rebuilt_from_the_records(folder, head, capsys):
    folder.findings.write_bytes(later(folder.findings.read_bytes(), **head))
    assert print_status(folder.home, folder.name) == 0
    report_sweeps(folder.home, [folder.name])
    assert Findings.read(folder.findings).settings


def test_a_sweep_of_a_later_version_does_not_hide_the_others(folder, head, capsys):
    other = SweepFolder(folder.home, "newer")
    other.manifest.parent.mkdir()
    other.manifest.write_bytes(later(folder.manifest.read_bytes(), **head))
    assert print_status(folder.home, None) == EXIT_INCOMPLETE
    told = capsys.readouterr().out
    assert "15 of 15 runs settled" in told
    assert "install accelsweep 99.0" in told


@pytest.mark.parametrize("ending", [LISTING, "sweep/manifest.json", "sweep/findings.json", "record.json"])
def test_a_later_archive_is_refused_and_nothing_is_written(archive, head, ending, tmp_path):
    target = tmp_path / "later.zip"
    if ending == LISTING:
        named = members(archive)
        write(target, {**named, LISTING: later(named[LISTING], **head)})
    else:
        contents = contents_of(archive)
        place = next(place for place in contents.files if place.endswith(ending))
        relisted(archive, target, {place: later(members(archive)[contents.member(place)], **head)})
    there = tmp_path / "there"
    there.mkdir()
    for read in (lambda: import_archive(there, target, None), lambda: accelsweep.open(target)):
        with pytest.raises(NewerFile, match=r"install accelsweep 99\.0"):
            read()
    assert list(there.iterdir()) == []
