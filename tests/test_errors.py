"""Error messages suggest the nearest known word, and name the file or folder in the way with a command."""

import shutil
from pathlib import Path

import pytest

from accelsweep.errors import describe_os_error, nearest


def test_the_nearest_known_word_is_suggested():
    assert nearest("batchsize", ["batch_size", "precision"]) == " (did you mean 'batch_size'?)"


def test_nothing_is_suggested_when_nothing_is_close():
    assert nearest("xyz", ["batch_size", "precision"]) == ""


@pytest.mark.parametrize("name", ["sweeps", "sweeps/tiny", "a b/it's"])
def test_a_file_in_place_of_a_folder_is_named_with_a_command_that_moves_it_away(tmp_path, name):
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    file.touch()
    for make in (lambda: (file / "x").write_text(""), (file / "x" / "y").mkdir, file.mkdir):
        with pytest.raises(OSError) as caught:  # noqa: PT011 - NotADirectoryError or FileExistsError
            make()
        assert f"{file} is not a folder. Move it away: mv " in describe_os_error(caught.value)
    assert ("it'\"'\"'s'" in describe_os_error(caught.value)) == ("'" in name)


def test_a_deleted_working_folder_is_named_with_the_way_back(tmp_path, monkeypatch):
    deleted = tmp_path / "gone"
    deleted.mkdir()
    monkeypatch.chdir(deleted)
    monkeypatch.setenv("PWD", str(deleted))
    shutil.rmtree(deleted)
    with pytest.raises(FileNotFoundError) as caught:
        Path.cwd()
    assert describe_os_error(caught.value).endswith(
        f"{deleted} was deleted or replaced while this shell was in it: cd to a folder that exists"
    )
    deleted.mkdir()
    assert describe_os_error(caught.value).endswith(f": cd {deleted}")
