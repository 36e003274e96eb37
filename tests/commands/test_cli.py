"""The command line's surface: quick, complete, and frozen by a test."""

import subprocess
import sys

import pytest

HEAVY = ("torch", "lightning", "mlflow", "pandas", "hydra", "altair", "snakemake")
COMMANDS = (
    "init",
    "run",
    "plan",
    "status",
    "runs",
    "retry",
    "report",
    "publish",
    "compare",
    "ui",
    "doctor",
    "debug",
    "clean",
)


def accelsweep(*arguments, cwd):
    return subprocess.run(
        [sys.executable, "-m", "accelsweep", *arguments], cwd=cwd, capture_output=True, text=True, check=False
    )


def test_help_lists_every_command(tmp_path):
    words = accelsweep("--help", cwd=tmp_path).stdout.split()
    assert [name for name in COMMANDS if name not in words] == []


def test_help_imports_nothing_heavy():
    code = (
        "import sys\nfrom typer.testing import CliRunner\nfrom accelsweep.cli import app\n"
        "assert CliRunner().invoke(app, ['--help']).exit_code == 0\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command, tmp_path):
    result = accelsweep(command, "--help", cwd=tmp_path)
    assert result.returncode == 0
    assert "Usage: accelsweep" in result.stdout or f"{command} [OPTIONS]" in result.stdout


def test_a_mistyped_option_exits_with_2_and_offers_the_right_one(tmp_path):
    result = accelsweep("run", "--nmae", "x", cwd=tmp_path)
    assert result.returncode == 2
    assert "--name" in result.stderr


@pytest.mark.parametrize("command", ["report", "publish", "clean"])
def test_an_unknown_sweep_exits_with_2_and_leaves_no_trace(command, tmp_path):
    result = accelsweep(command, "nothing", cwd=tmp_path)
    assert result.returncode == 2
    assert "no sweep 'nothing'" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_version_is_printed(tmp_path):
    assert accelsweep("--version", cwd=tmp_path).stdout.startswith("accelsweep ")
