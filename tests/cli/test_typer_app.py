"""The command line is quick and complete, and its surface changes only on purpose."""

import shlex
import subprocess
import sys

import pytest
import typer
from typer.testing import CliRunner

from accelsweep.cli.typer_app import _purpose, app, exit_code, script_options_as_overrides

HEAVY = ("torch", "lightning", "mlflow", "pandas", "hydra", "altair", "snakemake")
SURFACE = {
    "init": "FOLDER",
    "apply": "NAME --force",
    "run": "OVERRIDES --dry-run -n --cfg --entry --minutes --name --profile --jobs -j --add-repeats --time-budget "
    "--until-decided --tracking-uri --cancel-old --keep-going --detach --notify",
    "attach": "NAME",
    "ab": "ARGUMENTS --python --fail-if --dry-run -n --json --format --entry --name --profile --jobs -j "
    "--add-repeats --time-budget --until-decided --tracking-uri --cancel-old --keep-going --detach --notify",
    "fleet": "OVERRIDES --nodes --each --tolerance --dry-run -n --json --entry --name --profile --jobs -j "
    "--time-budget --tracking-uri --cancel-old --keep-going --detach --notify",
    "plan": "OVERRIDES --entry --minutes --name --profile --add-repeats --cfg --json",
    "status": "NAME --json",
    "runs": "NAME --outcome --sort --json",
    "retry": "NAME --outcome",
    "report": "NAMES --summary",
    "export": "NAME --to",
    "import": "FILE --name --from --device",
    "publish": "NAME --tracking-uri --anew",
    "compare": "BEFORE AFTER --fail-if --json",
    "history": "NAMES --json",
    "project": "NAME --onto --prices --json",
    "advise": "NAME --epochs --deadline --budget --samples --onto --prices --batch --json",
    "claims": "NAMES --minutes --detach",
    "ui": "--port --open --tracking-uri",
    "doctor": "OVERRIDES --entry --job --json",
    "site": "NAME --from-slurm --from-grid-engine",
    "profile": "NAME SETTINGS --steps --tracking-uri --json",
    "debug": "NAME SETTING",
    "clean": "NAME --yes -y",
    "watch": "NAME COMMAND --setting --every",
}
"""Every command with its arguments (in capitals) and options: scripts rest on them, so that none goes unnoticed."""


def accelsweep(*arguments, cwd):
    return subprocess.run(
        [sys.executable, "-m", "accelsweep", *arguments], cwd=cwd, capture_output=True, text=True, check=False
    )


def test_commands_arguments_and_options_are_the_documented_ones():
    group = typer.main.get_command(app)
    found = {}
    for name in group.list_commands(typer.Context(group)):
        command = group.get_command(typer.Context(group), name)
        words = (item.opts if item.param_type_name == "option" else [item.name.upper()] for item in command.params)
        found[name] = " ".join(word for each in words for word in each)
    assert found == SURFACE


def test_help_lists_every_command():
    words = CliRunner().invoke(app, ["--help"]).output.split()
    assert [name for name in SURFACE if name not in words] == []


@pytest.mark.parametrize("columns", ["40", "80"])
def test_help_truncates_no_sentence_in_a_narrow_terminal(columns, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", columns)  # which Typer's runner for tests would not heed
    monkeypatch.setattr(sys, "argv", ["accelsweep", "--help"])
    with pytest.raises(SystemExit):
        app()
    shown = capsys.readouterr().out.partition("Measure:")[2]
    assert max(map(len, shown.splitlines())) <= max(int(columns), 50), "it is made for this width; 50 is the least"
    assert "..." not in shown
    assert "and compare its speed with what a sweep measured" in " ".join(shown.split())


def test_help_imports_nothing_heavy():
    code = (
        "import sys\nfrom typer.testing import CliRunner\nfrom accelsweep.cli import app\n"
        "assert CliRunner().invoke(app, ['--help']).exit_code == 0\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_status_imports_nothing_heavy(example_sweep):
    """It is asked often, and answers within half a second."""
    code = (
        "import sys\nfrom pathlib import Path\nfrom accelsweep.cli.status import print_status\n"
        f"print_status(Path.cwd(), None)\nprint([name for name in {HEAVY!r} if name in sys.modules])"
    )
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, cwd=example_sweep.home, capture_output=True, text=True, check=True)
    assert result.stdout.splitlines()[-1] == "[]"


def commands():
    group = typer.main.get_command(app)
    return {name: group.get_command(typer.Context(group), name) for name in SURFACE}


def test_the_purpose_of_each_command_fits_on_one_line_of_80_characters():
    longest = max(map(len, SURFACE))
    long = [name for name, command in commands().items() if len(f"  {_purpose(command.help)}") + longest + 2 > 78]
    assert long == []


@pytest.mark.parametrize("command", SURFACE)
def test_every_command_has_two_examples_that_can_be_typed(command, monkeypatch):
    """And that are not wrapped in a terminal of 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")
    shown = CliRunner().invoke(app, [command, "--help"]).output.partition("Examples:\n")[2].splitlines()
    assert len(shown) == 4
    assert max(map(len, shown)) <= 78
    for purpose, line in zip(shown[::2], shown[1::2], strict=True):
        assert purpose.startswith("  # ")
        program, name, *arguments = shlex.split(line)
        assert program == "accelsweep"
        commands()[name].make_context(name, arguments)  # raises a usage error for an unknown option


@pytest.mark.parametrize("command", SURFACE)
def test_every_command_has_help(command):
    result = CliRunner().invoke(app, [command, "--help"], prog_name="accelsweep")
    assert result.exit_code == 0
    assert f"Usage: accelsweep {command} [OPTIONS]" in result.output


def test_a_mistyped_option_exits_with_2_and_suggests_the_right_one(tmp_path):
    result = accelsweep("run", "--nmae", "x", cwd=tmp_path)
    assert result.returncode == 2
    assert "--name" in result.stderr


OURS = ("--name", "--entry", "--jobs", "-j", "--add-repeats")


@pytest.mark.parametrize(
    ("typed", "parsed"),
    [
        ("--hidden=64,128", "arg.hidden=64,128"),
        ("--learning-rate=0.1", "arg.learning-rate=0.1"),
        ("--name=x", "--name=x"),
        ("--nmae=x", "--nmae=x"),
        ("--hidden", "--hidden"),
        ("batch_size=32", "batch_size=32"),
        ("-j=2", "-j=2"),
    ],
)
def test_options_of_the_users_script_become_overrides_unless_they_resemble_ours(typed, parsed):
    assert script_options_as_overrides([typed, "--", typed], OURS) == [parsed, "--", typed]


def test_an_option_of_a_script_is_refused_where_no_script_runs(tmp_path):
    result = accelsweep("plan", "--hidden=64,128", "accelerator=cpu", cwd=tmp_path)
    assert result.returncode == 2
    assert "accelsweep has no option --hidden" in result.stderr
    assert "--entry 'python SCRIPT'" in result.stderr


@pytest.mark.parametrize("command", ["report", "export", "publish", "clean"])
def test_an_unknown_sweep_exits_with_2_and_leaves_no_trace(command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["accelsweep", command, "nothing"])
    assert exit_code(app) == 2
    assert "no sweep 'nothing'" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_the_version_is_printed(tmp_path):
    assert accelsweep("--version", cwd=tmp_path).stdout.startswith("accelsweep ")
