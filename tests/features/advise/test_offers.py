"""Advice on hardware: the arithmetic of a published pair, the tiers, what flips a choice, what is not projected."""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest
import yaml
from resnet50 import RESNET50

from accelsweep.analysis.analyse_sweep import Analysis, analyse
from accelsweep.config.prices import Prices
from accelsweep.devices.datasheets import datasheet
from accelsweep.features.advise.command import advise, epoch_samples
from accelsweep.features.advise.offers import Advice, Fit, Offer, Terms, Tier, Training, fit, offers_of
from accelsweep.features.advise.tiers import advise_on, in_words
from accelsweep.features.projection.analysis import Targets, project_onto, with_projections
from accelsweep.features.projection.model import MemoryFit, Projections, Range
from accelsweep.installation import shipped_root
from accelsweep.records.estimates import Estimate
from accelsweep.records.findings import Findings
from accelsweep.records.plan import Manifest

CPU, K80 = {"accelerator": "cpu"}, {"accelerator": "cuda"}
PRICES = Prices.model_validate({"devices": {"cpu": 0.5, "l4": 0.8, "h100-sxm": 3.8}})
TERMS = Terms(24.0, 200.0)


def projected(runs: Any, manifest: Manifest, onto: Targets) -> Findings:
    """Return the findings of these runs with projections onto these devices."""
    projections = project_onto(Analysis.of(runs, manifest), onto)
    assert projections is not None
    return with_projections(analyse(runs, manifest), projections)


def found(simulated: ModuleType, rates: dict[str, float], devices: str = "l4,h100-sxm", **fields: Any) -> Findings:
    """Return the findings of a sweep of six blocks: `rates` by accelerator, a batch of 256 and ResNet-50's counts."""
    names = {"cpu": "Xeon", "cuda": "Tesla K80"}
    settings = [{"accelerator": one} for one in rates]
    runs = [
        replace(
            simulated.make_run(
                axes,
                block,
                rates[axes["accelerator"]] * (1 + block / 10_000),
                effective={"device_names": [names[axes["accelerator"]]], "batch_size": 256},
                hardware={"host": "Xeon", "device": names[axes["accelerator"]]},
                **{"parameters": 2.56e7, "epoch_samples": 50_000.0} | fields,
            ),
            traits=RESNET50,
        )
        for block in range(6)
        for axes in settings
    ]
    onto = Targets(tuple(datasheet(key) for key in devices.split(",")), PRICES)
    return projected(runs, simulated.make_manifest(settings, 6), onto)


def projection(name: str, hours: float, usd: float, **fields: Any) -> Offer:
    """Return a projected offer whose ends lie a factor of 1.5 from its middle."""
    return Offer(
        **{"tier": Tier.one, "name": name, "key": name, "usd_per_hour": usd / hours, "room": MemoryFit.fits} | fields,
        hours_projected=Range(value=hours, low=hours / 1.5, high=hours * 1.5),
        usd_projected=Range(value=usd, low=usd / 1.5, high=usd * 1.5),
    )


def test_the_published_pair_comes_out_as_published(simulated: ModuleType) -> None:
    """DAWNBench: 97.18 h at 0.533 USD/h against 9.06 h at 0.967 USD/h is 10.7x as fast and 5.9x cheaper."""
    samples = 10_000_000.0
    rates = {"cpu": samples / 97.18 / 3600, "cuda": samples / 9.06 / 3600}
    prices = Prices.model_validate(yaml.safe_load((shipped_root() / "conf/prices/dawnbench_2018.yaml").read_text()))
    slow, fast = (one for one in offers_of(found(simulated, rates), prices, Training(samples, 200)) if one.measured)
    assert (slow.tier, fast.tier) == (Tier.none, Tier.one)
    assert slow.hours_measured is not None
    assert fast.hours_measured is not None
    assert slow.usd_measured is not None
    assert fast.usd_measured is not None
    assert slow.usd_measured.value == pytest.approx(51.80, rel=1e-3)
    assert fast.usd_measured.value == pytest.approx(8.76, rel=1e-3)
    assert slow.hours_measured.value / fast.hours_measured.value == pytest.approx(10.7, rel=0.01)
    assert slow.usd_measured.value / fast.usd_measured.value == pytest.approx(5.9, rel=0.01)


@pytest.mark.parametrize(
    ("epochs", "tier", "words"),
    [
        (0.1, Tier.none, "No GPU is needed: this machine (Xeon) takes"),
        (100, Tier.one, "One GPU is enough: 1 x H100 SXM (projected) would take about"),
        (8_000, Tier.several, "Several GPUs are needed: "),
        (2_000_000, None, "Meeting the deadline takes at least "),
    ],
)
def test_a_larger_training_needs_more_hardware(
    simulated: ModuleType, epochs: float, tier: Tier | None, words: str
) -> None:
    """Small: no GPU. Medium: one. Large: several. Huge: more than any one machine."""
    answer = advise(found(simulated, {"cpu": 2.0}), PRICES, Training(50_000 * epochs, epochs), Terms(24.0))
    assert answer.tier is tier
    assert words in answer.headline


def test_what_is_projected_is_called_so_and_has_no_measured_number(simulated: ModuleType) -> None:
    offers = offers_of(found(simulated, {"cpu": 2.0}), PRICES, Training(1e6, 20))
    measured, projected = (
        [one for one in offers if one.measured],
        [one for one in offers if one.hours_projected is not None],
    )
    assert [one.tier for one in measured] == [Tier.none]
    assert {one.name for one in projected} == {"L4", "H100 SXM"}
    assert all(one.hours_measured is None and one.usd_measured is None for one in projected)
    assert all("about" in in_words(one) and "[" not in in_words(one) for one in projected)
    with pytest.raises(ValueError, match="measured, be projected"):
        Offer(
            tier=Tier.one,
            name="both",
            hours_projected=Range(value=1, low=1, high=1),
            hours_measured=Estimate(value=1, low=1, high=1, unit="h", confidence=0.95, count=3),
        )


def test_the_least_hardware_and_the_cheapest_result_are_two_answers() -> None:
    """A CPU that is in time needs no GPU, although one would be cheaper."""
    here = Offer(
        tier=Tier.none,
        name="this machine",
        hours_measured=Estimate(value=10, low=9, high=11, unit="h", confidence=0.95, count=5),
        usd_measured=Estimate(value=5, low=4.5, high=5.5, unit="USD", confidence=0.95, count=5),
    )
    answer = advise_on([here, projection("l4", 1.0, 0.8)], TERMS)
    assert answer.headline.startswith("No GPU is needed: this machine takes 10 h [9, 11]")
    assert "The cheapest within the bounds: 1 x l4 (projected)" in answer.headline
    assert answer.choice == 0
    assert [one.name for one in answer.offers] == ["l4", "this machine"]


def test_a_deadline_that_the_choice_does_not_surely_keep_names_another() -> None:
    """The slow one is cheaper. Under 15 h, the end of its interval, the fast one is the choice."""
    answer = advise_on([projection("slow", 10.0, 5.0), projection("fast", 2.0, 9.0)], TERMS)
    assert answer.offers[answer.choice or 0].name == "slow"
    assert "With a deadline under 15 h: 1 x fast (projected)." in answer.changes
    assert "With a budget under 7.5 USD: no offer with a price is certain to meet it." in answer.changes


def test_a_wider_bound_names_what_becomes_possible() -> None:
    answer = advise_on([projection("slow", 40.0, 5.0), projection("fast", 2.0, 9.0)], TERMS)
    assert answer.offers[answer.choice or 0].name == "fast"
    assert "With a deadline of 60 h or more: 1 x slow (projected)." in answer.changes


def test_the_end_of_an_interval_that_flips_the_choice_is_named() -> None:
    """5 USD, at most 7.5; 6 USD, at least 4: either end changes which is cheaper. 50 USD is out of reach."""
    answer = advise_on([projection("a", 1.0, 5.0), projection("b", 1.0, 6.0), projection("c", 1.0, 50.0)], TERMS)
    assert "If 1 x a came out at the slow end of its interval, 1 x b would be cheaper." in answer.changes
    assert "If 1 x b came out at the fast end of its interval, it would be cheaper than 1 x a." in answer.changes
    assert "Below about 5 USD/h per device, 1 x b would be cheaper." in answer.changes
    assert not any("1 x c" in line for line in answer.changes)


def test_a_choice_that_no_interval_reaches_is_not_said_to_flip() -> None:
    answer = advise_on([projection("a", 1.0, 5.0), projection("b", 1.0, 100.0)], TERMS)
    assert not any("interval" in line for line in answer.changes)


def test_a_bound_that_cuts_an_interval_is_kept_to_perhaps() -> None:
    answer = advise_on([projection("only", 20.0, 5.0)], TERMS)
    assert answer.tier is None
    assert answer.choice is None
    assert answer.headline.startswith("Nothing is certain to meet the bounds. Possibly 1 x only (projected)")


@pytest.mark.parametrize(
    ("span", "bound", "expected"),
    [
        ((5.0, 4.0, 6.0), 6.0, Fit.surely),
        ((5.0, 4.0, 6.0), 5.9, Fit.perhaps),
        ((5.0, 4.0, 6.0), 3.9, Fit.no),
        ((5.0, None, None), 6.0, Fit.perhaps),
        ((5.0, None, None), 4.0, Fit.no),
        (None, 4.0, Fit.unknown),
        (None, None, Fit.surely),
    ],
)
def test_bounds_are_kept_by_whole_intervals(span: Any, bound: float | None, expected: Fit) -> None:
    from accelsweep.features.advise.offers import Ends

    assert fit(None if span is None else Ends(*span), bound) is expected


def test_what_does_not_fit_in_memory_is_never_the_choice() -> None:
    answer = advise_on([projection("small", 1.0, 1.0, room=MemoryFit.too_large), projection("large", 1.0, 2.0)], TERMS)
    assert answer.offers[answer.choice or 0].name == "large"


def test_what_may_not_fit_in_memory_is_no_sure_choice() -> None:
    """Nobody knows before it is tried, and the answer must not depend on it."""
    answer = advise_on([projection("unsure", 1.0, 1.0, room=MemoryFit.unsure), projection("large", 1.0, 2.0)], TERMS)
    assert answer.offers[answer.choice or 0].name == "large"
    assert "If the batch turned out to fit on 1 x unsure, it would be cheaper than 1 x large." in answer.changes
    assert advise_on([projection("unsure", 1.0, 1.0, room=MemoryFit.unsure)], TERMS).choice is None


def test_what_must_be_bought_first_must_be_within_the_budget() -> None:
    """An hour of it costs little, and the card 1599 USD."""
    answer = advise_on([projection("card", 1.0, 0.2, outlay_usd=1599.0), projection("rented", 1.0, 0.8)], TERMS)
    assert answer.offers[answer.choice or 0].name == "rented"
    assert advise_on([projection("card", 1.0, 0.2, outlay_usd=1599.0)], Terms(24.0, 2000.0)).choice == 0


def test_several_machines_are_not_projected_and_say_what_to_measure(simulated: ModuleType) -> None:
    offers = offers_of(found(simulated, {"cpu": 2.0}), PRICES, Training(1e6, 20))
    (cluster,) = (one for one in offers if one.tier is Tier.cluster)
    assert "measure num_nodes=1,2" in (cluster.reason or "")


def test_the_wait_for_data_is_not_shared_out_to_several_devices(simulated: ModuleType) -> None:
    findings = found(simulated, {"cpu": 2.0}, data_wait_share=0.9, step_seconds=100.0)
    several = [one for one in offers_of(findings, PRICES, Training(1e6, 20)) if one.tier is Tier.several]
    assert {one.reason for one in several} == {
        "one device is already limited by data loading, unlike any published network"
    }


def test_scaling_that_was_measured_here_goes_before_published_one(simulated: ModuleType) -> None:
    """Two K80s keep 60 % of their rates here; the published efficiencies are about 90 %."""
    one, two = ({"accelerator": "cuda", "devices": count} for count in (1, 2))
    rates = {1: 100.0, 2: 120.0}
    runs = [
        replace(
            simulated.make_run(
                axes,
                block,
                rates[axes["devices"]] * (1 + axes["devices"] * block / 10_000),
                effective={"device_names": ["Tesla K80"] * axes["devices"], "batch_size": 256},
                parameters=2.56e7,
            ),
            traits=RESNET50,
        )
        for block in range(6)
        for axes in (one, two)
    ]
    findings = projected(runs, simulated.make_manifest([one, two], 6), Targets((datasheet("l4"),), PRICES))
    offers = {one.count: one for one in offers_of(findings, PRICES, Training(1e6, 20)) if one.key == "l4"}
    single, double, quad = (offers[count].hours_projected for count in (1, 2, 4))
    assert single is not None
    assert double is not None
    assert quad is not None
    assert single.value / double.value == pytest.approx(1.2, rel=0.05)
    assert single.value / quad.value == pytest.approx(4 * 0.93, rel=0.05)
    assert "measured in this sweep" in offers[2].source
    assert "Lambda" in offers[4].source


def test_an_answer_says_what_it_rests_on_and_what_to_measure_next(simulated: ModuleType) -> None:
    findings = found(simulated, {"cpu": 2.0})
    assert epoch_samples(findings) == 50_000
    answer = advise(findings, Prices.model_validate({"devices": {"l4": 0.8}}), Training(5e6, 100), TERMS)
    assert "The training run covers 100 epochs of 50,000 samples, 5,000,000 in total." in answer.assumptions
    assert any(
        line.startswith("1 x L4 (projected): rent one for an hour (about 0.8 USD)") for line in answer.next_steps
    )
    assert any("This machine has no price" in line for line in answer.next_steps)


def test_a_month_is_told_for_every_way_to_pay(simulated: ModuleType) -> None:
    card = {"usd": 3600, "lifetime_years": 3, "utilisation": 0.25}
    prices = Prices.model_validate({"devices": {"cpu": 0.5, "l4": 0.8}, "purchase": {"l4": card}})
    findings = found(simulated, {"cpu": 2.0})
    onto = Targets((datasheet("l4"),), prices)
    assert findings.section(Projections) is not None
    answer: Advice = advise(
        with_projections(findings, _again(simulated, onto).section(Projections)),
        prices,
        Training(1e6, 20),
        TERMS,
    )
    assert any(line.startswith("from about") and "bought for 3600 USD" in line for line in answer.monthly)
    assert any("is cheaper than renting it (0.8 USD/h)" in line for line in answer.monthly)


def _again(simulated: ModuleType, onto: Targets) -> Findings:
    runs = [
        replace(
            simulated.make_run(CPU, block, 2.0 * (1 + block / 10_000), effective={"batch_size": 256}), traits=RESNET50
        )
        for block in range(6)
    ]
    return projected(runs, simulated.make_manifest([CPU], 6), onto)
