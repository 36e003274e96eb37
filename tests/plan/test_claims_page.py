"""What docs/claims.md says of claims is so: the shipped ones are listed, and its example is a claim."""

import re

import yaml

from accelsweep.features.claims.model import ClaimFigure, ClaimsOptions
from accelsweep.installation import shipped_root

ROOT = shipped_root()
PAGE = (ROOT / "docs" / "claims.md").read_text()
EXAMPLES = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)


def test_the_page_lists_every_shipped_claim():
    names = {path.stem for path in (ROOT / "conf" / "experiment" / "claims").glob("*.yaml")}
    assert set(re.findall(r"(?m)^\| `(\w+)` \| (?!when)", PAGE)) & names == names


def test_the_pages_example_is_a_claim():
    example, _ = EXAMPLES
    stated = yaml.safe_load(example.replace("figures: [...]", "figures: [{cell: {batch_size: 8}, unit: s}]"))
    (claim,) = ClaimsOptions.model_validate(stated["report"]).claims
    assert [figure.words for figure in claim.figures] == ["3x", "no figure"]


def test_the_pages_example_of_rows_of_others_is_a_figure():
    _, example = EXAMPLES
    (figure,) = (ClaimFigure.model_validate(one) for one in yaml.safe_load(example))
    assert [one.rows for one in figure.published.values()] == [
        "timm-benchmark-train-amp-nhwc-pt112-cu113-rtx3090",
        "lambda-fp16",
    ]
