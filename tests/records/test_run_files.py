"""A run's folder loses nothing to a kill; records and blocks have a strict and a lenient reader."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tiny_executor import TinyBlock

from accelsweep.driver import progress_display
from accelsweep.driver.progress_display import SweepProgress
from accelsweep.errors import DamagedFile, InputError
from accelsweep.executor.attempt import standalone_spec
from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import Block, Manifest
from accelsweep.records.run_files import (
    RunFolder,
    block_of,
    block_or_none,
    read_record,
    read_record_at,
    readable_blocks,
    readable_configs,
    readable_records,
    record_or_none,
)
from accelsweep.records.run_record import Record
from accelsweep.results import Doubt, Outcome
from accelsweep.run_config import Run


class Killed(Exception):
    """Simulates a kill at this point."""


@pytest.fixture
def template(tiny_block: TinyBlock) -> Record:
    tiny_block.plan("measured")
    tiny_block.run()
    return tiny_block.record()


def finish(run_folder: RunFolder, record: Record) -> int:
    """Begin an attempt and write its files to its folder, as just before they are promoted."""
    number = run_folder.begin("here", "now")
    for name in ("run.log", "steps.parquet"):
        (run_folder.attempt(number) / name).write_text(f"{name} of {number}")
    record.model_copy(update={"attempt": number}).write(run_folder.attempt(number) / "record.json")
    return number


def contents(run_folder: RunFolder) -> dict[str, str]:
    return {name: (run_folder.path / name).read_text() for name in ("run.log", "steps.parquet")}


def test_promoting_a_second_attempt_preserves_the_first(template: Record, tmp_path: Path) -> None:
    run_folder = RunFolder(tmp_path / "run", template.run)
    for _ in range(2):
        run_folder.promote(finish(run_folder, template))
    assert run_folder.record() == template.model_copy(update={"attempt": 2})
    assert contents(run_folder) == {"run.log": "run.log of 2", "steps.parquet": "steps.parquet of 2"}
    assert Record.read(run_folder.attempt(1) / "record.json").attempt == 1
    assert (run_folder.attempt(1) / "steps.parquet").read_text() == "steps.parquet of 1"


@pytest.mark.parametrize("allowed", range(10))
def test_recover_repairs_a_kill_after_any_step_of_promoting(
    template: Record, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, allowed: int
) -> None:
    run_folder = RunFolder(tmp_path / "run", template.run)
    run_folder.promote(finish(run_folder, template))
    second = finish(run_folder, template)
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
        if allowed < 9:
            with pytest.raises(Killed):
                run_folder.promote(second)
        else:
            run_folder.promote(second)
    assert run_folder.recover() == []
    assert run_folder.record() == template.model_copy(update={"attempt": 2})
    assert contents(run_folder) == {"run.log": "run.log of 2", "steps.parquet": "steps.parquet of 2"}
    assert Record.read(run_folder.attempt(1) / "record.json").attempt == 1
    assert (run_folder.attempt(1) / "run.log").read_text() == "run.log of 1"
    assert run_folder.fatal_attempts() == []


def test_a_record_that_the_user_deleted_does_not_reappear(template: Record, tmp_path: Path) -> None:
    run_folder = RunFolder(tmp_path / "run", template.run)
    run_folder.promote(finish(run_folder, template))
    (run_folder.path / "record.json").unlink()
    assert run_folder.recover() == []
    assert run_folder.record() is None
    assert run_folder.begin("here", "now") == 2
    assert (run_folder.attempt(1) / "steps.parquet").read_text() == "steps.parquet of 1"
    assert not (run_folder.path / "steps.parquet").exists()


def test_an_attempt_without_steps_does_not_inherit_those_of_an_earlier_one(template: Record, tmp_path: Path) -> None:
    run_folder = RunFolder(tmp_path / "run", template.run)
    run_folder.promote(finish(run_folder, template))
    second = finish(run_folder, template)
    (run_folder.attempt(second) / "steps.parquet").unlink()
    run_folder.promote(second)
    assert not (run_folder.path / "steps.parquet").exists()


def test_only_marked_attempts_after_the_record_count_as_fatal(template: Record, tmp_path: Path) -> None:
    run_folder = RunFolder(tmp_path / "run", template.run)
    assert run_folder.begin("here", "now") == 1
    run_folder.promote(finish(run_folder, template))
    assert run_folder.fatal_attempts() == []
    assert run_folder.begin("here", "now") == 3
    run_folder.close(run_folder.begin("here", "now"))
    assert run_folder.begin("here", "now") == 5
    assert run_folder.fatal_attempts() == [3, 5]


def test_a_finished_run_forgets_earlier_fatal_attempts(template: Record, tmp_path: Path) -> None:
    run_folder = RunFolder(tmp_path / "run", template.run)
    run_folder.begin("here", "now")
    run_folder.promote(finish(run_folder, template))
    assert [run_folder.is_open(number) for number in (1, 2)] == [False, False]


def test_reopening_forgets_fatal_attempts_including_those_after_the_record(template: Record, tmp_path: Path) -> None:
    run_folder = RunFolder(tmp_path / "run", template.run)
    run_folder.begin("here", "now")
    run_folder.promote(finish(run_folder, template))
    for _ in range(2):
        run_folder.begin("here", "now")
    assert run_folder.fatal_attempts() == [3, 4]
    assert run_folder.reopen()
    assert (run_folder.record(), run_folder.fatal_attempts()) == (None, [])


def test_a_damaged_finished_attempt_is_set_aside_and_not_promoted(template: Record, tmp_path: Path) -> None:
    run_folder = RunFolder(tmp_path / "run", template.run)
    number = finish(run_folder, template)
    path = run_folder.attempt(number) / "record.json"
    path.write_bytes(path.read_bytes()[:-5])
    (damaged,) = run_folder.recover()
    assert damaged.path == path
    assert run_folder.record() is None
    assert path.with_name("record.json.damaged-1").exists()


def test_a_missing_folder_is_a_run_without_attempts(tmp_path: Path) -> None:
    run_folder = RunFolder(tmp_path / "none", "x-r0")
    assert (run_folder.record(), run_folder.latest()) == (None, 0)
    assert (run_folder.fatal_attempts(), run_folder.recover()) == ([], [])
    assert not run_folder.path.exists()


@pytest.fixture
def runs(example_sweep: SweepFolder) -> list[str]:
    """The runs with a record; the first four are missing, truncated, another run's and another setting's."""
    recorded = [path.parent.name for path in example_sweep.latest_records()]
    missing, cut, swapped, moved, *whole = recorded
    example_sweep.record(missing).unlink()
    example_sweep.record(cut).write_bytes(example_sweep.record(cut).read_bytes()[:-20])
    shutil.copy(example_sweep.record(whole[0]), example_sweep.record(swapped))
    path = example_sweep.record(moved)
    Record.read(path).model_copy(update={"setting": "another"}).write(path)
    return recorded


def test_the_strict_reader_names_the_fault(example_sweep: SweepFolder, runs: list[str]) -> None:
    missing, cut, swapped, moved, whole, *_ = runs
    with pytest.raises(FileNotFoundError):
        read_record(example_sweep, missing)
    for run, why in (
        (cut, "not a complete JSON"),
        (swapped, f"another run, '{whole}'"),
        (moved, "another setting, 'another'"),
    ):
        with pytest.raises(DamagedFile, match=why):
            read_record(example_sweep, run)
    assert read_record(example_sweep, whole).run == whole


def test_the_lenient_reader_skips_unusable_records(example_sweep: SweepFolder, runs: list[str]) -> None:
    assert [record_or_none(example_sweep, run) for run in runs[:4]] == [None] * 4
    assert [record.run for record in readable_records(example_sweep, runs)] == runs[4:]


def test_progress_ignores_the_record_of_another_run(
    example_sweep: SweepFolder, runs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress_display, "reusable_runs", lambda records, *_: {record.run for record in records})
    manifest = Manifest.read(example_sweep.manifest)
    for block in manifest.blocks:
        example_sweep.done(block.name).unlink(missing_ok=True)
    assert SweepProgress.begin(example_sweep).settled == set(runs[4:]) & set(manifest.wanted_runs()) != set()


def test_attempts_are_read_strictly(example_sweep: SweepFolder, runs: list[str]) -> None:
    missing, _, swapped, moved, *_ = runs
    assert RunFolder(example_sweep.run(missing), missing).record() is None
    for run in (swapped, moved):
        with pytest.raises(DamagedFile):
            RunFolder(example_sweep.run(run), run).record()
        with pytest.raises(DamagedFile):
            read_record_at(example_sweep.record(run), run)


@pytest.mark.parametrize(("setting", "repeat"), [("0123456789ab", 0), ("my-r2-setting", 17)])
def test_a_runs_name_has_its_setting_and_repeat(setting: str, repeat: int) -> None:
    assert Run.parse(Run.of(setting, repeat, seed=1).name) == (setting, repeat)


@pytest.mark.parametrize("name", ["", "abc", "abc-r", "-r1", "abc-rx", "abc-r-1", "abc-r1 "])
def test_other_texts_are_not_names_of_runs(name: str) -> None:
    with pytest.raises(InputError, match="not a run name"):
        Run.parse(name)


@pytest.fixture
def blocks(example_sweep: SweepFolder) -> list[str]:
    """The names of the blocks: the first is truncated, the second is missing; the others have every setting."""
    first, second, *others = (block.name for block in Manifest.read(example_sweep.manifest).blocks)
    example_sweep.block(first).write_bytes(example_sweep.block(first).read_bytes()[:-20])
    example_sweep.block(second).unlink()
    return [first, second, *others]


@pytest.fixture
def manifest(example_sweep: SweepFolder) -> Manifest:
    return Manifest.read(example_sweep.manifest)


def setting_in(folder: SweepFolder, block: str) -> str:
    return next(iter(Block.read(folder.block(block)).configs))


def test_a_setting_is_found_in_a_later_block_despite_a_damaged_one(
    example_sweep: SweepFolder, manifest: Manifest, blocks: list[str]
) -> None:
    setting = setting_in(example_sweep, blocks[2])
    assert block_of(example_sweep, manifest, setting).name == blocks[2]
    assert standalone_spec(example_sweep, setting, example_sweep.root, "debug").block == blocks[2]


def test_the_damaged_block_is_named_if_no_other_has_the_setting(
    example_sweep: SweepFolder, manifest: Manifest, blocks: list[str]
) -> None:
    with pytest.raises(DamagedFile, match=f"{blocks[0]}.json: .* no other block contains setting 'nothing'"):
        block_of(example_sweep, manifest, "nothing")
    setting = setting_in(example_sweep, blocks[2])
    for name in blocks:
        example_sweep.block(name).unlink(missing_ok=True)
    with pytest.raises(DamagedFile, match=f"{blocks[0]}.json: it is missing; .* Repeat `accelsweep run`"):
        standalone_spec(example_sweep, setting, example_sweep.root, "debug")


def test_a_setting_of_no_block_is_wrong_input(example_sweep: SweepFolder, manifest: Manifest) -> None:
    with pytest.raises(InputError, match="contains setting 'nothing'"):
        block_of(example_sweep, manifest, "nothing")


def test_the_lenient_reader_skips_unusable_blocks(
    example_sweep: SweepFolder, manifest: Manifest, blocks: list[str]
) -> None:
    assert [block_or_none(example_sweep, name) is None for name in blocks] == [True, True] + [False] * len(blocks[2:])
    assert [block.name for block in readable_blocks(example_sweep, manifest)] == blocks[2:]
    runnable = {setting.name for setting in manifest.settings if setting.unsupported is None}
    assert readable_configs(example_sweep, manifest).keys() == runnable


DISTURBED = Doubt("busy_cpu", "other processes kept 1.40 of 2 cores busy", "stop them")


def test_a_disturbed_attempt_is_recovered_though_the_next_one_was_killed(template: Record, tmp_path: Path) -> None:
    run_folder = RunFolder(tmp_path / "run", template.run)
    finish(run_folder, template.model_copy(update={"doubts": (DISTURBED,)}))
    run_folder.begin("here", "now")
    assert run_folder.recover() == []
    record = run_folder.record()
    assert record is not None
    assert (record.attempt, record.disturbance) == (1, DISTURBED.message)
    assert run_folder.fatal_attempts() == [2]


def test_an_attempt_that_was_reopened_is_not_recovered_and_ends_the_count_of_disturbed_ones(
    template: Record, tmp_path: Path
) -> None:
    run_folder = RunFolder(tmp_path / "run", template.run)
    disturbed = template.model_copy(update={"doubts": (DISTURBED,)})
    for _ in range(2):
        run_folder.promote(finish(run_folder, disturbed))
    assert run_folder.disturbed_attempts() == 2
    run_folder.reopen()
    run_folder.promote_latest()
    assert (run_folder.record(), run_folder.disturbed_attempts()) == (None, 0)
    finish(run_folder, disturbed)
    assert run_folder.disturbed_attempts() == 1


def test_every_earlier_attempt_has_a_reason(template: Record, tmp_path: Path) -> None:
    run_folder = RunFolder(tmp_path / "run", template.run)
    crashed = {"outcome": Outcome.crashed, "reason": "it was ended by SIGKILL"}
    for changes in ({"doubts": (DISTURBED,)}, crashed, {}):
        earlier = run_folder.earlier_attempts(run_folder.latest() + 1)
        run_folder.promote(finish(run_folder, template.model_copy(update={**changes, "earlier_attempts": earlier})))
    run_folder.reopen()
    run_folder.begin("here", "now")
    interrupted = run_folder.begin("here", "now")
    run_folder.close(interrupted)
    assert [(attempt.attempt, attempt.reason) for attempt in run_folder.earlier_attempts(6)] == [
        (1, f"disturbed: {DISTURBED.message}"),
        (2, "crashed: it was ended by SIGKILL"),
        (3, "measured again at the user's request"),
        (4, "its executor died"),
        (5, "interrupted"),
    ]
