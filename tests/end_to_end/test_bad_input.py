"""Bad input gets one clear message and exit code 2 before anything is written; broken user code costs its own runs."""

import sys

import pytest
from unusual_home import CASES, HOSTILE, records_by_case

from accelsweep import cli
from accelsweep.records.layout import SweepFolder
from accelsweep.results import Outcome

pytestmark = pytest.mark.real


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["experiment=tiny", "batchsize=8"], ["batchsize", "batch_size"]),
        (["experiment=tyni"], ["tyni", "tiny"]),
        (["experiment=tiny", "model=smal_cnn"], ["smal_cnn", "small_cnn"]),
        (["experiment=tiny", "precision=bf16-mixt"], ["bf16-mixt", "bf16-mixed"]),
        (["experiment=tiny", "batch_size=many"], ["batch_size", "many"]),
        (["experiment=tiny", "--name", "../elsewhere"], ["../elsewhere", "--name elsewhere"]),
        (["experiment=tiny", "--profile", "nowhere"], ["nowhere", "local"]),
        (["experiment=tiny", "--time-budget", "soon"], ["--time-budget", "30m"]),
        (["experiment=tiny", "batch_size=[1"], ["batch_size"]),
        (["experiment=tiny", "analysis.resolution=0"], ["analysis.resolution=0", "more than 0"]),
        (["experiment=tiny", "repeats=auto", "--add-repeats", "1"], ["repeats=auto", "--add-repeats 1"]),
        (
            ["experiment=tiny", "repeats=auto", "measure.min_seconds=9", "--time-budget", "50s"],
            ["too short for the pilot", "6 runs take at least 54 s", "repeats=N"],
        ),
    ],
)
def test_a_mistake_exits_with_2_names_the_remedy_and_writes_nothing(home, monkeypatch, capfd, arguments, words):
    """The whole command line in this process: starting Python for each mistake would cost a second of imports."""
    before = set(home.files())
    monkeypatch.chdir(home.path)
    monkeypatch.setattr(sys, "argv", ["accelsweep", "run", *arguments])
    told = {"COLUMNS": "200", "ACCELSWEEP_LEASES": home.environment["ACCELSWEEP_LEASES"]}
    for name, value in {**told, "MLFLOW_DISABLE_TELEMETRY": "true"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    said = "".join(capfd.readouterr())
    assert ended.value.code == 2, said
    for word in words:
        assert word in said
    assert set(home.files()) == before


def test_a_mistake_shows_no_traceback_where_a_user_types_it(home):
    result = home.accelsweep("run", "experiment=tiny", "batchsize=8")
    assert result.returncode == 2, result.stdout
    assert "batch_size" in result.stdout
    assert "Traceback" not in result.stdout


def test_broken_user_code_shows_their_traceback_and_costs_only_its_own_runs(unusual):
    home, ended = unusual
    assert ended.returncode == 1, ended.stdout
    records = records_by_case(home)
    outcomes = {case: record.outcome for case, record in records.items()}
    crashed = dict.fromkeys(("broken", "leaky"), Outcome.crashed)
    assert outcomes == dict.fromkeys(CASES, Outcome.measured) | crashed
    assert "the user's own mistake" in records["broken"].reason
    folder = SweepFolder(home.path, "unusual")
    log = (folder.run(records["broken"].run) / "run.log").read_text()
    assert "mine.py" in log
    assert "the user's own mistake" in log
    assert (folder.report / "index.html").exists()
    assert "the user's own mistake" in (folder.report / "report.md").read_text()


def test_hostile_values_break_no_shell_command(unusual):
    home, _ = unusual
    assert not list(home.path.rglob("pwned"))
    assert {record.config.raw["remark"] for record in records_by_case(home).values()} == {HOSTILE}
