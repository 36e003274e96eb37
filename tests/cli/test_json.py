"""`--json` prints one object for scripts on standard output; everything else goes elsewhere."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import replace

import pytest
from example_sweep import build_example_sweep
from resnet50 import RESNET50

from accelsweep import cli
from accelsweep.cli.doctor import examine
from accelsweep.cli.runs import ListedRun, RunsAnswer, print_runs
from accelsweep.cli.status import print_status
from accelsweep.driver.finalize import finalize
from accelsweep.driver.json_output import all_answers
from accelsweep.driver.plan_preview import preview_plan
from accelsweep.driver.request import Request
from accelsweep.records.findings import Findings
from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import Manifest
from accelsweep.records.run_record import Record
from accelsweep.results import Outcome

pytestmark = pytest.mark.heavy

COMMANDS = {
    "plan": ["experiment=quickstart", "accelerator=cpu", "--name", "next"],
    "status": [],
    "runs": ["example"],
    "compare": ["example", "example"],
    "project": ["example"],
    "advise": ["example", "--epochs", "9", "--samples", "1000"],
    "doctor": [],
}
MEASURING = ("ab", "fleet", "profile")
"""Their answers need measured runs: tests/end_to_end, tests/features/fleet and tests/features/profile read them."""

OF_SEVERAL = ("history",)
"""Its answer needs several sweeps: tests/features/history reads it."""

HEAD = ["accelsweep", "format", "version"]


@pytest.fixture
def typed(monkeypatch, capfd):
    """A function that carries out a command line in this process: an interpreter imports for a second before it."""
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")  # as `main` sets it

    def go(*arguments, cwd):
        monkeypatch.chdir(cwd)
        monkeypatch.setattr(sys, "argv", ["accelsweep", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        said = capfd.readouterr()
        return subprocess.CompletedProcess(arguments, ended.value.code or 0, said.out, said.err)

    return go


@pytest.fixture(scope="module")
def finished_example(tmp_path_factory):
    """The example sweep with its findings and its report."""
    folder = build_example_sweep(tmp_path_factory.mktemp("finished"))
    finalize(folder)
    return folder


def told(capsys):
    captured = capsys.readouterr()
    assert captured.err == ""
    return json.loads(captured.out)


def test_every_answer_has_a_command():
    assert sorted(answer.kind for answer in all_answers()) == sorted([*MEASURING, *OF_SEVERAL, *COMMANDS])


@pytest.mark.parametrize("command", COMMANDS)
def test_standard_output_is_one_object_of_the_documented_form(command, example_sweep, typed):
    for path in example_sweep.root.glob("runs/*/record.json"):  # what advice and projections start from
        Record.read(path).model_copy(update={"traits": RESNET50}).write(path)
    done = typed(command, *COMMANDS[command], "--json", cwd=example_sweep.home)
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert list(found)[:3] == HEAD
    assert (found["accelsweep"], found["format"]) == (command, 1)
    answer = next(answer for answer in all_answers() if answer.kind == command)
    rest = {key: value for key, value in found.items() if key not in HEAD}
    assert answer.model_validate(rest).model_dump(mode="json") == rest


def test_imports_print_nothing_besides_the_answer(tmp_path):
    command = [sys.executable, "-m", "accelsweep", "plan", *COMMANDS["plan"], "--json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert list(json.loads(done.stdout))[:3] == HEAD


def test_a_plan_contains_what_its_table_shows(tmp_path, capsys):
    preview_plan(tmp_path, Request(("experiment=quickstart",)), keep_profile=True, as_json=True)
    found = told(capsys)
    assert [setting["label"] for setting in found["settings"] if setting["baseline"]] == ["batch 32, 32-bit, 1 process"]
    assert found["settings"][0]["axes"]["batch_size"] == 32
    estimate = found["estimate"]
    assert estimate["minutes"]["least"] < estimate["minutes"]["expected"] < estimate["minutes"]["most"]
    assert (estimate["usd"], estimate["usd_reason"]) == (None, "no prices are given")
    assert list(tmp_path.iterdir()) == []


def test_status_contains_the_headline_and_the_report_of_a_finished_sweep(finished_example, capsys):
    print_status(finished_example.home, "example", as_json=True)
    (state,) = told(capsys)["sweeps"]
    assert state["report"] == "reports/example/index.html"
    assert state["recommendation"] == Findings.read(finished_example.findings).recommendation.headline
    assert not state["report_outdated"]
    assert state["planned"] == state["settled"] + state["remaining"] == 24
    assert sum(state["outcomes"].values()) == 23, "one run has left no record"


def test_a_report_from_before_the_last_run_is_outdated(finished_example, tmp_path, capsys):
    shutil.copytree(finished_example.home, tmp_path, dirs_exist_ok=True)
    folder = SweepFolder(tmp_path, "example")
    run = next(run for run in Manifest.read(folder.manifest).wanted_runs() if folder.record(run).exists())
    folder.record(run).unlink()
    print_status(tmp_path, "example", as_json=True)
    assert told(capsys)["sweeps"][0]["report_outdated"]


def test_a_sweep_that_cannot_be_read_is_in_the_answer_and_on_standard_error(example_sweep, capsys):
    shutil.copytree(example_sweep.root, SweepFolder(example_sweep.home, "torn").root)
    SweepFolder(example_sweep.home, "torn").manifest.write_text("{")
    assert print_status(example_sweep.home, None, as_json=True) == 1
    captured = capsys.readouterr()
    found = json.loads(captured.out)
    assert [state["sweep"] for state in found["sweeps"]] == ["example"]
    assert [one["sweep"] for one in found["unreadable"]] == ["torn"]
    assert captured.err.startswith("accelsweep: error: torn: damaged: ")
    assert captured.err.count("\n") == 1


def test_runs_contain_rates_doubts_and_reasons(example_sweep, capsys):
    print_runs(example_sweep.home, "example", None, as_json=True)
    found = told(capsys)
    assert (found["rate_metric"], found["rate_unit"]) == ("samples_per_second", "1/s")
    rows = {row["run"]: row for row in found["runs"] if row["run"]}
    for run in Manifest.read(example_sweep.manifest).wanted_runs():
        if not example_sweep.record(run).exists():
            assert rows[run]["outcome"] == "not_run"
            continue
        record = Record.read(example_sweep.record(run))
        measured = record.outcome is Outcome.measured
        assert rows[run]["rate"] == (record.metrics["samples_per_second"].value if measured else None)
        assert [doubt["code"] for doubt in rows[run]["doubts"]] == [doubt.code for doubt in record.doubts]
        assert (rows[run]["reason"] is None) == measured
    assert {row["outcome"] for row in found["runs"] if row["run"] is None} == {"unsupported"}


def test_a_failed_gate_names_its_settings_and_exits_with_3(example_sweep, typed):
    slow = SweepFolder(example_sweep.home, "slow")
    shutil.copytree(example_sweep.root, slow.root)
    for path in slow.root.glob("runs/*/record.json"):
        record = Record.read(path)
        if (rate := record.metrics.get("samples_per_second")) is not None and rate.value is not None:
            halved = replace(rate, value=rate.value / 2)
            record.model_copy(update={"metrics": {**record.metrics, "samples_per_second": halved}}).write(path)
    manifest = Manifest.read(slow.manifest)
    manifest.model_copy(update={"sweep": "slow"}).write(slow.manifest)
    done = typed("compare", "example", "slow", "--fail-if", "slower:2%", "--json", cwd=example_sweep.home)
    assert (done.returncode, done.stderr) == (3, "")
    found = json.loads(done.stdout)
    assert found["fail_if"] == "slower:2%"
    slower = [row["setting"] for row in found["rows"] if row["verdict"] == "slower"]
    assert slower
    assert found["failing"] == slower


@pytest.mark.parametrize(
    "arguments",
    [
        ["status", "nothing"],
        ["runs", "nothing"],
        ["compare", "a", "b"],
        ["plan", "experiment=nothing"],
        ["plan", "--cfg", "job"],
    ],
)
def test_wrong_input_is_one_line_on_standard_error(arguments, tmp_path, typed):
    done = typed(*arguments, "--json", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("accelsweep: wrong input: ")
    assert done.stderr.count("\n") == 1


def test_ctrl_c_leaves_no_partial_answer(tmp_path, monkeypatch, capsys):
    def interrupted(home):
        raise KeyboardInterrupt
        yield home

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")  # as `main` sets it
    monkeypatch.setattr("accelsweep.cli.doctor.machine_now", interrupted)
    monkeypatch.setattr(sys, "argv", ["accelsweep", "doctor", "--json"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 130
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("text", ["\x1b[2J\x7f\x9b\u202e", "\ud800", "é 東", 'quote " and \\'])
def test_no_label_breaks_the_form_or_reaches_the_terminal(text, capsys):
    row = ListedRun(run="a-r0", setting="a", label=text, axes={"key": text}, outcome=Outcome.not_run)
    from accelsweep.driver.console import say

    say(RunsAnswer(sweep="s", rate_metric=None, rate_unit=None, runs=(row,)).text())
    shown = capsys.readouterr().out
    assert set(shown) <= {"\n", *map(chr, range(32, 127))}
    (read,) = json.loads(shown)["runs"]
    assert (read["label"], read["axes"]) == (text, {"key": text})


def test_doctor_says_whether_the_machine_is_able(tmp_path, capsys):
    code = examine(tmp_path, as_json=True)
    found = told(capsys)
    assert found["able"] == (code == 0)
    assert found["able"] == all(check["ok"] is not False for check in found["checks"])
    assert {"free disk", "free memory", "load", "clock", "other work"} <= {check["what"] for check in found["checks"]}
    assert all(check["remedy"] for check in found["checks"] if check["ok"] is False)
