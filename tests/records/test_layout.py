"""Names of sweeps, blocks and runs can never lead out of their folder or into a shell."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accelsweep.errors import InputError
from accelsweep.records.layout import SweepFolder, check_sweep_name, existing_sweep, known_sweeps, sweep_name_in


@pytest.mark.parametrize("name", ["quickstart", "my-sweep_2.1", "A" * 80])
def test_plain_names_are_accepted(name):
    assert check_sweep_name(name) == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        "a b",
        "a'b",
        'a"b',
        "a;b",
        "$(reboot)",
        "a\nb",
        "naïve",
        "..",
        "a..b",
        "../up",
        "/root",
        ".hidden",
        "-n",
        "A" * 81,
    ],
)
def test_harmful_names_are_refused_with_a_usable_suggestion(name):
    with pytest.raises(InputError, match="--name ") as caught:
        check_sweep_name(name)
    proposed = str(caught.value).rsplit("--name ", 1)[1]
    assert check_sweep_name(proposed) == proposed


@given(st.text(max_size=100))
def test_no_accepted_name_leaves_the_folder(name):
    home = Path("/home/someone")
    try:
        folder = SweepFolder(home, name)
    except InputError:
        return
    for path in (folder.root, folder.record("abc-r0"), folder.report, folder.done("b0")):
        assert Path(*path.parts).resolve().is_relative_to(home)


@pytest.mark.parametrize("name", ["../../victim-r0", "/etc/passwd", "..", ".", "", "a\0b"])
@pytest.mark.parametrize("of", ["block", "done", "lock", "halt", "ceilings", "run", "record", "steps", "log"])
def test_no_name_in_a_plan_leaves_the_folder(name, of):
    with pytest.raises(InputError, match="not a valid name for a block or run"):
        getattr(SweepFolder(Path("/home/someone"), "mine"), of)(name)


def test_an_unknown_sweep_is_refused_with_those_that_exist(tmp_path):
    (tmp_path / "sweeps" / "known").mkdir(parents=True)
    (tmp_path / "sweeps" / "known" / "manifest.json").write_text("{}")
    with pytest.raises(InputError, match="there are: known"):
        existing_sweep(tmp_path, "unknown")


def test_a_sweep_is_found_by_its_folder_from_any_working_directory(tmp_path, monkeypatch):
    (tmp_path / "sweeps" / "mine").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert SweepFolder.of(Path("sweeps/mine")) == SweepFolder.of(tmp_path / "sweeps" / "mine")
    monkeypatch.chdir(tmp_path / "sweeps")
    assert SweepFolder.of(Path("mine")) == SweepFolder(tmp_path, "mine")


def test_reports_of_sweeps_on_another_disk_stay_in_the_working_directory(tmp_path):
    """`sweeps` is a link to a scratch disk, whose parent is not the working directory."""
    (tmp_path / "scratch" / "sweeps" / "mine").mkdir(parents=True)
    (tmp_path / "sweeps").symlink_to(tmp_path / "scratch" / "sweeps")
    assert SweepFolder.of(tmp_path / "sweeps" / "mine").report == tmp_path / "reports" / "mine"


@pytest.mark.parametrize("path", ["mine", "sweeps", "sweeps/mine/runs", "/", "sweeps/..", "sweeps/a b"])
def test_other_paths_are_not_sweep_folders(tmp_path, monkeypatch, path):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError):
        SweepFolder.of(Path(path))


def test_only_a_blocks_file_leads_to_its_sweep(tmp_path):
    folder = SweepFolder(tmp_path, "mine")
    others = [folder.manifest, folder.root / "blocks" / "b1.txt", tmp_path / "b1.json", folder.block("b2"), Path("/")]
    for path in (folder.block("b1"), *others[:3]):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")
    assert SweepFolder.of_block(folder.block("b1")) == folder
    for path in others:
        with pytest.raises(InputError, match="not a block's file"):
            SweepFolder.of_block(path)


def test_only_planned_sweeps_are_known_and_a_folder_path_is_accepted_as_name(tmp_path):
    for name in ("b", "a", "unplanned"):
        (tmp_path / "sweeps" / name).mkdir(parents=True)
    for name in ("b", "a"):
        (tmp_path / "sweeps" / name / "manifest.json").write_text("{}")
    assert known_sweeps(tmp_path) == ["a", "b"]
    assert sweep_name_in("mine") == sweep_name_in("sweeps/mine") == sweep_name_in("sweeps/mine/") == "mine"
