"""The folder of a run: a kill between any two steps of moving an attempt into place loses nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from tiny_executor import TinyBlock

from accelsweep.records.run_files import RunFolder
from accelsweep.records.run_record import Record


class Killed(Exception):
    """Stands for a kill at this point."""


@pytest.fixture
def template(tiny_block: TinyBlock) -> Record:
    tiny_block.plan("measured")
    tiny_block.run()
    return tiny_block.record()


def finish(place: RunFolder, record: Record) -> int:
    """Begin an attempt and leave its files in the attempt's folder, as just before they are moved up."""
    number = place.begin("here", "now")
    for name in ("run.log", "steps.parquet"):
        (place.attempt(number) / name).write_text(f"{name} of {number}")
    record.model_copy(update={"attempt": number}).write(place.attempt(number) / "record.json")
    return number


def contents(place: RunFolder) -> dict[str, str]:
    return {name: (place.path / name).read_text() for name in ("run.log", "steps.parquet")}


def test_promoting_a_second_attempt_keeps_the_first_whole(template: Record, tmp_path: Path) -> None:
    place = RunFolder(tmp_path / "run", template.run)
    for _ in range(2):
        place.promote(finish(place, template))
    assert place.record() == template.model_copy(update={"attempt": 2})
    assert contents(place) == {"run.log": "run.log of 2", "steps.parquet": "steps.parquet of 2"}
    assert Record.read(place.attempt(1) / "record.json").attempt == 1
    assert (place.attempt(1) / "steps.parquet").read_text() == "steps.parquet of 1"


@pytest.mark.parametrize("allowed", range(9))
def test_a_kill_after_any_step_of_promoting_is_mended_by_recover(
    template: Record, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, allowed: int
) -> None:
    place = RunFolder(tmp_path / "run", template.run)
    place.promote(finish(place, template))
    second = finish(place, template)
    steps = iter(range(allowed))
    replace, unlink = Path.replace, Path.unlink

    def counted(step):  # type: ignore[no-untyped-def]
        def run(*arguments, **options):  # type: ignore[no-untyped-def]
            if next(steps, None) is None:
                raise Killed
            return step(*arguments, **options)

        return run

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", counted(replace))
        patch.setattr(Path, "unlink", counted(unlink))
        if allowed < 8:
            with pytest.raises(Killed):
                place.promote(second)
        else:
            place.promote(second)
    assert place.recover() == []
    assert place.record() == template.model_copy(update={"attempt": 2})
    assert contents(place) == {"run.log": "run.log of 2", "steps.parquet": "steps.parquet of 2"}
    assert Record.read(place.attempt(1) / "record.json").attempt == 1
    assert (place.attempt(1) / "run.log").read_text() == "run.log of 1"
    assert place.fatal_attempts() == []


def test_a_record_that_the_user_deleted_does_not_come_back(template: Record, tmp_path: Path) -> None:
    place = RunFolder(tmp_path / "run", template.run)
    place.promote(finish(place, template))
    (place.path / "record.json").unlink()
    assert place.recover() == []
    assert place.record() is None
    assert place.begin("here", "now") == 2
    assert (place.attempt(1) / "steps.parquet").read_text() == "steps.parquet of 1"
    assert not (place.path / "steps.parquet").exists()


def test_an_attempt_without_steps_does_not_inherit_those_of_an_earlier_one(template: Record, tmp_path: Path) -> None:
    place = RunFolder(tmp_path / "run", template.run)
    place.promote(finish(place, template))
    second = finish(place, template)
    (place.attempt(second) / "steps.parquet").unlink()
    place.promote(second)
    assert not (place.path / "steps.parquet").exists()


def test_only_marked_attempts_after_the_record_count_as_having_taken_the_supervisor_down(
    template: Record, tmp_path: Path
) -> None:
    place = RunFolder(tmp_path / "run", template.run)
    assert place.begin("here", "now") == 1
    place.promote(finish(place, template))
    assert place.fatal_attempts() == []
    assert place.begin("here", "now") == 3
    place.close(place.begin("here", "now"))
    assert place.begin("here", "now") == 5
    assert place.fatal_attempts() == [3, 5]


def test_a_run_that_came_to_its_end_keeps_no_mark_of_an_earlier_fall(template: Record, tmp_path: Path) -> None:
    place = RunFolder(tmp_path / "run", template.run)
    place.begin("here", "now")
    place.promote(finish(place, template))
    assert [place.is_open(number) for number in (1, 2)] == [False, False]


def test_reopening_forgives_every_fall_those_after_the_record_too(template: Record, tmp_path: Path) -> None:
    place = RunFolder(tmp_path / "run", template.run)
    place.begin("here", "now")
    place.promote(finish(place, template))
    for _ in range(2):
        place.begin("here", "now")
    assert place.fatal_attempts() == [3, 4]
    assert place.reopen()
    assert (place.record(), place.fatal_attempts()) == (None, [])


def test_a_damaged_finished_attempt_is_set_aside_and_not_promoted(template: Record, tmp_path: Path) -> None:
    place = RunFolder(tmp_path / "run", template.run)
    number = finish(place, template)
    path = place.attempt(number) / "record.json"
    path.write_bytes(path.read_bytes()[:-5])
    (damaged,) = place.recover()
    assert damaged.path == path
    assert place.record() is None
    assert path.with_name("record.json.damaged-1").exists()


def test_a_missing_folder_is_a_run_without_attempts(tmp_path: Path) -> None:
    place = RunFolder(tmp_path / "none", "x-r0")
    assert (place.record(), place.latest(), place.fatal_attempts(), place.recover()) == (None, 0, [], [])
    assert not place.path.exists()
