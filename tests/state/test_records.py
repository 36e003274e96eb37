"""Records have one strict and one lenient reader, and both know whose record it should be."""

from __future__ import annotations

import ast
import re
import shutil
from pathlib import Path

import pytest

import accelsweep
from accelsweep.driver import progress_display
from accelsweep.driver.progress_display import SweepProgress
from accelsweep.errors import DamagedFile, InputError
from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import Manifest
from accelsweep.records.run_files import RunFolder, read_record, read_record_at, readable_records, record_or_none
from accelsweep.records.run_record import Record
from accelsweep.run_config import Run

SOURCE = Path(accelsweep.__file__).parent


@pytest.fixture
def runs(example_sweep: SweepFolder) -> list[str]:
    """The runs that have a record, four of them spoilt: missing, cut short, another run's, another setting's."""
    recorded = [path.parent.name for path in example_sweep.latest_records()]
    missing, cut, swapped, moved, *whole = recorded
    example_sweep.record(missing).unlink()
    example_sweep.record(cut).write_bytes(example_sweep.record(cut).read_bytes()[:-20])
    shutil.copy(example_sweep.record(whole[0]), example_sweep.record(swapped))
    path = example_sweep.record(moved)
    Record.read(path).model_copy(update={"setting": "another"}).write(path)
    return recorded


def test_the_strict_reader_says_what_is_wrong(example_sweep: SweepFolder, runs: list[str]) -> None:
    missing, cut, swapped, moved, whole, *_ = runs
    with pytest.raises(FileNotFoundError):
        read_record(example_sweep, missing)
    for run, why in (
        (cut, "not a whole JSON"),
        (swapped, f"another run, '{whole}'"),
        (moved, "another setting, 'another'"),
    ):
        with pytest.raises(DamagedFile, match=why):
            read_record(example_sweep, run)
    assert read_record(example_sweep, whole).run == whole


def test_the_lenient_reader_leaves_out_what_cannot_be_used(example_sweep: SweepFolder, runs: list[str]) -> None:
    assert [record_or_none(example_sweep, run) for run in runs[:4]] == [None] * 4
    assert [record.run for record in readable_records(example_sweep, runs)] == runs[4:]


def test_progress_does_not_take_another_runs_record_for_a_runs_own(
    example_sweep: SweepFolder, runs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It read without looking whose record it was, and called such a run measured."""
    monkeypatch.setattr(progress_display, "reusable_runs", lambda records, *_: {record.run for record in records})
    manifest = Manifest.read(example_sweep.manifest)
    for block in manifest.blocks:
        example_sweep.done(block.name).unlink(missing_ok=True)
    assert SweepProgress.begin(example_sweep).settled == set(runs[4:]) & set(manifest.wanted_runs()) != set()


def test_attempts_are_read_as_strictly(example_sweep: SweepFolder, runs: list[str]) -> None:
    missing, _, swapped, moved, *_ = runs
    assert RunFolder(example_sweep.run(missing), missing).record() is None
    for run in (swapped, moved):
        with pytest.raises(DamagedFile):
            RunFolder(example_sweep.run(run), run).record()
        with pytest.raises(DamagedFile):
            read_record_at(example_sweep.record(run), run)


@pytest.mark.parametrize(("setting", "repeat"), [("0123456789ab", 0), ("my-r2-setting", 17)])
def test_a_runs_name_tells_its_setting_and_its_repeat(setting: str, repeat: int) -> None:
    assert Run.parse(Run.of(setting, repeat, seed=1).name) == (setting, repeat)


@pytest.mark.parametrize("name", ["", "abc", "abc-r", "-r1", "abc-rx", "abc-r-1", "abc-r1 "])
def test_any_other_text_is_no_runs_name(name: str) -> None:
    with pytest.raises(InputError, match="not the name of a run"):
        Run.parse(name)


def reads_records(source: str) -> bool:
    """Whether a module's source reads a record's file by itself."""
    calls = (node.func for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))
    return any(ast.unparse(function) in ("Record.read", "record.Record.read") for function in calls)


def parses_run_names(source: str) -> bool:
    """Whether a module's source takes a run's name apart: it hands a call that splits or matches a text with `-r`."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in SPLITTERS:
            texts = [part.value for given in node.args for part in ast.walk(given) if isinstance(part, ast.Constant)]
            if any(re.search(r"(?<!-)-r(?![a-z])", str(text)) for text in texts):
                return True
    return False


SPLITTERS = {
    "split", "rsplit", "partition", "rpartition", "removeprefix", "removesuffix",
    "index", "rindex", "find", "rfind", "compile", "match", "fullmatch", "search", "sub", "findall",
}  # fmt: skip


def modules(found) -> set[str]:  # type: ignore[no-untyped-def]
    return {str(path.relative_to(SOURCE)) for path in SOURCE.rglob("*.py") if found(path.read_text("utf-8"))}


def test_records_are_read_in_one_module_and_runs_names_are_taken_apart_in_one() -> None:
    assert modules(reads_records) == {"records/run_files.py"}
    assert modules(parses_run_names) == {"run_config.py"}


@pytest.mark.parametrize(
    "source", ["run.rpartition('-r')", "run.rsplit('-r', 1)[0]", "run.removeprefix(f'{setting}-r')"]
)
def test_what_takes_a_name_apart_is_seen(source: str) -> None:
    assert parses_run_names(source)
    assert not parses_run_names("f'{setting}-r{repeat}'")
    assert not parses_run_names("command.rpartition(' --add-repeats ')")
