"""Deleting asks first, and deletes one sweep and nothing else."""

import pytest

from accelsweep.cli.sweeps import delete_sweep
from accelsweep.driver.sweep_lock import lock_sweep
from accelsweep.errors import AccelsweepError, InputError


def test_nothing_is_deleted_without_a_yes(example_sweep):
    questions = []
    delete_sweep(example_sweep.home, example_sweep.name, ask=lambda question: bool(questions.append(question)))
    assert example_sweep.manifest.exists()
    assert "records?" in questions[0]
    assert str(example_sweep.root) in questions[0]


def test_only_the_sweeps_own_folders_are_deleted(example_sweep):
    example_sweep.report.mkdir(parents=True)
    other = example_sweep.home / "sweeps" / "other" / "manifest.json"
    other.parent.mkdir()
    other.write_text("{}")
    delete_sweep(example_sweep.home, example_sweep.name, ask=None)
    assert not example_sweep.root.exists()
    assert not example_sweep.report.exists()
    assert other.exists()


def test_a_running_sweep_is_not_deleted(example_sweep):
    with lock_sweep(example_sweep), pytest.raises(AccelsweepError, match="is being run by process"):
        delete_sweep(example_sweep.home, example_sweep.name, ask=None)
    assert example_sweep.manifest.exists()


def test_a_link_in_place_of_a_sweep_is_named_and_nothing_is_deleted(example_sweep, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    example_sweep.root.rename(elsewhere)
    example_sweep.root.symlink_to(elsewhere)
    with pytest.raises(InputError, match=f"{example_sweep.root} is a link to {elsewhere}"):
        delete_sweep(example_sweep.home, example_sweep.name, ask=None)
    assert (elsewhere / "manifest.json").exists()
