"""Claims are read strictly by the plan, steer the report only, and travel in the manifest."""

import pytest

from accelsweep.errors import InputError
from accelsweep.features.claims.model import claims_in
from accelsweep.planning.plan import make_plan

CLAIMS = """\
# @package _global_
hydra: {{sweeper: {{params: {{batch_size: "8,64"}}}}}}
report:
  claims:
    - id: batch_size
      statement: batches of 8 take 3x the time of batches of 64
      source: a forum
      figures:
        - claimed: {claimed}
          cell: {{batch_size: 64}}
          against: {{batch_size: 8}}
          {more}
"""


def planned(home, own_conf, claimed="3.0", more=""):
    own_conf({"experiment/claim.yaml": CLAIMS.format(claimed=claimed, more=more)})
    return make_plan(home, ["experiment=claim", "accelerator=cpu"]).manifest


def test_a_claim_stands_in_the_manifest_and_changes_no_cell(home, own_conf):
    manifest = planned(home, own_conf)
    (claim,) = claims_in(manifest.settings.report)
    (figure,) = claim.figures
    assert (claim.id, figure.claimed, figure.cell) == ("batch_size", 3.0, {"batch_size": 64})
    bare = make_plan(home, ["experiment=claim", "accelerator=cpu", "report.claims=[]"]).manifest
    assert [cell.name for cell in bare.cells] == [cell.name for cell in manifest.cells]


@pytest.mark.parametrize(
    ("claimed", "more", "words"),
    [
        ("-1", "", ["report.claims.0.figures.0.claimed=-1", "more than 0"]),
        ("many", "", ["report.claims.0.figures.0.claimed='many'", "`at least 3`"]),
        ("more then 1", "", ["report.claims.0.figures.0.claimed='more then 1'"]),
        ("3 to 2", "", ["report.claims.0.figures.0.claimed='3 to 2'", "lower end"]),
        ("3", "tolerance: 2", ["report.claims.0.figures.0.tolerance=2"]),
        ("3", "sauce: x", ["unknown key 'report.claims.0.figures.0.sauce'"]),
        ("3", "metric: ''", ["report.claims.0.figures.0.metric"]),
        ("3", "metric: a + b", ["report.claims.0.figures.0.metric='a + b'", "joined by * and /"]),
        ("3", "metric: a / 0", ["report.claims.0.figures.0.metric='a / 0'"]),
        ("3", "metric: outcome.exploded", ["report.claims.0.figures.0", "is no outcome; there are: measured"]),
        ("3", "metric: outcome.diverged", ["report.claims.0.figures.0", "takes no `against`"]),
        ("3", "unit: s", ["report.claims.0.figures.0", "a ratio has `against` and no `unit`"]),
    ],
)
def test_a_malformed_claim_is_refused_with_its_key(home, own_conf, claimed, more, words):
    with pytest.raises(InputError) as caught:
        planned(home, own_conf, claimed, more)
    assert [word for word in words if word not in str(caught.value)] == []


def test_two_claims_of_one_id_are_refused(home):
    claim = "{id: a, statement: b, source: c, figures: [{cell: {batch_size: 32}, unit: s}]}"
    with pytest.raises(InputError, match="two claims have the id 'a'"):
        make_plan(home, [f"++report.claims=[{claim},{claim}]"])
