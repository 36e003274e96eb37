"""Every `python -m accelsweep.MODULE` names its sweep and reports errors in the same way."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest

import accelsweep.tracking.mlflow_settings  # noqa: F401 - sets MLflow's variables once, before any test looks at them
from accelsweep.cli.typer_app import exit_code
from accelsweep.errors import DamagedFile, InputError
from accelsweep.records.layout import SweepFolder
from accelsweep.signals import exit_code_of

OF_A_SWEEP = ["tracking.live_publishing", "driver.finalize"]
OTHERS = [
    "executor.__main__",
    "executor.node_agent",
    "worker.main",
    "features.grid_engine.snakemake_commands",
]


def main_of(module: str) -> Callable[..., int]:
    main: Callable[..., int] = import_module(f"accelsweep.{module}").main
    return main


def unwrapped(capsys: pytest.CaptureFixture[str]) -> str:
    """Return what went to stderr as one line: argparse wraps a usage."""
    return " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("module", OF_A_SWEEP)
def test_a_path_that_is_not_a_sweeps_is_wrong_input_in_one_line(
    module: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for path, why in ((tmp_path, "is not a sweep's folder"), (tmp_path / "sweeps" / "a b", "is not usable")):
        assert main_of(module)([str(path)]) == 2
        told = capsys.readouterr()
        assert told.out == ""
        assert told.err.startswith("error: ")
        assert told.err.count("\n") == 1
        assert why in told.err


@pytest.mark.parametrize("module", OF_A_SWEEP)
def test_a_sweep_that_was_not_planned_is_named(module: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main_of(module)([str(tmp_path / "sweeps" / "absent")]) == 2
    assert capsys.readouterr().err.startswith("error: no sweep 'absent'")


@pytest.mark.parametrize("module", OF_A_SWEEP)
def test_a_damaged_manifest_or_findings_file_is_named(
    module: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = SweepFolder(tmp_path, "spoilt")
    folder.root.mkdir(parents=True)
    for path in (folder.manifest, folder.findings):
        path.write_text("{")
    assert main_of(module)([str(folder.root)]) == 1
    assert capsys.readouterr().err.startswith(f"error: {folder.root}")


@pytest.mark.parametrize("module", [*OF_A_SWEEP, *OTHERS])
def test_without_its_argument_each_shows_its_own_name_and_usage(
    module: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["whatever"])
    with pytest.raises(SystemExit) as ended:
        main_of(module)()
    assert ended.value.code == 2
    assert f"usage: python -m accelsweep.{module.removesuffix('.__main__')} " in " ".join(
        capsys.readouterr().err.split()
    )


def test_data_is_prepared_for_planned_sweeps_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["executor", "--prepare", str(tmp_path / "sweeps" / "absent")])
    assert main_of("executor.__main__")() == 2
    assert capsys.readouterr().err.startswith("error: no sweep 'absent'")


def test_a_damaged_spec_of_a_rank_is_named_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("accelsweep.devices.linux.die_with_parent", lambda _: None)
    spec = tmp_path / "spec.json"
    spec.write_text("{")
    assert main_of("worker.main")([str(spec)]) == 1
    told = capsys.readouterr().err
    assert told.startswith(f"error: {spec}: not a valid run spec in JSON")
    assert told.count("\n") == 1


def test_the_command_line_masks_secrets_in_errors(capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> int:
        raise InputError("postgresql://me:hush@host/db is gone")

    assert exit_code(fail) == 2
    assert capsys.readouterr().err == "accelsweep: wrong input: postgresql://***@host/db is gone\n"


def test_secrets_in_errors_are_masked_and_the_report_callback_gets_the_line(tmp_path: Path) -> None:
    told: list[str] = []

    def fail() -> None:
        raise DamagedFile(tmp_path, "postgresql://me:hush@host/db is gone")

    assert exit_code_of(fail, report=told.append) == 1
    assert told == [f"error: {tmp_path}: postgresql://***@host/db is gone"]


def test_the_return_value_of_the_work_is_the_exit_code() -> None:
    assert [exit_code_of(lambda: None), exit_code_of(lambda: 0), exit_code_of(lambda: 130)] == [0, 0, 130]


def test_a_bug_keeps_its_traceback() -> None:
    with pytest.raises(ZeroDivisionError):
        exit_code_of(lambda: 1 // 0)
