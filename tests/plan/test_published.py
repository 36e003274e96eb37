"""Claims name rows of others; the plan holds their values with source and circumstances."""

from pathlib import Path

import pytest

from accelsweep.errors import InputError
from accelsweep.features.claims.model import ClaimFigure, claims_in
from accelsweep.features.imports.readers import external_file, read_published
from accelsweep.planning.plan import make_plan

NAME = "benchmark-train-amp-nhwc-pt112-cu113-rtx3090.csv"
ROWS = (
    "model,train_samples_per_sec,train_step_time,train_batch_size,train_img_size,param_count\n"
    "resnet50,1218.0,420.1,512,224,25.56\n"
    "resnet18,2500.0,200.1,512,224,11.69\n"
    "resnet18,1500.0,200.1,256,288,11.69\n"
)
CLAIM = """# @package _global_
report:
  claims:
    - id: rate
      statement: a small network is fast
      source: somebody
      figures:
        - {name: images, cell: {batch_size: 32}, unit: UNIT, published: {RTX 3090: {rows: timm-theirs, WANTED}, me: 3}}
"""


@pytest.fixture
def theirs(home: Path) -> None:
    """Rows of others in the user's folder."""
    path = home / NAME
    path.write_text(ROWS)
    read_published(path, "timm", None).write(external_file(home, "timm-theirs"))


def planned(home: Path, own_conf, wanted: str, unit: str = "1/s") -> ClaimFigure:
    own_conf({"experiment/claimed.yaml": CLAIM.replace("WANTED", wanted).replace("UNIT", unit)})
    return claims_in(make_plan(home, ["experiment=claimed"]).manifest.settings.report)[0].figures[0]


def test_a_claim_shows_a_row_as_a_number_with_its_source_and_circumstances(home, theirs, own_conf):
    figure = planned(home, own_conf, "model: resnet50")
    label = "RTX 3090 (timm: 1 x rtx3090, amp, batch 512, 224 pixels, layout nhwc, torch 1.12)"
    assert figure.published == {label: 1218.0, "me": 3.0}
    assert figure.others == figure.published


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
def test_a_row_that_is_not_the_only_one_or_of_another_unit_is_refused(home, theirs, own_conf, wanted, unit, words):
    with pytest.raises(InputError) as caught:
        planned(home, own_conf, wanted, unit)
    assert words in str(caught.value)


def test_a_claim_whose_rows_were_not_imported_says_how(home, own_conf):
    with pytest.raises(InputError, match="accelsweep import FILE --from SOURCE"):
        planned(home, own_conf, "model: resnet50")


def test_a_figure_on_a_board_that_is_not_known_is_refused(home: Path, own_conf, theirs: None):
    text = CLAIM.replace("UNIT, published: {RTX 3090: {rows: timm-theirs, WANTED}, me: 3}", "1/s, projected: l44")
    own_conf({"experiment/claimed.yaml": text})
    with pytest.raises(InputError, match=r"no board 'l44' \(did you mean 'l4'\?\)"):
        make_plan(home, ["experiment=claimed"])
