"""Temporary files of a sweep's processes lie in a folder of its own, which is empty before a command and gone after."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from accelsweep.config.site import Site
from accelsweep.driver import background_processes
from accelsweep.driver.background_processes import own_temporary_folder
from accelsweep.errors import AccelsweepError, InputError
from accelsweep.executor.preflight import check_temporary_folder
from accelsweep.records.cleanup import remove_ownerless_folders
from accelsweep.records.file_lock import HeldLock, acquire
from accelsweep.records.layout import SweepFolder

LOCAL = Site(name="here", scheduler="local")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SweepFolder]:
    monkeypatch.setenv("ACCELSWEEP_LEASES", str(tmp_path / "leases"))
    made = SweepFolder(tmp_path, "tiny")
    (made.root / "blocks").mkdir(parents=True)
    with tempfile.TemporaryDirectory(prefix="t-", dir="/tmp") as short:  # pytest's own is too long
        monkeypatch.setenv("TMPDIR", short)
        monkeypatch.setattr(tempfile, "tempdir", None)
        yield made


def left() -> list[Path]:
    return list(Path(os.environ["TMPDIR"]).rglob("*"))


def test_children_get_a_folder_of_the_sweeps_own_that_only_its_user_can_read(folder: SweepFolder) -> None:
    before = os.environ["TMPDIR"]
    with own_temporary_folder(folder, LOCAL):
        given = Path(os.environ["TMPDIR"])
        assert given.parent == Path(before)
        assert given.stat().st_mode & 0o777 == 0o700
    assert os.environ["TMPDIR"] == before
    assert left() == []


def test_what_processes_left_that_were_killed_is_gone_before_the_next_command_begins(folder: SweepFolder) -> None:
    with own_temporary_folder(folder, LOCAL):
        given = Path(os.environ["TMPDIR"])
    (given / "pymp-left").mkdir(parents=True)
    with own_temporary_folder(folder, LOCAL):
        assert list(given.iterdir()) == []


def test_files_of_a_supervisor_that_outlived_its_head_stay_until_it_has_ended(folder: SweepFolder) -> None:
    with own_temporary_folder(folder, LOCAL):
        given = Path(os.environ["TMPDIR"])
        orphan = acquire(folder.lock("b000000000000"), "b000000000000")
        assert isinstance(orphan, HeldLock)
        (given / "in-use").touch()
    with own_temporary_folder(folder, LOCAL):
        assert (given / "in-use").exists()
        orphan.release()
    assert left() == []


@pytest.mark.parametrize("lost", ["nothing", "the sweep's folder"])
def test_any_command_sweeps_up_what_a_killed_head_of_another_sweep_left(folder: SweepFolder, lost: str) -> None:
    with own_temporary_folder(folder, LOCAL):
        given = Path(os.environ["TMPDIR"])
        shutil.copytree(given.parent, folder.home / "as it was")
    shutil.copytree(folder.home / "as it was", given.parent, dirs_exist_ok=True)
    (given / "pymp-left").mkdir()
    if lost != "nothing":
        shutil.rmtree(folder.root)
    remove_ownerless_folders()
    assert left() == []


@pytest.mark.parametrize("held", ["head", "block"])
def test_what_a_living_process_of_another_sweep_owns_stays(folder: SweepFolder, held: str) -> None:
    hold = folder.driver_file("claim") if held == "head" else folder.lock("b000000000000")
    with own_temporary_folder(folder, LOCAL):
        given = Path(os.environ["TMPDIR"])
        holder = acquire(hold, held)
        assert isinstance(holder, HeldLock)
        os.environ["TMPDIR"] = str(given.parent)
        remove_ownerless_folders()
        assert given.exists()
        holder.release()
        remove_ownerless_folders()
        assert not given.exists()


def test_an_owner_file_that_names_another_place_or_nothing_moves_nobody(folder: SweepFolder) -> None:
    with own_temporary_folder(folder, LOCAL):
        given = Path(os.environ["TMPDIR"])
        forged = given.parent / "accelsweep-0123456789ab"
        forged.mkdir()
        forged.with_suffix(".owner").write_text(str(folder.root))
        (given.parent / "accelsweep-ba9876543210.owner").write_text("no path")
    remove_ownerless_folders()
    assert forged.exists()


def test_on_a_cluster_the_folder_is_made_but_no_variable_takes_it_to_the_jobs(folder: SweepFolder) -> None:
    before = os.environ["TMPDIR"]
    with own_temporary_folder(folder, Site(name="there", scheduler="slurm")) as given:
        assert given is not None
        assert given.parent == Path(before)
        assert os.environ["TMPDIR"] == before
        (given / "snakemake-left").mkdir()
    assert left() == []


def test_where_it_cannot_be_private_or_only_our_name_makes_it_too_long_nothing_changes(
    folder: SweepFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = os.environ["TMPDIR"]
    with own_temporary_folder(folder, LOCAL):
        given = Path(os.environ["TMPDIR"])
    foreign = Path(before, "foreign")
    foreign.mkdir()
    (foreign / "theirs").touch()
    given.symlink_to(foreign)
    with own_temporary_folder(folder, LOCAL):
        assert os.environ["TMPDIR"] == before
    assert (foreign / "theirs").exists()
    deep = foreign / ("x" * 40)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    with own_temporary_folder(folder, LOCAL):
        assert os.environ["TMPDIR"] == before


@pytest.mark.parametrize("length", [71, 145, 500])
def test_where_tmpdir_is_too_long_for_sockets_the_folder_lies_in_a_short_place(
    folder: SweepFolder, monkeypatch: pytest.MonkeyPatch, length: int
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/" + "/".join(["y" * 100] * 5)[: length - 1])
    with own_temporary_folder(folder, LOCAL) as given:
        assert given is not None
        assert given.parent == Path("/tmp")
        assert os.environ["TMPDIR"] == str(given)
        assert len(str(given)) < 71
    assert not given.exists()


def test_where_no_place_is_short_enough_the_variable_is_named_before_anything_runs(
    folder: SweepFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/" + "y" * 144)
    monkeypatch.setattr(background_processes, "SHORT_PLACES", ("/proc/nowhere",))
    with (
        pytest.raises(InputError, match=r"has a path of 145 characters, .* set TMPDIR to a shorter path"),
        own_temporary_folder(folder, LOCAL),
    ):
        pass


def test_a_supervisor_whose_node_has_such_a_folder_says_so_before_the_first_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/" + "y" * 144)
    with pytest.raises(AccelsweepError, match=r"145 characters, and sockets leave room for 70 \(TMPDIR\).*scratch"):
        check_temporary_folder()
    monkeypatch.setattr(tempfile, "tempdir", "/" + "y" * 69)
    check_temporary_folder()
