"""`accelsweep project` prints projections or why there are none, with prices from files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from resnet50 import RESNET50

from accelsweep.config.prices import read_prices
from accelsweep.errors import InputError
from accelsweep.features.projection.command import project_sweep
from accelsweep.records.layout import SweepFolder
from accelsweep.records.run_record import Record


def test_a_sweep_without_counted_operations_says_why_nothing_is_projected(
    example_sweep: SweepFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    project_sweep(example_sweep.home, example_sweep.name, None, None)
    assert "operations of its forward pass were not recorded" in capsys.readouterr().out


def test_a_sweep_is_projected_onto_the_requested_devices(
    example_sweep: SweepFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in example_sweep.root.glob("runs/*/record.json"):
        Record.read(path).model_copy(update={"traits": RESNET50}).write(path)
    project_sweep(example_sweep.home, example_sweep.name, "l4,t4", None, as_json=True)
    answer = json.loads(capsys.readouterr().out)
    assert answer["accelsweep"] == "project"
    assert {one["device"] for one in answer["devices"]} == {"l4", "t4"}
    assert all(one["rate"] or "tf32" in one["reason"] for one in answer["devices"])


def test_an_unknown_device_is_refused(example_sweep: SweepFolder) -> None:
    with pytest.raises(InputError, match="no board 'l5'"):
        project_sweep(example_sweep.home, example_sweep.name, "l5", None)


def test_prices_are_found_by_path_and_by_name(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("devices: {l4: 0.8}")
    assert read_prices(tmp_path, "mine.yaml").devices["l4"].usd_per_hour == 0.8
    assert "Tesla K80" in read_prices(tmp_path, "dawnbench_2018").devices
    (tmp_path / "bad.yaml").write_text("devices: {l4: free}")
    with pytest.raises(InputError, match=r"prices\.devices\.l4='free': is not a price; .*; look in .*bad\.yaml"):
        read_prices(tmp_path, "bad.yaml")
    (tmp_path / "never.yaml").write_text("purchase: {h100: {usd: 1, lifetime_years: 0, utilisation: 1}}")
    with pytest.raises(InputError, match=r"prices\.purchase\.h100\.lifetime_years=0: must be more than 0; look in "):
        read_prices(tmp_path, "never.yaml")
    with pytest.raises(InputError, match=r"no prices 'clod' \(did you mean 'cloud'\?\)"):
        read_prices(tmp_path, "clod")


def test_several_price_lists_are_merged_and_the_first_wins(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("devices: {l4: 0.1}")
    found = read_prices(tmp_path, "mine.yaml,cloud,bought")
    assert found.devices["l4"].usd_per_hour == 0.1
    assert found.devices["t4"].usd_per_hour == 0.5904
    assert found.purchase["rtx4090"].usd == 1599
    assert found.electricity is not None
