"""Claims are validated by the plan, change no setting, and are stored in the manifest with imported rows resolved."""

import re
from pathlib import Path

import pytest
import yaml

from accelsweep.errors import InputError
from accelsweep.features.claims.model import ClaimFigure, ClaimsOptions, claims_in
from accelsweep.features.imports.readers import external_file, read_published
from accelsweep.installation import shipped_root
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
          setting: {{batch_size: 64}}
          against: {{batch_size: 8}}
          {more}
"""


def planned(home, own_conf, claimed="3.0", more=""):
    own_conf({"experiment/claim.yaml": CLAIMS.format(claimed=claimed, more=more)})
    return make_plan(home, ["experiment=claim", "accelerator=cpu"]).manifest


def test_a_claim_is_stored_in_the_manifest_and_changes_no_setting(home, own_conf):
    manifest = planned(home, own_conf)
    (claim,) = claims_in(manifest.options.report)
    (figure,) = claim.figures
    assert (claim.id, figure.claimed, figure.setting) == ("batch_size", 3.0, {"batch_size": 64})
    bare = make_plan(home, ["experiment=claim", "accelerator=cpu", "report.claims=[]"]).manifest
    assert [setting.name for setting in bare.settings] == [setting.name for setting in manifest.settings]


@pytest.mark.parametrize(
    ("claimed", "more", "words"),
    [
        ("-1", "", ["report.claims.0.figures.0.claimed=-1", "positive"]),
        ("many", "", ["report.claims.0.figures.0.claimed='many'", "`at least 3`"]),
        ("more then 1", "", ["report.claims.0.figures.0.claimed='more then 1'"]),
        ("3 to 2", "", ["report.claims.0.figures.0.claimed='3 to 2'", "lower end"]),
        ("3", "tolerance: 2", ["report.claims.0.figures.0.tolerance=2"]),
        ("3", "sauce: x", ["unknown key 'report.claims.0.figures.0.sauce'"]),
        ("3", "metric: ''", ["report.claims.0.figures.0.metric"]),
        ("3", "metric: a + b", ["report.claims.0.figures.0.metric='a + b'", "joined by * and /"]),
        ("3", "metric: a / 0", ["report.claims.0.figures.0.metric='a / 0'"]),
        ("3", "metric: outcome.exploded", ["report.claims.0.figures.0", "is not an outcome; there are: measured"]),
        ("3", "metric: outcome.diverged", ["report.claims.0.figures.0", "leave out `against`"]),
        ("3", "unit: s", ["report.claims.0.figures.0", "a ratio needs `against` and no `unit`"]),
    ],
)
def test_a_malformed_claim_is_refused_with_its_key(home, own_conf, claimed, more, words):
    with pytest.raises(InputError) as caught:
        planned(home, own_conf, claimed, more)
    assert [word for word in words if word not in str(caught.value)] == []


def test_two_claims_of_one_id_are_refused(home):
    claim = "{id: a, statement: b, source: c, figures: [{setting: {batch_size: 32}, unit: s}]}"
    with pytest.raises(InputError, match="two claims have the id 'a'"):
        make_plan(home, [f"++report.claims=[{claim},{claim}]"])


TIMM_FILE = "benchmark-train-amp-nhwc-pt112-cu113-rtx3090.csv"
ROWS = (
    "model,train_samples_per_sec,train_step_time,train_batch_size,train_img_size,param_count\n"
    "resnet50,1218.0,420.1,512,224,25.56\n"
    "resnet18,2500.0,200.1,512,224,11.69\n"
    "resnet18,1500.0,200.1,256,288,11.69\n"
)
QUOTING = """# @package _global_
report:
  claims:
    - id: rate
      statement: a small network is fast
      source: somebody
      figures:
        - {name: one, setting: {batch_size: 32}, unit: UNIT, published: {RTX 3090: {rows: timm-theirs, WANTED}, me: 3}}
"""


@pytest.fixture
def imported(home: Path) -> None:
    """Imported rows in the working directory."""
    path = home / TIMM_FILE
    path.write_text(ROWS)
    read_published(path, "timm", None).write(external_file(home, "timm-theirs"))


def figure_of(home: Path, own_conf, wanted: str, unit: str = "1/s") -> ClaimFigure:
    own_conf({"experiment/claimed.yaml": QUOTING.replace("WANTED", wanted).replace("UNIT", unit)})
    return claims_in(make_plan(home, ["experiment=claimed"]).manifest.options.report)[0].figures[0]


def test_an_imported_row_becomes_a_number_labelled_with_its_source(home, imported, own_conf):
    figure = figure_of(home, own_conf, "model: resnet50")
    label = "RTX 3090 (timm: 1 x rtx3090, amp, batch 512, 224 pixels, layout nhwc, torch 1.12)"
    assert figure.published == {label: 1218.0, "me": 3.0}
    assert figure.published_values == figure.published


@pytest.mark.parametrize(
    ("wanted", "unit", "words"),
    [
        ("model: resnet18", "1/s", "2 rows of timm-theirs have model=resnet18, such as"),
        ("model: resnet5", "1/s", "no row of timm-theirs has model=resnet5 (did you mean 'resnet50'?)"),
        ("model: resnet50, batch_size: 8", "1/s", "has model=resnet50, batch_size=8"),
        ("model: resnet50", "s", "is in 1/s, the figure in s"),
        ("model: resnet50, batch: 8", "1/s", "batch"),
    ],
)
def test_an_ambiguous_query_or_another_unit_is_refused(home, imported, own_conf, wanted, unit, words):
    with pytest.raises(InputError) as caught:
        figure_of(home, own_conf, wanted, unit)
    assert words in str(caught.value)


def test_a_claim_whose_rows_were_not_imported_states_the_command(home, own_conf):
    with pytest.raises(InputError, match="accelsweep import FILE --from SOURCE"):
        figure_of(home, own_conf, "model: resnet50")


def test_a_figure_on_an_unknown_board_is_refused(home: Path, own_conf, imported: None):
    text = QUOTING.replace("UNIT, published: {RTX 3090: {rows: timm-theirs, WANTED}, me: 3}", "1/s, projected: l44")
    own_conf({"experiment/claimed.yaml": text})
    with pytest.raises(InputError, match=r"no board 'l44' \(did you mean 'l4'\?\)"):
        make_plan(home, ["experiment=claimed"])


ROOT = shipped_root()
PAGE = (ROOT / "docs" / "claims.md").read_text()
EXAMPLES = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)


def test_the_documentation_lists_every_shipped_claim():
    names = {path.stem for path in (ROOT / "conf" / "experiment" / "claims").glob("*.yaml")}
    assert set(re.findall(r"(?m)^\| `(\w+)` \| (?!when)", PAGE)) & names == names


def test_the_example_in_the_documentation_is_a_claim():
    example, _ = EXAMPLES
    stated = yaml.safe_load(example.replace("figures: [...]", "figures: [{setting: {batch_size: 8}, unit: s}]"))
    (claim,) = ClaimsOptions.model_validate(stated["report"]).claims
    assert [figure.claimed_text for figure in claim.figures] == ["3x", "no figure"]


def test_the_documented_example_of_imported_rows_is_a_figure():
    _, example = EXAMPLES
    (figure,) = (ClaimFigure.model_validate(one) for one in yaml.safe_load(example))
    assert [one.rows for one in figure.published.values()] == [
        "timm-benchmark-train-amp-nhwc-pt112-cu113-rtx3090",
        "lambda-fp16",
    ]
