"""Messages help: the nearest known word is offered, and nothing when nothing is near."""

import shutil
from pathlib import Path

import pytest

from accelsweep.errors import nearest, words_of


def test_the_nearest_word_is_offered():
    assert nearest("batchsize", ["batch_size", "precision"]) == " (did you mean 'batch_size'?)"


def test_nothing_is_offered_when_nothing_is_near():
    assert nearest("xyz", ["batch_size", "precision"]) == ""


@pytest.mark.parametrize("name", ["sweeps", "sweeps/tiny", "a b/it's"])
def test_a_file_in_the_place_of_a_folder_is_named_with_the_command_that_moves_it_away(tmp_path, name):
    stranger = tmp_path / name
    stranger.parent.mkdir(exist_ok=True)
    stranger.touch()
    for make in (lambda: (stranger / "x").write_text(""), (stranger / "x" / "y").mkdir, stranger.mkdir):
        with pytest.raises(OSError) as caught:  # noqa: PT011 - any of the two kinds
            make()
        assert f"{stranger} is no folder. Move it away: mv " in words_of(caught.value)
    assert ("it'\"'\"'s'" in words_of(caught.value)) == ("'" in name)


def test_a_working_folder_that_was_deleted_is_named_with_the_way_back(tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    monkeypatch.setenv("PWD", str(gone))
    shutil.rmtree(gone)
    with pytest.raises(FileNotFoundError) as caught:
        Path.cwd()
    assert words_of(caught.value).endswith(
        f"{gone} was deleted or replaced while this shell stood in it: cd to a folder that exists"
    )
    gone.mkdir()
    assert words_of(caught.value).endswith(f": cd {gone}")
