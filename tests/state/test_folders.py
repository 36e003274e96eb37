"""A sweep's name can never lead out of its folder or into a shell."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accelsweep.core.errors import InputError
from accelsweep.state.folders import SweepFolder, check_sweep_name, existing_sweep


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
def test_names_that_could_do_harm_are_refused_with_a_usable_one(name):
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


def test_an_unknown_sweep_is_refused_with_those_that_exist(tmp_path):
    (tmp_path / "sweeps" / "known").mkdir(parents=True)
    (tmp_path / "sweeps" / "known" / "manifest.json").write_text("{}")
    with pytest.raises(InputError, match="there are: known"):
        existing_sweep(tmp_path, "unknown")
