"""Prices are read from the config or from lists, and give the cost of an hour."""

import pytest
import yaml
from pydantic import ValidationError

from accelsweep.config.prices import Prices, price_lines, usd_per_hour_on
from accelsweep.config.schema import checked_config
from accelsweep.devices.datasheets import datasheets
from accelsweep.errors import InputError
from accelsweep.installation import shipped_root
from accelsweep.planning.plan import make_plan

SHIPPED = sorted((shipped_root() / "conf" / "prices").glob("*.yaml"))


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_every_shipped_price_has_a_date_and_a_source(path, home):
    prices = Prices.model_validate(yaml.safe_load(path.read_text()))
    lines = price_lines(prices, [*prices.hourly, "electricity", "carbon"])
    assert lines
    assert all(line.date and line.source for line in lines)
    planned = make_plan(home, [f"prices={path.stem}"]).manifest.options.prices
    assert planned == prices


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_every_shipped_price_is_for_a_known_board(path):
    """A misspelt name would match no device. A bought card draws its board power."""
    prices = Prices.model_validate(yaml.safe_load(path.read_text()))
    if path.stem != "dawnbench_2018":
        assert set(prices.hourly) <= set(datasheets())
    assert {name: one.watts for name, one in prices.purchase.items()} == {
        name: datasheets()[name].power_watts for name in prices.purchase
    }


def test_without_prices_a_plan_has_none(home):
    assert make_plan(home, []).manifest.options.prices == Prices()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("devices: {cpu: cheap}", ["prices.devices.cpu='cheap'", "not a price", "usd_per_hour"]),
        ("devices: {cpu: true}", ["prices.devices.cpu=True", "not a price"]),
        ("devices: {cpu: -1}", ["prices.devices.cpu.usd_per_hour=-1", "must be at least 0"]),
        ("devices: {cpu: [1]}", ["prices.devices.cpu=[1]", "not a price"]),
        ("devices: {cpu: {usd_per_hour: '1'}}", ["prices.devices.cpu.usd_per_hour='1'", "valid number"]),
        ("devices: {cpu: {source: a list}}", ["prices.devices.cpu.usd_per_hour", "missing"]),
        ("devices: {cpu: {usd_per_hour: 1, when: 2020}}", ["unknown key 'prices.devices.cpu.when'"]),
        ("purchase: {t4: {usd: 1, lifetime_years: 3}}", ["prices.purchase.t4.utilisation", "missing"]),
        ("purchase: {t4: {usd: 1, lifetime_years: 0, utilisation: 1}}", ["prices.purchase.t4.lifetime_years=0"]),
        ("purchase: {t4: {usd: 1, lifetime_years: 3, utilisation: 2}}", ["prices.purchase.t4.utilisation=2"]),
        ("devices: [1]", ["prices.devices=[1]", "dictionary"]),
        ("cpu: 1", ["unknown key 'prices.cpu'"]),
        ("electricity: free", ["prices.electricity='free'", "usd_per_kwh"]),
        ("carbon: {grams_per_kwh: -3}", ["prices.carbon.grams_per_kwh=-3"]),
    ],
)
def test_a_malformed_price_file_is_refused_by_the_plan_with_key_and_file(home, own_conf, text, words):
    own_conf({"prices/mine.yaml": text + "\n"})
    with pytest.raises(InputError) as caught:
        make_plan(home, ["prices=mine"])
    message = str(caught.value)
    assert [word for word in [*words, "look in", "mine.yaml"] if word not in message] == []
    assert "\n" not in message


@pytest.mark.parametrize("stated", ["override", "experiment"])
def test_missing_price_lists_are_refused_with_the_nearest_name(home, own_conf, stated):
    """They used to be ignored, and the report had no costs."""
    own_conf({"experiment/dear.yaml": "# @package _global_\ndefaults: [{override /prices: dawnbench_2081}]\n"})
    with pytest.raises(InputError) as caught:
        make_plan(home, ["prices=dawnbench_2081"] if stated == "override" else ["experiment=dear"])
    message = str(caught.value)
    assert "has no 'dawnbench_2081' (did you mean 'dawnbench_2018'?)" in message
    assert "conf/prices" in message
    assert not (home / "sweeps").exists()


def test_a_bare_number_is_an_amount_and_a_model_precedes_its_accelerator():
    prices = Prices.model_validate({"devices": {"cuda": 2, "Tesla K80": 0.967}, "electricity": 0.3, "carbon": None})
    config, other = (on_cuda(accelerator=each, devices=4, num_nodes=2) for each in ("cuda", "mps"))
    assert usd_per_hour_on(prices, config, ["Tesla K80"]) == pytest.approx(8 * 0.967)
    assert usd_per_hour_on(prices, config, ["NVIDIA H100"]) == 16
    assert usd_per_hour_on(prices, other, []) is None
    assert prices.electricity is not None
    assert prices.electricity.usd_per_kwh == 0.3


CARD = {"usd": 1600, "lifetime_years": 3, "utilisation": 0.25, "watts": 450, "date": 2022, "source": "a shop"}


def on_cuda(**changes):
    plain = {
        "accelerator": "cuda", "devices": 1, "num_nodes": 1, "batch_size": 1, "precision": "32-true", "seed": 1,
        "loop": "raw", "model": {}, "data": {},
        "measure": {"warmup_steps": 2, "min_steps": 1, "min_seconds": 1.0, "max_steps": 1},
    }  # fmt: skip
    return checked_config(plain | changes)


def test_a_bought_device_costs_its_share_of_the_price_and_its_electricity():
    """1600 USD over 3 * 8766 * 0.25 = 6574.5 hours, and 0.45 kW at 0.2 USD/kWh."""
    prices = Prices.model_validate({"purchase": {"rtx4090": CARD}, "electricity": 0.2})
    rent = usd_per_hour_on(prices, on_cuda(devices=2), ["NVIDIA GeForce RTX 4090"])
    assert rent == pytest.approx(2 * (1600 / 6574.5 + 0.09))
    (line,) = price_lines(prices, ["rtx4090"])
    assert (line.unit, line.date) == ("USD per hour", "2022")
    assert line.source == "bought for 1600 USD, in use 25 % of 3 years, 450 W; a shop"


def test_a_bought_device_says_if_no_electricity_is_counted():
    prices = Prices.model_validate({"purchase": {"rtx4090": CARD}})
    assert prices.hourly["rtx4090"].usd_per_hour == pytest.approx(1600 / 6574.5)
    assert "without electricity" in str(prices.hourly["rtx4090"].source)


def test_a_device_name_precedes_its_datasheet_key_and_that_its_accelerator():
    both = Prices.model_validate({"devices": {"cuda": 9, "t4": 2, "Tesla T4": 1}})
    key = Prices.model_validate({"devices": {"cuda": 9, "t4": 2}})
    assert usd_per_hour_on(both, on_cuda(), ["Tesla T4"]) == 1
    assert usd_per_hour_on(key, on_cuda(), ["Tesla T4"]) == 2
    assert usd_per_hour_on(key, on_cuda(), ["Tesla T40"]) == 9
    rented = Prices.model_validate({"devices": {"rtx4090": 0.5}, "purchase": {"rtx4090": CARD}})
    assert usd_per_hour_on(rented, on_cuda(), ["NVIDIA GeForce RTX 4090"]) == 0.5


def test_a_date_may_be_a_year_or_a_day():
    prices = Prices.model_validate({"devices": {"cpu": {"usd_per_hour": 1, "date": 2024}}})
    assert prices.devices["cpu"].date == "2024"
    with pytest.raises(ValidationError):
        Prices.model_validate({"devices": {"cpu": {"usd_per_hour": 1, "date": ["2024"]}}})
