"""Claims put to the test: agreeing, contradicted, undecided, and not testable here with the reason. None is dropped."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

from accelsweep.analyse.analyse import analyse
from accelsweep.core.claims import Claim, ClaimVerdict, ReportSettings
from accelsweep.core.findings import ClaimFinding

SMALL, LARGE = {"accelerator": "cpu", "batch_size": 8}, {"accelerator": "cpu", "batch_size": 64}
GPU = {"accelerator": "cuda", "batch_size": 64}


def claim(**changes: Any) -> Claim:
    """A batch of 64 is three times as fast as one of 8."""
    stated: dict[str, Any] = {
        "id": "batch_size",
        "claim": "batches of 8 take 3x the time of batches of 64",
        "source": "a forum",
        "claimed": 3.0,
        "cell": {"accelerator": "cpu", "batch_size": 64},
        "against": {"batch_size": 8},
    }
    return Claim.model_validate(stated | changes)


@pytest.fixture
def judged(simulated: ModuleType):
    """Judge one claim on a sweep whose larger batch is `ratio` times as fast, with `noise` between its three blocks."""

    def judge(stated: Claim, ratio: float = 3.0, noise: float = 0.001, **fields: Any) -> ClaimFinding:
        rows = []
        for block in range(3):
            rows.append(simulated.make_run(SMALL, block, 100.0, **fields))
            rows.append(simulated.make_run(LARGE, block, 100.0 * ratio * (1 + noise * (block - 1)), **fields))
        manifest = simulated.make_manifest([SMALL, LARGE, GPU], 3)
        cells = (*manifest.cells[:2], manifest.cells[2].model_copy(update={"unsupported": "there is no cuda here"}))
        settings = manifest.settings.model_copy(update={"report": ReportSettings(claims=(stated,))})
        plan = manifest.model_copy(update={"cells": cells, "settings": settings})
        (finding,) = analyse(simulated.make_records(rows), plan).claims
        return finding

    return judge


@pytest.mark.parametrize(
    ("ratio", "noise", "verdict"),
    [
        (3.0, 0.001, ClaimVerdict.agrees),
        (3.2, 0.001, ClaimVerdict.agrees),
        (4.0, 0.001, ClaimVerdict.more),
        (1.1, 0.001, ClaimVerdict.less),
        (3.0, 0.3, ClaimVerdict.undecided),
        (3.3, 0.01, ClaimVerdict.undecided),
    ],
)
def test_a_claim_agrees_only_where_the_whole_interval_lies_within_its_tolerance(judged, ratio, noise, verdict) -> None:
    finding = judged(claim(), ratio, noise)
    assert finding.verdict is verdict
    assert finding.measured is not None
    assert finding.measured.value == pytest.approx(ratio, rel=0.05)
    assert finding.labels == ("cpu x1 | batch 64", "cpu x1 | batch 8")


def test_the_reason_to_differ_is_the_claims_own(judged) -> None:
    assert judged(claim(differs="that was another network")).reason == "that was another network"


def test_any_metric_can_be_claimed(judged) -> None:
    same = judged(claim(metric="host_pss_bytes", claimed=1.0), host_pss_bytes=5e8)
    assert same.verdict is not ClaimVerdict.not_testable
    absent = judged(claim(metric="mfu"))
    assert (absent.verdict, absent.measured) == (ClaimVerdict.not_testable, None)
    assert absent.reason == "accelerator=cpu, batch_size=64: mfu was not measured"


@pytest.mark.parametrize(
    ("cell", "reason"),
    [
        ({"accelerator": "cuda"}, "accelerator=cuda: unsupported: there is no cuda here"),
        ({"accelerator": "mps"}, "no cell of this sweep has accelerator=mps"),
        ({"accelerator": "cpu"}, "2 cells of this sweep have accelerator=cpu; the claim must name one"),
    ],
)
def test_what_cannot_be_tested_here_says_why(judged, cell, reason) -> None:
    finding = judged(claim(cell=cell))
    assert (finding.verdict, finding.reason) == (ClaimVerdict.not_testable, reason)
    assert finding.measured is None


def test_cells_that_failed_say_how(judged) -> None:
    finding = judged(claim(cell={"accelerator": "cpu", "batch_size": 64}), outcome="crashed", reason="RuntimeError: x")
    assert finding.verdict is ClaimVerdict.not_testable
    assert "3 of 3 runs: crashed (RuntimeError: x)" in finding.reason


def test_a_claim_does_not_reach_over_fields_that_it_does_not_name(simulated: ModuleType) -> None:
    rows = [simulated.make_run(SMALL, block, 100.0) for block in range(3)]
    rows += [simulated.make_run(LARGE, block, 300.0, software={"torch": "2.12.0"}) for block in range(3)]
    manifest = simulated.make_manifest([SMALL, LARGE], 3)
    settings = manifest.settings.model_copy(update={"report": ReportSettings(claims=(claim(),))})
    (finding,) = analyse(simulated.make_records(rows), manifest.model_copy(update={"settings": settings})).claims
    assert finding.verdict is ClaimVerdict.not_testable
    assert finding.reason.startswith("torch differs: 2.12.0")
