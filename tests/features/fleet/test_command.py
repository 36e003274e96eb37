"""`accelsweep fleet` selects nodes, rejects what is not a fleet, and exits with 3 for a sick node."""

from __future__ import annotations

import inspect
import json
import random
from pathlib import Path

import pytest
from projects import copy_project
from simulated_sweep import make_manifest, make_run

from accelsweep.analysis.analyse_sweep import analyse
from accelsweep.driver.request import Request
from accelsweep.driver.run_sweep import SweepExit
from accelsweep.errors import InputError
from accelsweep.features.detach.driver import PreparedCommand
from accelsweep.features.fleet import command
from accelsweep.features.fleet.command import FleetRequest, fleet, measure_fleet, preview_fleet
from accelsweep.features.fleet.planning import FLEET_TOLERANCE, Fleet
from accelsweep.records.findings import Findings
from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import Manifest
from accelsweep.schedulers import slurm
from accelsweep.schedulers.protocol import JobOffer, Resources
from accelsweep.schedulers.slurm import SlurmScheduler

CLUSTER = ("experiment=quickstart", "site=slurm_example", "accelerator=cpu", "devices=1", "precision=32-true")


def make_request(*overrides: str, each: int = 3, profile: str = "slurm", **options: str) -> Request:
    return Request(overrides, extension=FleetRequest(fleet=Fleet(nodes=(), each=each)), profile=profile, **options)  # type: ignore[arg-type]


@pytest.fixture
def two_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The partition of the example's site, with two working nodes and one that is down."""
    listing = "".join(
        f"{name}|cpu*|up|{state}|none\n" for name, state in (("n1", "idle"), ("n2", "idle"), ("n3", "down"))
    )
    monkeypatch.setattr(slurm, "ask", lambda *argv: listing if argv[0] == "sinfo" else argv[-1].replace(",", "\n"))
    accepted = JobOffer(True, "", "")
    monkeypatch.setattr(slurm, "offer", lambda _options: accepted)
    monkeypatch.setattr(SlurmScheduler, "offer", lambda _engine, _needs: accepted)
    monkeypatch.setattr(command, "refuse_without", lambda _engine, _site: None)
    monkeypatch.setattr("accelsweep.driver.run_sweep.check_profile", lambda _profile, _site: None)
    monkeypatch.setattr("accelsweep.driver.run_sweep.refuse_without", lambda _engine, _site: None)


@pytest.mark.heavy
@pytest.mark.usefixtures("two_nodes")
def test_a_fleet_measures_the_users_own_script_with_its_own_values(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    overrides = ("site=slurm_example", "accelerator=cpu", "quality=val_acc")
    preview_fleet(copy_project("script", tmp_path), make_request(*overrides, entry="python train.py"))
    output = capsys.readouterr().out
    assert "fleet-train, revision 1: 1 settings" in output
    assert "6 blocks (6 new), 6 runs" in output


@pytest.mark.usefixtures("two_nodes")
def test_a_preview_names_the_nodes_and_their_jobs_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    preview_fleet(tmp_path, make_request(*CLUSTER))
    output = capsys.readouterr().out
    assert "note: node n3 is left out: down" in output
    assert "fleet-quickstart, revision 1: 2 settings" in output
    assert "6 blocks (6 new), 12 runs" in output
    assert "Slurm: 3 x n2, " in output
    assert "--nodelist=n1" in output
    assert list(tmp_path.iterdir()) == []
    preview_fleet(tmp_path, make_request(*CLUSTER), as_json=True)
    answer = json.loads(capsys.readouterr().out)
    assert [block["resources"]["node"] for block in answer["blocks"]] == ["n1", "n2"] * 3


@pytest.mark.usefixtures("two_nodes")
@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (
            make_request("experiment=quickstart", profile="local"),
            "a fleet is several machines, but site=local is this one",
        ),
        (make_request(*CLUSTER[:1], "site=grid_engine_example"), "which is supported for Slurm only"),
        (make_request(*CLUSTER, each=1), "--each 1: noise cannot be estimated from one round; use at least 2"),
        (make_request(*CLUSTER, "repeats=5"), "repeats=5 contradicts --each 3"),
        (make_request(*CLUSTER, "site.slurm.cpu_partition=cpuu"), r"no partition 'cpuu' \(did you mean 'cpu'\?\)"),
        (make_request(*CLUSTER, "batch_size=32,auto"), "the largest batch of 1 setting .* is not known yet"),
        (make_request(*CLUSTER, profile="local"), "profile"),
    ],
)
def test_what_is_not_a_fleet_is_rejected_with_the_reason(tmp_path: Path, request_: Request, message: str) -> None:
    with pytest.raises(InputError, match=message):
        preview_fleet(tmp_path, request_)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("two_nodes")
def test_a_background_driver_measures_the_nodes_that_were_selected_when_it_was_submitted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared = PreparedCommand.of(tmp_path, make_request(*CLUSTER))
    assert prepared.request.nodes == ("n1", "n2")
    assert prepared.sweep == prepared.request.name == "fleet-quickstart"
    monkeypatch.setattr(slurm, "ask", lambda *_: pytest.fail("the nodes are selected already"))
    assert prepared.request.extension is not None
    assert prepared.request.extension.resolved(tmp_path, prepared.request) == prepared.request


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("slow", "code", "ends"), [("n1", 0, 3), ("", 0, 0), ("", 1, 1), ("n1", 1, 3), ("n1", 130, 130)]
)
def test_a_sick_node_decides_the_exit_code_unless_the_command_was_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slow: str, code: int, ends: int
) -> None:
    findings, manifest = measured_fleet(slow)
    folder = SweepFolder(tmp_path, "mine")
    manifest.write(folder.manifest)
    findings.write(folder.findings)
    monkeypatch.setattr(command, "select_nodes", lambda _home, request, _fleet: request)
    monkeypatch.setattr(command, "run_sweep", lambda _home, _request: SweepExit("mine", code))
    assert measure_fleet(tmp_path, make_request(*CLUSTER)) == ends
    manifest.model_copy(update={"revision": 2}).write(folder.manifest)
    assert measure_fleet(tmp_path, make_request(*CLUSTER)) == code, "there are no findings for this revision"


def measured_fleet(slow: str) -> tuple[Findings, Manifest]:
    """Measure four nodes in three rounds; the one called `slow` has 90 % of the others' rate."""
    nodes, generator = ("n0", "n1", "n2", "n3"), random.Random(3)
    manifest = make_manifest([{"batch_size": 32}], 12)
    blocks = tuple(
        block.model_copy(update={"resources": Resources(node=nodes[number % 4])})
        for number, block in enumerate(manifest.blocks)
    )
    manifest = manifest.model_copy(update={"blocks": blocks, "parts": {"fleet": Fleet(nodes=nodes)}})
    speeds = [0.9 if block.resources.node == slow else 1.0 for block in blocks]
    rows = [
        make_run({"batch_size": 32}, number, 100.0 * speed * generator.gauss(1.0, 0.0005))
        for number, speed in enumerate(speeds)
    ]
    return analyse(rows, manifest), manifest


@pytest.mark.usefixtures("two_nodes")
def test_a_single_node_is_not_a_fleet(tmp_path: Path) -> None:
    request = Request(CLUSTER, extension=FleetRequest(fleet=Fleet(nodes=(), asked="n2")), profile="slurm")
    with pytest.raises(InputError, match="--nodes n2 is a single node, n2: a fleet compares two or more"):
        preview_fleet(tmp_path, request)


def test_the_command_to_resume_names_the_same_fleet() -> None:
    request = make_request(*CLUSTER[:1], each=4)
    assert request.resume_command() == "accelsweep fleet --nodes all --each 4 experiment=quickstart --profile slurm"


def test_the_command_line_has_the_plans_defaults() -> None:
    """The defaults are repeated in the command because `--help` must not import the models."""
    options = inspect.signature(fleet).parameters
    assert options["each"].default == Fleet.model_fields["each"].default
    assert options["tolerance"].default == FLEET_TOLERANCE
    assert options["profile"].default == "slurm"
