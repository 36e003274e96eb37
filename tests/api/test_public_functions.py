"""The public names are few, typed and quick to import, without torch."""

from __future__ import annotations

import subprocess
import sys

import pytest
from example_sweep import build_example_sweep

import accelsweep
from accelsweep.errors import InputError

pytestmark = pytest.mark.heavy

HEAVY = ("torch", "lightning", "mlflow", "snakemake", "hydra", "altair", "pandas", "scipy", "pyarrow", "typer", "rich")
NAMES = [
    "AccelsweepError",
    "InputError",
    "OpenedSweep",
    "SweepPlan",
    "__version__",
    "open",
    "plan",
    "quality",
    "run",
    "samples",
    "steps",
]


def said(code, cwd):
    """What a fresh interpreter prints last."""
    done = subprocess.run([sys.executable, "-c", code], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


def test_the_public_names_are_the_documented_ones():
    assert accelsweep.__all__ == NAMES
    assert set(NAMES) <= set(dir(accelsweep))
    for name in NAMES:
        assert getattr(accelsweep, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = accelsweep.nonsense


def test_what_a_script_reports_has_no_effect_without_a_measurement():
    batches = [1, 2]
    assert accelsweep.steps(batches) is batches
    accelsweep.samples(8)
    accelsweep.quality(0.5)


def test_importing_the_package_imports_nothing_heavy(tmp_path):
    code = f"import sys, accelsweep\nprint([name for name in {HEAVY!r} if name in sys.modules])"
    assert said(code, tmp_path) == "[]"


def test_opening_showing_and_planning_import_no_torch(tmp_path):
    build_example_sweep(tmp_path)
    code = (
        "import sys, accelsweep\n"
        "sweep = accelsweep.open('sweeps/example')\n"
        "sweep.runs, sweep.settings, sweep.figure('speedup').to_dict(), sweep._repr_html_()\n"
        "plan = accelsweep.plan(['experiment=quickstart'], name='mine')\n"
        "plan._repr_html_()\n"
        "print(plan, [name for name in ('torch', 'lightning', 'mlflow', 'snakemake') if name in sys.modules])"
    )
    last = said(code, tmp_path)
    assert last.startswith("<SweepPlan mine: "), "the plan's own package was not imported before"
    assert last.endswith("> []")
    assert [path.name for path in tmp_path.iterdir()] == ["sweeps"]


def test_plan_is_the_function_even_after_its_package_was_imported(tmp_path):
    """Where it was not, the test above looks."""
    code = "import accelsweep.planning.plan; import accelsweep; "
    code += "print(accelsweep.plan(['experiment=quickstart'], name='mine'))"
    assert said(code, tmp_path).startswith("<SweepPlan mine: ")
    assert list(tmp_path.iterdir()) == []


def test_a_plan_has_settings_refusals_and_the_commands_summary(tmp_path):
    plan = accelsweep.plan(["experiment=quickstart", "accelerator=cpu,cuda", "repeats=3"], home=tmp_path)
    assert plan.name == "quickstart"
    assert plan.settings["baseline"].sum() == 1
    assert plan.settings["wanted_runs"].sum() == plan.table.wanted
    assert (plan.settings["runs_left"] == plan.settings["wanted_runs"]).all(), "nothing is measured yet"
    assert len(plan.settings) == len(plan.table.settings)
    assert len(plan.refused) == len(plan.table.unsupported) + len(plan.table.excluded)
    assert any(line.startswith("3 blocks (3 new)") for line in plan.summary)
    assert "3 blocks (3 new)" in plan._repr_html_()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("experiment=quickstart", r"write \['experiment=quickstart'\]"),
        (["experiment=quikstart"], "quikstart"),
        (["batchsize=3"], "batchsize"),
    ],
)
def test_wrong_input_is_an_input_error_that_names_it(tmp_path, wrong, message):
    for call in (accelsweep.plan, accelsweep.run):
        with pytest.raises(InputError, match=message):
            call(wrong, home=tmp_path)
    assert list(tmp_path.iterdir()) == []


USER = """\
import altair
import pandas
from typing_extensions import assert_type

import accelsweep
import accelsweep.planning.plan

sweep = accelsweep.open(["sweeps/a", "kept.zip"])
assert_type(sweep, accelsweep.OpenedSweep)
assert_type(sweep.runs, pandas.DataFrame)
assert_type(sweep.settings, pandas.DataFrame)
assert_type(sweep.steps("a"), pandas.DataFrame)
assert_type(sweep.figure("speedup"), altair.LayerChart)
assert_type(sweep.findings.baseline, str | None)
assert_type(accelsweep.plan(["experiment=quickstart"]), accelsweep.SweepPlan)
assert_type(accelsweep.run(["experiment=quickstart"], jobs=1), accelsweep.OpenedSweep)
accelsweep.open(3)
accelsweep.run(["experiment=quickstart"], job=1)
accelsweep.nonsense
"""


@pytest.mark.long  # `make check` types these names in src; only here a stranger types them
@pytest.mark.real
def test_a_type_checker_knows_every_public_name(tmp_path):
    (tmp_path / "user.py").write_text(USER)
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), "user.py"]
    checked = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    errors = [line for line in checked.stdout.splitlines() if "error:" in line]
    assert [line.split(":")[1] for line in errors] == ["17", "18", "19"], checked.stdout
