"""`accelsweep history`: a page and a table of several sweeps or archives, and a sentence for input that is wrong."""

from __future__ import annotations

import json
import re

import pytest
from sweep_series import build_sweep_again
from user_repository import commit, repository

from accelsweep.errors import InputError
from accelsweep.features.archives.command import export_sweep
from accelsweep.features.history.command import show_history
from accelsweep.records.layout import SweepFolder

pytestmark = pytest.mark.heavy

SPEEDS = (1.0, 1.0, 1.0, 1.0, 0.9, 0.9)


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A repository with six sweeps, each at a commit of its own, the later ones slower; tests must not change it."""
    home = repository(tmp_path_factory.mktemp("home") / "mine")
    with pytest.MonkeyPatch.context() as patch:
        for number, speed in enumerate(SPEEDS):
            patch.setenv("GIT_COMMITTER_DATE", f"2026-03-0{number + 1}T10:00:00+00:00")
            at = commit(home, {}, f"change {number}")
            torch = "2.9.0" if number < 4 else "2.13.0"
            build_sweep_again(home, f"n{number}", days=9 - number, speed=speed, commit=at, torch=torch)
    return home


def below(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if ".git/" not in str(path))


NAMES = [f"n{number}" for number in range(len(SPEEDS))]


def test_the_page_shows_every_line_and_marks_its_change(home, capsys):
    show_history(home, NAMES)
    told = capsys.readouterr().out
    page = home / "reports" / "history" / "n0+n1+n2+n3+n4+n5" / "index.html"
    assert told.splitlines()[-1] == f"report: {page}"
    assert "Points are ordered by the date of their commits, because the commit of every point is in" in told
    assert len(re.findall(r"10 % slower at [0-9a-f]{7}, where torch 2\.9\.0 to 2\.13\.0 changed too", told)) == 7
    text = page.read_text()
    headline = r"is 10 % slower since [0-9a-f]{7}; 6 other changes in 7 lines"
    assert re.search(headline, text)
    assert re.search(rf"{headline}\. 0\.\d+x to 0\.\d+x \(95 %\), compared with the level before", told)
    assert not re.findall(r"(?:src|href)=\"(?:https?:|//)", text), "it makes no request"
    names = {path.name for path in page.parent.iterdir()}
    assert names == {"index.html", "report.md", "changes.csv", "points.csv"} | {
        f"rate-{number}.{kind}" for number in range(1, 8) for kind in ("csv", "svg")
    }
    assert page.with_name("changes.csv").read_text().count("torch 2.9.0 to 2.13.0") == 7
    before = {path: path.read_bytes() for path in page.parent.iterdir()}
    show_history(home, NAMES)
    assert {path: path.read_bytes() for path in page.parent.iterdir()} == before, "the same history, the same bytes"


def test_a_folder_of_archives_has_the_history_of_their_sweeps(home, tmp_path, capsys):
    archives, elsewhere = tmp_path / "archives", tmp_path / "elsewhere"
    archives.mkdir()
    elsewhere.mkdir()
    for name in NAMES[:2]:
        export_sweep(home, name, archives / f"{name}.zip")
    capsys.readouterr()
    show_history(elsewhere, [str(archives)], as_json=True)
    found = json.loads(capsys.readouterr().out)
    assert (found["accelsweep"], found["sources"], found["order"]) == ("history", ["n0", "n1"], "date of measurement")
    assert [point["source"] for point in found["lines"][0]["points"]] == ["n1", "n0"]
    assert below(elsewhere / "reports")[:2] == ["history", "history/n0+n1"]
    assert not (elsewhere / "sweeps").exists()

    whole = (archives / "n0.zip").read_bytes()
    (archives / "n0.zip").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match=r"n0\.zip is not a usable archive: .* Nothing was written"):
        show_history(tmp_path, [str(archives)])
    assert not (tmp_path / "reports").exists()


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["n0", "n00"], r"no sweep, archive or folder 'n00' \(did you mean 'n\d'\?\); there are: n0, n1"),
        (["n0"], "7 settings with one point each, so there is no history: name more sweeps"),
        (["conf"], r"conf contains no archive \(\*\.zip\): create one with `accelsweep export"),
        (["toy.py"], r"toy\.py is not a usable archive"),
    ],
)
def test_wrong_input_is_told_in_a_sentence_and_nothing_is_written(home, words, why):
    before = below(home)
    with pytest.raises(InputError, match=why):
        show_history(home, words)
    assert below(home) == before


def test_where_nothing_was_measured_there_is_no_sweep(tmp_path):
    with pytest.raises(InputError, match="no sweep, archive or folder 'n0'; there are none under"):
        show_history(tmp_path, ["n0"])
    assert list(tmp_path.iterdir()) == []


def test_another_machine_makes_another_line(home, tmp_path, capsys):
    for name, machine in (("a", "m1"), ("b", "m1"), ("c", "m2"), ("d", "m2")):
        build_sweep_again(tmp_path, name, days=ord(name), machine=machine)
    show_history(tmp_path, ["a", "b", "c", "d"])
    told = " ".join(capsys.readouterr().out.split())
    assert "machine m1" in told
    assert "machine m2" in told
    assert SweepFolder(tmp_path, "a").root.is_dir()
