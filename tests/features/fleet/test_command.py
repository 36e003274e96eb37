"""`accelsweep fleet` refuses wrong input in one line and writes nothing; tests/slurm measures a fleet."""

from __future__ import annotations

import inspect
import json
import random
from pathlib import Path

import pytest
from simulated_sweep import make_manifest, make_run

from accelsweep.analysis.analyse_sweep import analyse
from accelsweep.driver.request import Request
from accelsweep.driver.run_sweep import SweepExit
from accelsweep.errors import InputError
from accelsweep.features.detach.job import BackgroundCommand
from accelsweep.features.fleet import command as fleets
from accelsweep.features.fleet.command import FleetRequest, fleet, measure_fleet, preview_fleet
from accelsweep.features.fleet.planning import FLEET_TOLERANCE, Fleet
from accelsweep.records.findings import Findings
from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import Manifest
from accelsweep.schedulers import slurm
from accelsweep.schedulers.protocol import JobOffer, Resources
from accelsweep.schedulers.slurm import SlurmEngine

CLUSTER = ("experiment=quickstart", "site=slurm_example", "accelerator=cpu", "devices=1", "precision=32-true")


def asking(*overrides: str, each: int = 3, profile: str = "slurm", **options: str) -> Request:
    return Request(overrides, extension=FleetRequest(fleet=Fleet(nodes=(), each=each)), profile=profile, **options)  # type: ignore[arg-type]


@pytest.fixture
def two_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two nodes that work and one that does not, in the partition of the example's site."""
    listing = "".join(
        f"{name}|cpu*|up|{state}|none\n" for name, state in (("n1", "idle"), ("n2", "idle"), ("n3", "down"))
    )
    monkeypatch.setattr(
        slurm, "ask", lambda *command: listing if command[0] == "sinfo" else command[-1].replace(",", "\n")
    )
    accepted = JobOffer(True, "", "")
    monkeypatch.setattr(slurm, "offer", lambda _options: accepted)
    monkeypatch.setattr(SlurmEngine, "offer", lambda _engine, _needs: accepted)
    monkeypatch.setattr(fleets, "refuse_without", lambda _engine, _site: None)
    monkeypatch.setattr("accelsweep.driver.run_sweep.check_profile", lambda _profile, _site: None)
    monkeypatch.setattr("accelsweep.driver.run_sweep.refuse_without", lambda _engine, _site: None)


@pytest.mark.usefixtures("two_nodes")
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


@pytest.mark.usefixtures("two_nodes")
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


@pytest.mark.usefixtures("two_nodes")
def test_a_fleets_head_measures_the_nodes_of_the_moment_in_which_it_was_handed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handed = BackgroundCommand.of(tmp_path, asking(*CLUSTER))
    assert handed.request.nodes == ("n1", "n2")
    assert handed.sweep == handed.request.name == "fleet-quickstart"
    monkeypatch.setattr(slurm, "ask", lambda *_: pytest.fail("they have been chosen"))
    assert handed.request.extension is not None
    assert handed.request.extension.resolved(tmp_path, handed.request) == handed.request


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("slow", "code", "ends"), [("n1", 0, 3), ("", 0, 0), ("", 1, 1), ("n1", 1, 3), ("n1", 130, 130)]
)
def test_a_sick_node_decides_the_exit_code_unless_the_command_was_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slow: str, code: int, ends: int
) -> None:
    found, manifest = measured_fleet(slow)
    folder = SweepFolder(tmp_path, "mine")
    manifest.write(folder.manifest)
    found.write(folder.findings)
    monkeypatch.setattr(fleets, "with_nodes", lambda _home, request, _fleet: request)
    monkeypatch.setattr(fleets, "run_sweep", lambda _home, _request: SweepExit("mine", code))
    assert measure_fleet(tmp_path, asking(*CLUSTER)) == ends
    manifest.model_copy(update={"revision": 2}).write(folder.manifest)
    assert measure_fleet(tmp_path, asking(*CLUSTER)) == code, "no findings of this plan were made"


def measured_fleet(slow: str) -> tuple[Findings, Manifest]:
    """Four nodes in three rounds, of which the one called `slow` takes a tenth longer."""
    nodes_, generator = ("n0", "n1", "n2", "n3"), random.Random(3)
    manifest = make_manifest([{"batch_size": 32}], 12)
    blocks = tuple(
        block.model_copy(update={"resources": Resources(node=nodes_[number % 4])})
        for number, block in enumerate(manifest.blocks)
    )
    manifest = manifest.model_copy(update={"blocks": blocks, "parts": {"fleet": Fleet(nodes=nodes_)}})
    speeds = [0.9 if block.resources.node == slow else 1.0 for block in blocks]
    rows = [
        make_run({"batch_size": 32}, number, 100.0 * speed * generator.gauss(1.0, 0.0005))
        for number, speed in enumerate(speeds)
    ]
    return analyse(rows, manifest), manifest


@pytest.mark.usefixtures("two_nodes")
def test_one_node_is_no_fleet(tmp_path: Path) -> None:
    of_one = Request(CLUSTER, extension=FleetRequest(fleet=Fleet(nodes=(), asked="n2")), profile="slurm")
    with pytest.raises(InputError, match="--nodes n2 is one node, n2: a fleet compares two or more"):
        preview_fleet(tmp_path, of_one)


def test_the_command_that_goes_on_asks_for_the_same_fleet() -> None:
    request = asking(*CLUSTER[:1], each=4)
    assert request.resume_command() == "accelsweep fleet --nodes all --each 4 experiment=quickstart --profile slurm"


def test_the_command_line_has_the_defaults_of_a_fleet() -> None:
    """It writes them by hand, because `--help` imports no settings."""
    options = inspect.signature(fleet).parameters
    assert options["each"].default == Fleet.model_fields["each"].default
    assert options["tolerance"].default == FLEET_TOLERANCE
    assert options["profile"].default == "slurm"
