"""`accelsweep claims`: every known claim gets a row, those that fit the budget are run, others say why not."""

import csv

import pytest

from accelsweep.commands.claims import known_claims, put_to_the_test
from accelsweep.core.errors import EXIT_OK, InputError

OWN = """\
# @package _global_
hydra: {sweeper: {params: {batch_size: "256,32"}}}
accelerator: cpu
measure: {warmup_steps: 3, min_steps: 20, min_seconds: 0.2, probe_steps: null, quality_samples: null}
repeats: 3
report:
  claims:
    - id: own
      statement: a batch of 256 is a hundred thousand times as fast as one of 32
      source: made up
      figures: [{claimed: 100000, cell: {batch_size: 256}, against: {batch_size: 32}}]
"""


@pytest.fixture
def home(tmp_path):
    """A working directory with a claim of the user's own."""
    folder = tmp_path / "conf" / "experiment" / "claims"
    folder.mkdir(parents=True)
    (folder / "own.yaml").write_text(OWN)
    return tmp_path


def verdicts(home):
    with (home / "reports" / "claims" / "claims.csv").open() as file:
        return {(row["id"], row["figure"], row["analogue"]): row["verdict"] for row in csv.DictReader(file)}


def test_the_users_own_claims_are_known_beside_the_shipped_ones(home):
    assert {"own", "vgg16", "dlbench"} <= set(known_claims(home))


def test_an_unknown_claim_is_refused_with_the_nearest_one(home):
    with pytest.raises(InputError, match=r"no claim 'vg16' \(did you mean 'vgg16'\?\)"):
        put_to_the_test(home, ["vg16"], 1.0)


@pytest.mark.real
def test_a_claim_is_run_and_judged_and_the_others_stay_as_rows(home):
    assert put_to_the_test(home, ["own"], 5.0) == EXIT_OK
    found = verdicts(home)
    assert found[("own", "", "")] == "less than claimed"
    assert {key[0] for key in found} == set(known_claims(home))
    assert set(found.values()) == {"less than claimed", "not run", "not testable here"}
    (waiting,) = (
        line for line in (home / "reports" / "claims" / "report.md").read_text().splitlines() if "claims/vgg16" in line
    )
    assert "it was not asked for" in waiting
