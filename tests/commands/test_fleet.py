"""`accelsweep fleet` refuses what is no fleet in a sentence, and writes nothing. tests/slurm measures one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from accelsweep.base.errors import InputError
from accelsweep.commands.cluster import fleet as fleets
from accelsweep.commands.cluster.fleet import preview_fleet
from accelsweep.commands.running.request import Request
from accelsweep.core.settings import Fleet
from accelsweep.engines.slurm import nodes

CLUSTER = ("experiment=quickstart", "site=slurm_example", "accelerator=cpu", "devices=1", "precision=32-true")


def asking(*overrides: str, each: int = 3, profile: str = "slurm", **options: str) -> Request:
    return Request(overrides=overrides, fleet=Fleet(nodes=(), each=each), profile=profile, **options)  # type: ignore[arg-type]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two nodes that work and one that does not, in the partition of the example's site."""
    listing = "".join(
        f"{name}|cpu*|up|{state}|none\n" for name, state in (("n1", "idle"), ("n2", "idle"), ("n3", "down"))
    )
    monkeypatch.setattr(
        nodes, "ask", lambda *command: listing if command[0] == "sinfo" else command[-1].replace(",", "\n")
    )
    monkeypatch.setattr(fleets, "refuse_without", lambda _engine, _site: None)


@pytest.mark.usefixtures("cluster")
def test_a_preview_names_the_nodes_and_their_jobs_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    preview_fleet(tmp_path, asking(*CLUSTER))
    told = capsys.readouterr().out
    assert "note: node n3 is left out: down" in told
    assert "fleet-quickstart, revision 1: 2 settings" in told
    assert "6 blocks (6 new), 12 runs" in told
    assert "Slurm: 3 x n2, " in told
    assert "--nodelist=n1" in told
    assert list(tmp_path.iterdir()) == []
    preview_fleet(tmp_path, asking(*CLUSTER), as_json=True)
    found = json.loads(capsys.readouterr().out)
    assert [block["resources"]["node"] for block in found["blocks"]] == ["n1", "n2"] * 3


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize(
    ("request_", "why"),
    [
        (asking("experiment=quickstart", profile="local"), "a fleet is several machines, and site=local is this one"),
        (asking(*CLUSTER[:1], "site=grid_engine_example"), "only Slurm is asked for so far"),
        (asking(*CLUSTER, each=1), "--each 1: one round shows no noise; 2 are the fewest"),
        (asking(*CLUSTER, "repeats=5"), "repeats=5 and --each 3 are two answers to one question"),
        (asking(*CLUSTER, "site.slurm.cpu_partition=cpuu"), r"no partition 'cpuu' \(did you mean 'cpu'\?\)"),
        (asking(*CLUSTER, "batch_size=32,auto"), "the largest batch of 1 setting .* is not known yet"),
        (asking(*CLUSTER, profile="local"), "profile"),
    ],
)
def test_what_is_no_fleet_is_refused_in_a_sentence(tmp_path: Path, request_: Request, why: str) -> None:
    with pytest.raises(InputError, match=why):
        preview_fleet(tmp_path, request_)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("cluster")
def test_one_node_is_no_fleet(tmp_path: Path) -> None:
    alone = asking(*CLUSTER)
    assert alone.fleet is not None
    of_one = Request(overrides=CLUSTER, fleet=alone.fleet.model_copy(update={"asked": "n2"}), profile="slurm")
    with pytest.raises(InputError, match="--nodes n2 is one node, n2: a fleet compares two or more"):
        preview_fleet(tmp_path, of_one)


def test_the_command_that_goes_on_asks_for_the_same_fleet() -> None:
    request = asking(*CLUSTER[:1], each=4)
    assert request.again() == "accelsweep fleet experiment=quickstart --profile slurm --nodes all --each 4"
