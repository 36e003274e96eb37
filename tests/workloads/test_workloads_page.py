"""docs/workloads.md lists what there is, with the numbers of parameters that the configs really give."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from hydra.utils import instantiate
from omegaconf import OmegaConf

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "workloads.md").read_text()
MODELS = {path.stem: OmegaConf.load(path) for path in sorted((ROOT / "conf" / "model").glob("*.yaml"))}
OURS = {
    name: config
    for name, config in MODELS.items()
    if {"compile", "channels_last"} < set(config) and "network" not in config
}


def shown(parameters):
    """Parameters as the page writes them: one digit after the point."""
    return f"{parameters / 1e6:.1f} M" if parameters >= 1e6 else f"{parameters / 1e3:.1f} k"


@pytest.mark.parametrize("name", OURS)
def test_every_model_is_listed_with_its_number_of_parameters(name):
    with torch.device("meta"):
        module = instantiate(OmegaConf.to_container(OURS[name]), _convert_="all")
    parameters = sum(parameter.numel() for parameter in module.parameters())
    row = re.search(rf"^\| `{name}` \|.*$", PAGE, re.MULTILINE)
    assert row, f"docs/workloads.md has no row for model={name}"
    assert row[0].split("|")[3].strip() == shown(parameters)


def test_every_set_of_ours_is_listed_and_nothing_else():
    listed = set(re.findall(r"`(\w+)`", " ".join(re.findall(r"^\| (`.*?) \|", PAGE.split("## Data")[1], re.MULTILINE))))
    ours = {path.stem for path in (ROOT / "conf" / "data").glob("*.yaml") if "placement" in OmegaConf.load(path)}
    assert listed == ours
