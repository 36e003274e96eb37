"""Disks that cannot do all that most disks can: real ones, in mount namespaces of their own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from accelsweep.cli.doctor import machine_now
from accelsweep.config.sweep_options import Limits
from accelsweep.devices.file_system import Capability, free_inodes, missing_capabilities
from accelsweep.errors import AccelsweepError
from accelsweep.executor.preflight import DiskFull, check_disk_space
from accelsweep.files import NO_HARD_LINKS, create_exclusively

FAKES = Path(__file__).parents[1] / "fakes"
REAL = pytest.mark.skipif(
    os.geteuid() != 0 or not os.access("/dev/fuse", os.W_OK), reason="only root mounts a file system, through /dev/fuse"
)


def test_a_whole_disk_lacks_nothing_and_the_look_leaves_nothing(tmp_path: Path) -> None:
    assert missing_capabilities(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


ON_A_POOR_DISK = """
import tempfile
from pathlib import Path
from accelsweep.files import create_exclusively
from accelsweep.devices.file_system import Capability, free_inodes, missing_capabilities
from accelsweep.files import exclusive_lock
from accelsweep.tracking.store_uri import require_file_locks
from accelsweep.temporary_folders import temporary_folder
from accelsweep.records.layout import SweepFolder
from accelsweep.records.file_lock import HeldLock, acquire
from accelsweep.heartbeat import Heartbeat, HeartbeatReader, StepCount, read_progress

here = Path.cwd()
missing = missing_capabilities(here)
assert missing == [Capability.hard_links, Capability.symbolic_links, Capability.locks, Capability.shared_maps], missing
assert free_inodes(here) is None

hold = here / "driver.lock.json"
first = acquire(hold, "driver")
assert isinstance(first, HeldLock)
assert not isinstance(acquire(hold, "driver"), HeldLock), "a second process finds the first"
first.set_run("r", "now")
first.heartbeat()
first.release()
assert isinstance(acquire(hold, "driver"), HeldLock), "and takes over when it is released"

for number in (1, 2):
    made = here / f"made-{number}"
    made.write_text(str(number))
    try:
        create_exclusively(made, here / "target")
    except FileExistsError:
        assert number == 2
assert (here / "target").read_text() == "1"

heartbeat, count = Heartbeat(here / "heartbeat"), StepCount(here / "progress")
heartbeat.step()
count(7)
assert HeartbeatReader(here / "heartbeat").steps == 0, "nobody hears it, and it does not fail"
assert read_progress(here / "progress") == 0
tempfile.tempdir = str(here)
with temporary_folder("compile") as caches:
    assert caches.parent == here

for what in (lambda: require_file_locks(f"sqlite:///{here}/mlflow.db"), lambda: exclusive_lock("x", here).__enter__()):
    try:
        what()
    except Exception as error:
        print(error)
print(sorted(path.name for path in here.iterdir()))
"""


@REAL
def test_holds_marks_and_signs_of_life_do_on_a_disk_without_links_locks_and_maps(tmp_path: Path, last_line) -> None:
    backing, place, script = tmp_path / "backing", tmp_path / "place", tmp_path / "script.py"
    backing.mkdir()
    place.mkdir()
    script.write_text(ON_A_POOR_DISK)
    command = [sys.executable, str(FAKES / "faulty_disk.py"), str(backing), str(place), sys.executable, str(script)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert "is on a disk without file locks, where SQLite cannot write mlflow.db: choose a store elsewhere" in lines[0]
    last_line("mlflow.db on a disk without file locks", lines[0])
    assert lines[-1] == "['driver.lock.json', 'heartbeat', 'made-2', 'progress', 'target']", (
        "no guard and no part is left"
    )


@REAL
def test_locks_on_a_shared_folder_that_has_none_are_refused_with_the_variable_to_set(tmp_path: Path, last_line) -> None:
    script = (
        "from accelsweep.files import exclusive_lock\nwith exclusive_lock('x', __import__('pathlib').Path('/')): pass"
    )
    for name in ("backing", "place"):
        (tmp_path / name).mkdir(mode=0o700)
    command = [sys.executable, str(FAKES / "faulty_disk.py"), str(tmp_path / "backing"), str(tmp_path / "place")]
    environment = {**os.environ, "ACCELSWEEP_LEASES": str(tmp_path / "place")}
    done = subprocess.run(
        [*command, sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        timeout=60,
    )
    said = done.stderr.splitlines()[-1]
    assert "is on a disk without file locks (No locks available)" in said
    assert "set ACCELSWEEP_LEASES to a folder on this machine's local disk" in said
    last_line("ACCELSWEEP_LEASES on a disk without file locks", said)


@pytest.mark.parametrize("number", sorted(NO_HARD_LINKS))
def test_of_many_that_put_a_file_in_place_without_hard_links_one_succeeds(
    number: int, tmp_path: Path, monkeypatch
) -> None:
    def refused(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "link", refused)
    monkeypatch.setattr(Path, "hardlink_to", refused)
    monkeypatch.setattr("accelsweep.files._GUARD_TIMEOUT_SECONDS", 0.2)
    target = tmp_path / "target"
    (tmp_path / ".target.guard").mkdir()  # of a process that was killed within the millisecond
    outcomes = []
    for one in ("first", "second", "third"):
        made = tmp_path / one
        made.write_text(one)
        try:
            create_exclusively(made, target)
            outcomes.append("put")
        except FileExistsError:
            outcomes.append("found")
    assert outcomes == ["put", "found", "found"]
    assert target.read_text() == "first"
    assert not (tmp_path / ".target.guard").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a file system")
def test_a_disk_with_room_for_few_more_files_is_full_before_a_run_begins(tmp_path: Path, last_line) -> None:
    script = (
        "from pathlib import Path\nfrom accelsweep.config.sweep_options import Limits\n"
        "from accelsweep.executor.preflight import check_disk_space\ncheck_disk_space(Path.cwd(), Limits())"
    )
    mount = f"mount -t tmpfs -o nr_inodes=100,size=300m tmpfs {tmp_path} && cd {tmp_path} && exec {sys.executable} -c "
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", f'{mount}"$1"', "sh", script], capture_output=True, text=True, check=False
    )
    said = done.stderr.splitlines()[-1]
    assert (
        "more files (inodes), but limits.free_disk_inodes requires 300; remove files there or lower the limit" in said
    )
    last_line("a disk without inodes", said)


def test_inodes_count_like_bytes_and_no_bound_is_asked_of_a_disk_that_knows_none(tmp_path: Path, monkeypatch) -> None:
    known = free_inodes(tmp_path)
    assert known is None or known > 0
    monkeypatch.setattr("accelsweep.executor.preflight.free_inodes", lambda _: 20)
    with pytest.raises(DiskFull, match="has room for 20 more files"):
        check_disk_space(tmp_path, Limits())
    check_disk_space(tmp_path, Limits(free_disk_inodes=20))
    monkeypatch.setattr("accelsweep.executor.preflight.free_inodes", lambda _: None)
    check_disk_space(tmp_path, Limits())


def test_doctor_names_what_a_disk_lacks_and_what_follows(tmp_path: Path, monkeypatch) -> None:
    place = "accelsweep.cli.doctor"
    monkeypatch.setattr(f"{place}.missing_capabilities", lambda _: list(Capability))
    monkeypatch.setattr(f"{place}.free_inodes", lambda _: 12)
    checks = {check.what: check for check in machine_now(tmp_path)}
    assert checks["free inodes"].ok is False
    assert checks["free inodes"].found == f"12 files in {tmp_path}"
    for ability in Capability:
        assert checks[f"{ability} in {tmp_path}"].found.startswith("none: ")
    assert "--tracking-uri" in str(checks[f"file locks in {tmp_path}"].remedy)
    assert checks["runs take turns"].ok

    def without_locks(*_: object) -> None:
        raise AccelsweepError("no locks there")

    monkeypatch.setattr(f"{place}.exclusive_lock", without_locks)
    (turns,) = (check for check in machine_now(tmp_path) if check.what == "runs take turns")
    assert turns.ok is False
    assert "ACCELSWEEP_LEASES" in str(turns.remedy)
