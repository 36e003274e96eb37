"""An exported sweep comes out of its archive as it went in, and no archive of somebody else's does any harm."""

from __future__ import annotations

import io
import json
import os
import shutil
import stat
import subprocess
import sys
import zipfile

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from archives import changed, contents_of, members, relisted, write
from example_sweep import build_example_sweep

from accelsweep.analysis.analyse_sweep import analyse_folder
from accelsweep.analysis.collect import collect
from accelsweep.cli.sweeps import compare_sweeps
from accelsweep.driver.finalize import finalize
from accelsweep.errors import AccelsweepError, InputError, NewerFile
from accelsweep.features.archives import check
from accelsweep.features.archives.check import RefusedArchive
from accelsweep.features.archives.command import export_sweep, import_archive
from accelsweep.features.archives.pack import LISTING
from accelsweep.plain_json import canonical_json
from accelsweep.records.findings import Findings
from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import Block, LockOwner, Manifest
from accelsweep.records.run_record import Record

pytestmark = pytest.mark.heavy

LINK = (stat.S_IFLNK | 0o777) << 16
DEVICE = (stat.S_IFCHR | 0o666) << 16


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """The example sweep, one of whose records is damaged, and its archive; tests must not change either."""
    folder = build_example_sweep(tmp_path_factory.mktemp("exported"))
    record = folder.latest_records()[0]
    record.write_bytes(record.read_bytes()[:-100])
    return folder, export_sweep(folder.home, "example", None)


@pytest.fixture
def archive(exported):
    return exported[1]


def files_below(root):
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def place_of(path, name):
    """The first place in an archive that ends so."""
    return next(place for place in contents_of(path).files if place.endswith(name))


def test_findings_and_report_come_out_of_an_archive_byte_for_byte(exported, tmp_path, capsys):
    folder, archive = exported
    brought = import_archive(tmp_path, archive, None)
    assert "byte for byte" in capsys.readouterr().out
    assert brought.findings.read_bytes() == folder.findings.read_bytes()
    assert files_below(brought.report) == files_below(folder.report)
    before = files_below(brought.root)
    finalize(brought)
    assert files_below(brought.root) == before, "the report command comes to the same"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["reports", "sweeps"]


def test_the_same_sweep_gives_the_same_archive(exported, tmp_path):
    folder, archive = exported
    again = export_sweep(folder.home, "example", tmp_path / "again.zip")
    assert again.read_bytes() == archive.read_bytes()
    brought = import_archive(tmp_path, archive, None)
    assert export_sweep(brought.home, "example", tmp_path / "back.zip").read_bytes() == archive.read_bytes()


def test_a_sweep_can_get_another_name_and_keeps_its_numbers(exported, tmp_path, capsys):
    folder, archive = exported
    brought = import_archive(tmp_path, archive, "mine")
    assert brought.root == tmp_path / "sweeps" / "mine"
    assert "byte for byte" in capsys.readouterr().out
    then, now = Findings.read(folder.findings), Findings.read(brought.findings)
    assert (then.sweep, now.sweep) == ("example", "mine")
    assert [setting.rate for setting in now.settings] == [setting.rate for setting in then.settings]
    assert files_below(tmp_path / "reports" / "mine").keys() == files_below(folder.report).keys()


def say_its_name(folder):
    """Everything that tells a sweep's name: plan, rows, findings with their advice, and a comparison."""
    rows = collect(folder)
    found = analyse_folder(folder)
    assert {row.sweep for row in rows} == {Manifest.read(folder.manifest).sweep} == {found.sweep}
    return found.sweep, found.command.partition(" --name ")[2]


@pytest.mark.parametrize("way", ["imported", "renamed", "copied"])
def test_a_sweep_is_called_as_its_folder_is_in_all_that_is_said_of_it(exported, tmp_path, way, capsys):
    folder, archive = exported
    if way == "imported":
        import_archive(tmp_path, archive, "mine")
        import_archive(tmp_path, archive, None)
    else:
        shutil.copytree(folder.root, tmp_path / "sweeps" / "mine")
        shutil.copytree(folder.root, tmp_path / "sweeps" / "example")
    brought = SweepFolder(tmp_path, "mine")
    if way == "renamed":
        (tmp_path / "sweeps" / "mine").rename(tmp_path / "sweeps" / "theirs")
        brought = SweepFolder(tmp_path, "theirs")
    named = brought.name
    assert say_its_name(brought) == (named, named)
    capsys.readouterr()
    compare_sweeps(tmp_path, "example", named, None)
    assert f"{named} against example" in capsys.readouterr().out
    compare_sweeps(tmp_path, named, "example", None, as_json=True)
    told = json.loads(capsys.readouterr().out)
    assert (told["before"], told["after"]) == (named, "example")


def test_what_is_written_first_stands_first_for_snakemake(archive, tmp_path):
    brought = import_archive(tmp_path, archive, None)
    made = [brought.findings, brought.report / "index.html", *brought.root.glob("blocks/*.done.json")]
    sources = [brought.manifest, *brought.root.glob("blocks/b????????????.json")]
    assert max(path.stat().st_mtime_ns for path in sources) <= min(path.stat().st_mtime_ns for path in made)


@pytest.mark.parametrize("taken", ["sweeps/example/manifest.json", "reports/example/mine.txt"])
def test_a_name_that_is_taken_changes_nothing(archive, tmp_path, taken):
    (tmp_path / taken).parent.mkdir(parents=True)
    (tmp_path / taken).write_text("mine")
    with pytest.raises(InputError, match="already exists: import the archive under another name with --name"):
        import_archive(tmp_path, archive, None)
    assert files_below(tmp_path) == {taken: b"mine"}


def test_an_export_replaces_no_file(exported, tmp_path):
    folder, archive = exported
    for taken in (archive, tmp_path):
        with pytest.raises(InputError, match="already exists: remove it, or name another file with --to"):
            export_sweep(folder.home, "example", taken)
    with pytest.raises(InputError, match="is not a folder"):
        export_sweep(folder.home, "example", tmp_path / "nowhere" / "x.zip")


def test_a_sweep_that_is_being_run_is_not_packed(tmp_path):
    folder = build_example_sweep(tmp_path)
    block = Manifest.read(folder.manifest).blocks[0].name
    hold = LockOwner(block=block, host="another", pid=1, process_started=0.0, since="now")
    hold.write(folder.lock(block))
    with pytest.raises(AccelsweepError, match="is being run by process 1 on another"):
        export_sweep(tmp_path, "example", None)
    assert not (tmp_path / "example.zip").exists()


@pytest.fixture(scope="module")
def unusual(tmp_path_factory):
    """A sweep with an old hold, a secret in an address and steps that are no table; its archive; and that elsewhere.

    Tests must not change them.
    """
    home = tmp_path_factory.mktemp("unusual")
    folder = build_example_sweep(home / "here")
    held = Manifest.read(folder.manifest).blocks[2].name
    hold = LockOwner(block=held, host="another", pid=1, process_started=0.0, since="now")
    hold.write(folder.lock(held))
    os.utime(folder.lock(held), (0, 0))
    block = Block.read(first_block(folder)).model_dump(mode="json")
    for config in block["configs"].values():
        config["data"]["store"] = "postgresql://me:hunter2@host/db"
    Block.model_validate(block).write(first_block(folder))
    run = next(path.parent.name for path in folder.latest_records() if folder.steps(path.parent.name).exists())
    folder.steps(run).write_bytes(b"PAR1 and no more")
    archive = export_sweep(folder.home, "example", None)
    (home / "there").mkdir()
    return folder, archive, import_archive(home / "there", archive, None)


def first_block(folder):
    return folder.block(Manifest.read(folder.manifest).blocks[0].name)


def test_why_a_run_has_no_record_does_not_depend_on_the_machine_that_asks(unusual):
    folder, _, brought = unusual
    assert "process 1 on another, died without a message" in folder.findings.read_text()
    assert brought.findings.read_bytes() == folder.findings.read_bytes()
    assert brought.locks() == []


def test_a_secret_in_an_address_is_in_no_file_of_an_archive(unusual):
    folder, archive, brought = unusual
    assert b"hunter2" in first_block(folder).read_bytes()
    assert [name for name, content in members(archive).items() if b"hunter2" in content] == []
    assert brought.findings.read_bytes() == folder.findings.read_bytes()


def test_steps_that_are_no_table_are_left_out_here_as_where_they_were_packed(unusual):
    folder, _, brought = unusual
    assert files_below(brought.report) == files_below(folder.report)


def test_an_archive_holds_no_log_no_hold_and_no_earlier_attempt(exported):
    folder, archive = exported
    run = folder.latest_records()[0].parent
    assert {"sweep/manifest.json", "sweep/findings.json", "report/index.html"} <= set(contents_of(archive).files)
    assert (run / "run.log").exists()
    assert not [name for name in members(archive) if name.endswith((".log", ".lock.json")) or "attempts" in name]


def test_numbers_that_do_not_follow_from_the_records_are_made_anew(exported, tmp_path, capsys):
    folder, archive = exported
    theirs = changed(Findings.read(folder.findings), baseline="0" * 12)
    page = b"<script>alert(1)</script>"
    doctored = relisted(archive, tmp_path / "x.zip", {"sweep/findings.json": theirs, "report/index.html": page})
    brought = import_archive(tmp_path, doctored, None)
    told = capsys.readouterr().out
    assert "2 files differ from the archive's: findings.json, index.html" in told
    assert "the archived files were edited" in told
    assert brought.findings.read_bytes() == folder.findings.read_bytes()
    assert files_below(brought.report) == files_below(folder.report)


def test_other_versions_are_named_where_bytes_differ(exported, tmp_path, capsys):
    versions = contents_of(exported[1]).versions | {"altair": "1.0"}
    older = relisted(exported[1], tmp_path / "x.zip", {"report/speedup.svg": b"<svg/>"}, versions=versions)
    import_archive(tmp_path, older, None)
    assert "a possible reason: altair 1.0 there, " in capsys.readouterr().out


def _truncated(path, target):
    target.write_bytes(path.read_bytes()[:-1000])


def _flipped(path, target):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    target.write_bytes(bytes(content))


def _text(path, target):
    target.write_text("no archive at all, but of some length")


def _empty(path, target):
    target.touch()


def _foreign(path, target):
    write(target, {"readme.txt": b"hello"})


def _above(path, target):
    relisted(path, target, {"../../evil.txt": b"x"})


def _root(path, target):
    relisted(path, target, {"/etc/evil": b"x"})


def _of_no_sweep(path, target):
    relisted(path, target, {"sweep/evil.py": b"x"})


def _above_a_run(path, target):
    relisted(path, target, {"sweep/runs/../record.json": b"x"})


def _unlisted(path, target):
    write(target, {**members(path), "../evil.txt": b"x"})


def _missing(path, target):
    held = members(path)
    held.popitem()
    write(target, held)


def _twice(path, target):
    held = members(path)
    write(target, held)
    with zipfile.ZipFile(target, "a") as archive, pytest.warns(UserWarning, match="Duplicate name"):
        archive.writestr(*list(held.items())[-1])


def _link(path, target):
    write(target, members(path), external_attr=LINK)


def _device(path, target):
    write(target, members(path), external_attr=DEVICE)


def _other_checksum(path, target):
    held = members(path)
    held[next(reversed(held))] += b" "
    write(target, held)


def _broken_seal(path, target):
    place = place_of(path, "record.json")
    content = members(path)[contents_of(path).member(place)]
    relisted(path, target, {place: content.replace(b'"attempt":1', b'"attempt":2')})


def _record_of_another_run(path, target):
    first, second = [place for place in contents_of(path).files if place.endswith("record.json")][:2]
    relisted(path, target, {first: members(path)[contents_of(path).member(second)]})


def _record_of_no_time(path, target):
    place = place_of(path, "record.json")
    record = Record.unsealed(members(path)[contents_of(path).member(place)], path)
    relisted(path, target, {place: changed(record, started_at="yesterday")})


def _block_of_another_name(path, target):
    block = members(path)[contents_of(path).member(place_of(path, ".done.json"))]
    relisted(path, target, {"sweep/blocks/b0.done.json": block})


def _plan_that_leaves_the_folder(path, target):
    manifest = Manifest.unsealed(members(path)[contents_of(path).member("sweep/manifest.json")], path)
    block = manifest.blocks[0].model_copy(update={"runs": ("../../../victim-r0",)})
    relisted(path, target, {"sweep/manifest.json": changed(manifest, blocks=(block,))})


def _no_plan(path, target):
    relisted(path, target, {"sweep/manifest.json": None})


def _name_that_leaves_the_folder(path, target):
    relisted(path, target, {}, name="../example")


HARMFUL = {
    _truncated: "its end is missing",
    _flipped: "cannot be unpacked|does not match|not a complete ZIP file",
    _text: "not a ZIP file",
    _empty: "not a ZIP file",
    _foreign: "does not begin with archive.json: accelsweep did not write it",
    _above: "it lists '../../evil.txt', which is not part of a sweep",
    _root: "it lists '/etc/evil'",
    _of_no_sweep: "it lists 'sweep/evil.py'",
    _above_a_run: "it lists 'sweep/runs/../record.json'",
    _unlisted: r"does not contain the files that archive.json lists: see '../evil.txt'",
    _missing: "does not contain the files that archive.json lists: see 'reports/example/",
    _twice: "does not contain the files",
    _link: "is a folder, a link or a device",
    _device: "is a folder, a link or a device",
    _other_checksum: "does not match its checksum",
    _broken_seal: "do not match their checksum|do not match its checksum",
    _record_of_another_run: "it is the record of another run",
    _record_of_no_time: "'yesterday' is not an ISO 8601 time",
    _block_of_another_name: "it belongs to another block",
    _plan_that_leaves_the_folder: "the plan contains '../../../victim-r0'",
    _no_plan: "it has no sweeps/example/manifest.json",
    _name_that_leaves_the_folder: "name",
}


@pytest.mark.parametrize("harm", HARMFUL, ids=lambda harm: harm.__name__.strip("_"))
def test_a_damaged_or_foreign_archive_is_refused_and_changes_nothing(archive, tmp_path, harm):
    home = tmp_path / "home"
    home.mkdir()
    harm(archive, tmp_path / "x.zip")
    before = files_below(tmp_path)
    with pytest.raises(InputError, match=HARMFUL[harm]):
        import_archive(home, tmp_path / "x.zip", None)
    assert list(home.iterdir()) == []
    assert files_below(tmp_path) == before


@pytest.mark.parametrize("limit", ["MAX_FILES", "MAX_ARCHIVE_BYTES", "MAX_FILE_BYTES"])
def test_an_archive_above_a_limit_is_refused_before_anything_is_unpacked(archive, tmp_path, monkeypatch, limit):
    monkeypatch.setattr(check, limit, 10)
    monkeypatch.setattr(zipfile.ZipFile, "open", None)
    with pytest.raises(RefusedArchive, match=r"larger than|it has \d+ files, but the limit is 10"):
        import_archive(tmp_path, archive, None)
    assert list(tmp_path.iterdir()) == []


def test_a_small_file_that_unpacks_to_a_very_large_one_is_refused_by_what_it_says(tmp_path):
    bomb = write(tmp_path / "bomb.zip", {LISTING: bytes(300 * 2**20)})
    assert bomb.stat().st_size < 2**20
    with pytest.raises(RefusedArchive, match=r"'archive\.json' is larger than 256 MiB"):
        import_archive(tmp_path, bomb, None)


def _parquet(rows, phase):
    table = pa.table({"step": [0] * rows, "phase": pa.array([phase or "window"] * rows).dictionary_encode()})
    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="zstd")
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("rows", "phase", "message"),
    [(6_000_000, None, "it has 6000000 rows"), (10, "x" * 1_000_000, "it contains phases that no run has")],
    ids=["rows", "words"],
)
def test_a_small_table_that_unpacks_to_a_very_large_one_is_refused(archive, tmp_path, rows, phase, message):
    bomb = _parquet(rows, phase)
    assert len(bomb) < 100_000
    relisted(archive, tmp_path / "x.zip", {place_of(archive, "steps.parquet"): bomb})
    (tmp_path / "home").mkdir()
    with pytest.raises(RefusedArchive, match=message):
        import_archive(tmp_path / "home", tmp_path / "x.zip", None)


def test_an_archive_without_its_beginning_is_refused(archive, tmp_path):
    (tmp_path / "rest.zip").write_bytes(archive.read_bytes()[500:])
    (tmp_path / "home").mkdir()
    with pytest.raises(RefusedArchive, match="cannot be unpacked"):
        import_archive(tmp_path / "home", tmp_path / "rest.zip", None)


def test_an_archive_of_a_later_version_names_the_version_to_install(archive, tmp_path):
    place = place_of(archive, "record.json")
    content = members(archive)[contents_of(archive).member(place)]
    later = content.replace(b'"format":1,"version":"', b'"format":2,"version":"99.', 1)
    newer = relisted(archive, tmp_path / "x.zip", {place: later})
    with pytest.raises(NewerFile, match="install accelsweep 99"):
        import_archive(tmp_path, newer, None)


@pytest.mark.parametrize("what", ["nothing", "folder", "pipe"])
def test_what_is_no_file_is_no_archive(tmp_path, what):
    path = tmp_path / "x.zip"
    if what == "folder":
        path.mkdir()
    elif what == "pipe":
        os.mkfifo(path)
    with pytest.raises(InputError, match="there is no file" if what == "nothing" else "something else is in its place"):
        import_archive(tmp_path, path, None)


EVIL = "open('ran', 'w').close()\n"


def test_opening_an_archive_runs_none_of_the_code_that_it_names(exported, tmp_path):
    folder, _ = exported
    shutil.copytree(folder.root, tmp_path / "sweeps" / "example")
    theirs = SweepFolder(tmp_path, "example")
    for path in theirs.latest_records():
        record = Record.read(path).model_dump(mode="json")
        record["config"] |= {
            "model": {"_target_": "evil.Model"},
            "data": {"_target_": "os.system", "command": "touch ran"},
        }
        Record.model_validate(record).write(path)
    sent = export_sweep(tmp_path, "example", tmp_path / "sent.zip")
    home = tmp_path / "home"
    home.mkdir()
    (home / "evil.py").write_text(EVIL)
    code = (
        "import sys\nfrom pathlib import Path\nfrom accelsweep.features.archives.command import import_archive\n"
        f"import_archive(Path.cwd(), Path({str(sent)!r}), None)\n"
        "print([name for name in ('torch', 'lightning', 'evil', 'accelsweep.workloads') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=home, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
    assert b"evil.Model" in canonical_json(Record.read(theirs.latest_records()[0]).config.raw).encode()
    assert sorted(path.name for path in home.iterdir()) == ["evil.py", "reports", "sweeps"]
