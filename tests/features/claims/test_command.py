"""`accelsweep claims`: every claim has a row; those that fit the budget are run, the others say why not."""

import csv

import pytest

from accelsweep.driver.sweep_lock import lock_sweep
from accelsweep.errors import EXIT_INCOMPLETE, EXIT_OK, AccelsweepError, InputError
from accelsweep.features.claims.command import available_claims, run_claims
from accelsweep.files import LEASE_FOLDER_VARIABLE
from accelsweep.records.layout import SweepFolder

OWN = """\
# @package _global_
hydra: {sweeper: {params: {batch_size: "256,32"}}}
accelerator: cpu
measure: {warmup_steps: 3, min_steps: 20, min_seconds: 0, probe_steps: null, quality_samples: null}
repeats: 3
report:
  claims:
    - id: own
      statement: a batch of 256 is a hundred thousand times as fast as one of 32
      source: made up
      figures: [{claimed: 100000, setting: {batch_size: 256}, against: {batch_size: 32}}]
"""


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A working directory with a claim of the user's own."""
    monkeypatch.setenv(LEASE_FOLDER_VARIABLE, str(tmp_path / "leases"))
    folder = tmp_path / "conf" / "experiment" / "claims"
    folder.mkdir(parents=True)
    (folder / "own.yaml").write_text(OWN)
    return tmp_path


def verdicts(home):
    with (home / "reports" / "claims" / "claims.csv").open() as file:
        return {(row["id"], row["figure"], row["analogue"]): row["verdict"] for row in csv.DictReader(file)}


def test_the_users_own_claims_are_available_like_the_shipped_ones(home):
    assert {"own", "vgg16", "dlbench"} <= set(available_claims(home))


def test_an_unknown_claim_is_refused_with_the_nearest_one(home):
    with pytest.raises(InputError, match=r"no claim 'vg16' \(did you mean 'vgg16'\?\)"):
        run_claims(home, ["vg16"], 1.0)


def test_a_second_command_that_tests_claims_is_refused_with_the_process_of_the_first(home):
    first = lock_sweep(SweepFolder(home, "claims"))
    with first, pytest.raises(AccelsweepError, match="are being tested by process"):
        run_claims(home, [], 0.0)


@pytest.fixture
def three(home, monkeypatch):
    """A claim that another driver runs, one that cannot be planned and one that works, without the shipped ones."""
    folder = home / "conf" / "experiment" / "claims"
    (folder / "wrong.yaml").write_text(OWN.replace("repeats: 3", "repeats: few"))
    (folder / "well.yaml").write_text(OWN.replace("id: own", "id: well"))
    monkeypatch.setattr("accelsweep.features.claims.command.available_claims", lambda _home: ["own", "well", "wrong"])
    return home


@pytest.mark.real
def test_a_claim_that_fails_or_is_being_run_elsewhere_does_not_affect_the_others(three, capsys):
    running = SweepFolder(three, "claims-own")
    with lock_sweep(running):
        before = sorted(running.root.rglob("*"))
        assert run_claims(three, ["well"], 0.0) == EXIT_INCOMPLETE
        assert sorted(running.root.rglob("*")) == before
    assert set(verdicts(three)) == {("well", "", "")}
    page = (three / "reports" / "claims" / "report.md").read_text()
    told = capsys.readouterr()
    for text in (page.replace("\\", ""), told.err):
        assert "is already being run by process" in text
        assert "repeats" in text
    assert "claims-own" in told.out


@pytest.mark.real
@pytest.mark.long  # only here a claim is run and judged for real; the test above covers the other rows
def test_a_claim_is_run_and_judged_and_the_others_stay_as_rows(home):
    """Tests that run at the same time may disturb it, which is a verdict too."""
    assert run_claims(home, ["own"], 5.0) == EXIT_OK
    found = verdicts(home)
    judged = found.pop(("own", "", ""))
    assert judged in ("less than claimed", "disturbed")
    assert {key[0] for key in found} == set(available_claims(home)) - {"own"}
    assert set(found.values()) == {"not run", "not testable here"}
    (waiting,) = (
        line for line in (home / "reports" / "claims" / "report.md").read_text().splitlines() if "claims/vgg16" in line
    )
    assert "it was not selected" in waiting
    assert not list(home.rglob("fork_server.log")), "it said nothing"


@pytest.mark.real
@pytest.mark.long  # only here the runs of a claim really crash; other failures are tested above
def test_a_claim_whose_runs_crash_is_a_failure_and_says_where_to_look(home, monkeypatch, capsys):
    monkeypatch.setattr("accelsweep.features.claims.command.available_claims", lambda _home: ["own"])
    (home / "broken.py").write_text("import torch\n\n\nclass Net(torch.nn.Module):\n    pass\n\n\nNet()[0]\n")
    experiment = home / "conf" / "experiment" / "claims" / "own.yaml"
    crashing = "model: {_target_: broken.Net}\nlimits: {retries: 0}\nrepeats: 1"
    experiment.write_text(OWN.replace("repeats: 3", crashing))
    assert run_claims(home, ["own"], 5.0) == EXIT_INCOMPLETE
    assert "claims-own failed: some of its runs have no result (accelsweep runs claims-own)" in capsys.readouterr().err
