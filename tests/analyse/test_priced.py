"""What runs cost is a metric that claims may name."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

from accelsweep.analysis.analyse_sweep import analyse
from accelsweep.config.prices import Prices
from accelsweep.features.claims.model import Claim, ClaimFinding, Claims, ClaimsOptions, ClaimVerdict

CPU, GPU = {"accelerator": "cpu"}, {"accelerator": "cuda"}
PRICES = Prices.model_validate({"devices": {"cpu": 0.533, "Tesla K80": 0.967}})
FIVE_TIMES = {"claimed": 5.9, "metric": "usd_per_result", "cell": CPU, "against": GPU}


@pytest.fixture
def judged(simulated: ModuleType):
    """Judge claims on DAWNBench's pair: a result in 97.18 h on a CPU, in 9.06 h on a K80."""

    def judge(*figures: dict[str, Any], prices: Prices = PRICES) -> list[ClaimFinding]:
        rows = []
        for block in range(3):
            for axes, hours in ((CPU, 97.18), (GPU, 9.06 + 0.01 * block * block)):
                took = hours * (1 + 0.001 * block)
                metrics = {
                    "samples_per_second": {"value": 1e6 / took / 3600, "unit": "1/s"},
                    "results_per_hour": {"value": 1.0 / took, "unit": "results/h"},
                    "epoch_samples": {"value": 50_000.0, "unit": "samples"},
                }
                effective = {"device_names": ["Tesla K80"] if axes is GPU else ["a CPU"], **axes}
                rows.append(simulated.make_run(axes, block, 1.0, metrics=metrics, effective=effective))
        stated = {"id": "cost", "statement": "a GPU is cheaper", "source": "DAWNBench", "figures": figures}
        plan = simulated.make_manifest([CPU, GPU], 3)
        report = ClaimsOptions(claims=(Claim.model_validate(stated),)).model_dump(mode="json")
        settings = plan.settings.model_copy(update={"prices": prices, "report": report})
        return list(analyse(rows, plan.model_copy(update={"settings": settings})).section(Claims).figures)

    return judge


def test_dawnbenchs_claim_of_a_result_for_a_fifth_of_the_money_is_judged_by_cost(judged) -> None:
    (found,) = judged(FIVE_TIMES)
    assert found.verdict is ClaimVerdict.agrees
    assert found.measured.value == pytest.approx(51.80 / 8.76, rel=5e-3)


def test_an_epoch_a_million_samples_and_an_hour_have_a_price_each(judged) -> None:
    names = ("usd_per_epoch", "usd_per_million_samples", "usd_per_hour", "usd_per_result")
    found = judged(*({"metric": name, "cell": CPU, "unit": "USD"} for name in names))
    values = [one.measured.value for one in found]
    assert values == pytest.approx([51.8 / 20, 51.8, 0.533, 51.8], rel=2e-3)


def test_without_a_price_the_claim_says_what_is_missing(judged) -> None:
    (found,) = judged(FIVE_TIMES, prices=Prices())
    assert found.verdict is ClaimVerdict.not_testable
    assert "no price is given for its devices" in found.reason
