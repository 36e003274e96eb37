"""Running a sweep in the background: what is started, what is printed, and when nothing is restarted."""

import os
import stat
import time
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner
from user_repository import MODULE, commit, repository, write

from accelsweep.cli.status import _unplanned_names, print_status
from accelsweep.config.site import Site
from accelsweep.config.versions import Version
from accelsweep.driver.plan_preview import requested_plan
from accelsweep.driver.request import Request
from accelsweep.driver.run_sweep import SweepExit
from accelsweep.errors import AccelsweepError, DamagedFile, InputError
from accelsweep.features.ab import command as ab
from accelsweep.features.ab.command import VersionsRequest
from accelsweep.features.claims import command as claims
from accelsweep.features.claims.command import ClaimsRequest
from accelsweep.features.detach import backends, command, driver
from accelsweep.features.detach.backends import DriverExit, SlurmBackend, Submission, TmuxBackend, driver_log
from accelsweep.features.detach.command import attach
from accelsweep.features.detach.driver import MAX_STARTS, DriverSpec, why_chain_ends
from accelsweep.features.fleet import command as fleet
from accelsweep.features.fleet.command import FleetRequest
from accelsweep.features.fleet.planning import Fleet
from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import Manifest

ODD = ("experiment=tiny", "+env.WORDS='two  words'", 'model.name="a\\"b"', "x=$(id);`id`", "y=\t\n", "z=é")
SECRET = "slack://T0K3N/T0K3N"
VERSION = Version(name=".", kind="files", digest="0" * 64)


def order(**changes: object) -> DriverSpec:
    request = Request(overrides=ODD, features={"notify": [SECRET]}, tracking_uri="http://me:pass@host", **changes)
    return DriverSpec(request=request, site=Site(name="local"), sweeps=("tiny",), revision=2)


def test_an_order_keeps_every_argument_exactly_and_its_owner_alone_can_read_it(tmp_path):
    os.umask(before := os.umask(0))
    os.umask(0)
    try:
        order(jobs=3).write(tmp_path / "order.json")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "order.json").stat().st_mode) == 0o600
    assert DriverSpec.read(tmp_path / "order.json") == order(jobs=3)


def test_a_head_in_a_job_gets_the_users_secrets_from_its_order_and_sbatch_does_not(monkeypatch, example_sweep):
    site = Site(name="c", scheduler="slurm", slurm={"secrets": ["HF_TOKEN"]})
    monkeypatch.setattr(
        os, "environ", {"MLFLOW_TRACKING_PASSWORD": "x", "HF_TOKEN": "y", "PATH": "/bin", "SBATCH_WAIT": "1"}
    )
    left = command.forwarded_secrets(SlurmBackend(), site)
    assert left == {"MLFLOW_TRACKING_PASSWORD": "x"}
    assert command.forwarded_secrets(TmuxBackend(), site) == {}, "on this machine it has all variables"
    submitted = {}

    def asked(program, *_arguments, base=None, **_):
        submitted.update(base or {})
        return "7\n" if program == "sbatch" else ""

    monkeypatch.setattr(backends, "ask", asked)
    SlurmBackend(site.slurm).start(example_sweep, ("true",), "driver")
    assert submitted == {"HF_TOKEN": "y", "PATH": "/bin"}
    order().model_copy(update={"secrets": left}).write(example_sweep.driver_file("order"))
    os.environ.pop("MLFLOW_TRACKING_PASSWORD")
    monkeypatch.setattr(driver, "_run_stored", lambda *_: submitted.update(os.environ) or 0)
    driver.run_driver(example_sweep)
    assert submitted["MLFLOW_TRACKING_PASSWORD"] == "x"


def test_repeats_that_are_in_the_plan_are_not_added_by_another_head(example_sweep):
    revision = Manifest.read(example_sweep.manifest).revision
    waiting = order(add_repeats=2).model_copy(update={"revision": revision + 1})
    assert waiting.for_next_start(example_sweep).request.add_repeats == 2
    planned = waiting.model_copy(update={"revision": revision})
    assert planned.for_next_start(example_sweep).request.add_repeats == 0
    assert planned.for_next_start(example_sweep).for_next_start(example_sweep).starts == 2


def test_the_next_head_has_what_is_left_of_the_time_budget():
    assert order(time_budget="1h").with_remaining_budget(time.monotonic() - 600).request.time_budget == "3000s"
    assert order(time_budget="5m").with_remaining_budget(time.monotonic() - 600).request.time_budget == "1s"
    assert order().with_remaining_budget(time.monotonic() - 600).request.time_budget is None


@pytest.mark.parametrize(
    ("starts", "moved", "waiting", "ends"),
    [(1, True, 0, False), (1, False, 2, False), (1, False, 0, True), (MAX_STARTS, True, 2, True)],
)
def test_a_chain_of_heads_goes_on_while_something_moves_or_waits_and_has_an_end(starts, moved, waiting, ends):
    assert (why_chain_ends(starts, progressed=moved, startable_jobs=waiting) is not None) is ends


@pytest.mark.parametrize(
    ("command", "option"),
    [
        ("run", "--dry-run"),
        ("run", "--cfg job"),
        ("ab", "--dry-run"),
        ("ab", "--json"),
        ("ab", "--format github"),
        ("fleet", "--dry-run"),
        ("fleet", "--json"),
    ],
)
def test_what_answers_in_the_terminal_is_not_detached(command, option, tmp_path, monkeypatch):
    from accelsweep.cli.typer_app import app

    monkeypatch.chdir(tmp_path)
    ended = CliRunner().invoke(app, [command, "experiment=quickstart", "--detach", *option.split()])
    assert isinstance(ended.exception, InputError)
    assert f"{option.removesuffix(' job')} prints its output in this terminal" in str(ended.exception)


ASKED = [
    Request(extension=ClaimsRequest(), time_budget="90.000000s"),
    Request(ODD, extension=VersionsRequest(names=("main", "."), fail_if="slower:2%", pins=(VERSION,))),
    Request(ODD, extension=FleetRequest(fleet=Fleet(nodes=("n1", "n2"), asked="n[1-2]"))),
]


def command_of(request: Request) -> str:
    return request.extension.command if request.extension else "run"


@pytest.mark.parametrize("request_", ASKED, ids=command_of)
def test_an_order_keeps_the_arguments_of_every_command(request_, tmp_path):
    given = order().model_copy(update={"request": request_})
    given.write(tmp_path / "order.json")
    assert DriverSpec.read(tmp_path / "order.json") == given


@pytest.mark.parametrize("request_", [order().request, *ASKED], ids=command_of)
def test_a_head_does_what_its_command_does_and_ends_with_its_exit_code(request_, tmp_path, monkeypatch):
    """And with no other's: each command is replaced by one that ends with a number of its own."""
    given = []

    def replaced(ends):
        return lambda _home, *rest: given.extend(rest) or ends

    monkeypatch.setattr(driver, "run_sweep", replaced(SweepExit("mine", 10)))
    monkeypatch.setattr(ab, "measure_versions", replaced((11, None)))
    monkeypatch.setattr(fleet, "measure_nodes", replaced((12, None)))
    monkeypatch.setattr(claims, "run_claims", replaced(13))
    assert (
        driver.run_command(tmp_path, request_) == {"run": 10, "ab": 11, "fleet": 12, "claims": 13}[command_of(request_)]
    )
    assert given == ([(), 1.5] if command_of(request_) == "claims" else [request_])


@pytest.mark.heavy
def test_the_head_of_ab_measures_the_versions_of_the_moment_in_which_it_was_handed_over(tmp_path):
    """It may begin hours later: a branch has moved on, and files were edited."""
    home = repository(tmp_path, {"toy.py": f"{MODULE}# second\n"})
    write(home, {"toy.py": f"{MODULE}# edited\n"})
    asked = Request(("experiment=toy",), extension=VersionsRequest(names=("main", ".")))
    handed = driver.PreparedCommand.of(home, asked)
    before = handed.plan.manifest.compared
    commit(home, {"toy.py": f"{MODULE}# third\n"})
    write(home, {"toy.py": f"{MODULE}# edited again\n"})
    assert requested_plan(home, handed.request, {}).manifest.compared == before
    assert [one.name for one in before] == ["main", "."]
    unpinned = replace(handed.request, extension=handed.request.extension.model_copy(update={"pins": ()}))
    now = {one.digest for one in requested_plan(home, unpinned, {}).manifest.compared}
    assert now.isdisjoint(one.digest for one in before)


def test_claims_are_handed_over_to_this_machine_and_a_wrong_one_is_refused_before(tmp_path):
    handed = driver.PreparedCommand.of(tmp_path, Request(extension=ClaimsRequest(names=("vgg16",))))
    assert (handed.sweep, handed.sweeps, handed.plan, handed.site.scheduler) == ("claims", (), None, "local")
    with pytest.raises(InputError, match="did you mean 'vgg16'"):
        driver.PreparedCommand.of(tmp_path, Request(extension=ClaimsRequest(names=("vg16",))))
    assert list(tmp_path.iterdir()) == []


def test_a_head_without_a_plan_is_told_by_status_alone_and_among_all(left, capsys):
    for name in (None, "tiny"):
        assert print_status(left.home, name) == 0
        assert "vanished from tmux" in capsys.readouterr().out
    DriverExit(code=3).write(left.driver_file("ended"))
    assert print_status(left.home, None) == 0
    assert "ended with exit code 3; accelsweep attach tiny" in capsys.readouterr().out
    assert _unplanned_names(left.home) == ["tiny"]
    left.manifest.write_text("{}")
    assert _unplanned_names(left.home) == [], "the plan's own lines tell of its driver"


def test_a_head_whose_slurm_does_not_answer_is_not_said_to_be_gone(tmp_path, monkeypatch, capsys):
    def silent(*_: object, **__: object) -> str:
        raise AccelsweepError("squeue did not answer within 60 s")

    monkeypatch.setattr(backends, "ask", silent)
    folder = SweepFolder(tmp_path, "tiny")
    Submission(place="slurm", name="12", host="login", since="").write(folder.driver_file("handed"))
    print_status(folder.home, "tiny")
    assert "not known: squeue did not answer within 60 s; accelsweep attach tiny" in capsys.readouterr().out
    print_status(folder.home, "tiny", as_json=True)
    assert '"state": "not known: squeue did not answer' in capsys.readouterr().out


@pytest.fixture
def left(tmp_path: Path) -> SweepFolder:
    """A sweep whose driver was handed over to a tmux that is no more, and said three lines."""
    folder = SweepFolder(tmp_path, "tiny")
    Submission(place="tmux", name="accelsweep-none", host=os.uname().nodename, since="").write(
        folder.driver_file("handed")
    )
    driver_log(folder).parent.mkdir()
    driver_log(folder).write_text("one\ntwo \x1b[31mred\nthree\n")
    return folder


def test_attach_shows_all_that_a_head_said_and_ends_as_it_ended(left, capsys):
    DriverExit(code=1).write(left.driver_file("ended"))
    assert attach(left.home, "tiny") == 1
    assert capsys.readouterr().out.splitlines()[::2] == ["one", "three"]


def test_attach_waits_for_nobody_where_something_else_stands_in_the_place_of_the_log(left):
    driver_log(left).unlink()
    os.mkfifo(driver_log(left))
    with pytest.raises(DamagedFile, match="not a regular file"):
        attach(left.home, "tiny")


def test_attach_tells_of_a_head_that_was_killed(left, capsys, monkeypatch):
    monkeypatch.setattr(command, "_STATE_POLL_SECONDS", 0.0)
    monkeypatch.setattr(command, "_LOG_POLL_SECONDS", 0.0)
    with pytest.raises(AccelsweepError, match="ended without a message"):
        attach(left.home, "tiny")
    assert "three" in capsys.readouterr().out


def test_attach_shows_whole_lines_and_waits_where_one_job_follows_another(left, capsys, monkeypatch):
    monkeypatch.setattr(command, "_STATE_POLL_SECONDS", 0.0)
    monkeypatch.setattr(command, "_LOG_POLL_SECONDS", 0.0)
    driver_log(left).write_text("one\nha")
    looks = []

    def absent(_folder):
        looks.append(_folder)
        if len(looks) == 2:
            with driver_log(left).open("a") as log:
                log.write("lf\n")
            DriverExit(code=0).write(left.driver_file("ended"))

    monkeypatch.setattr(command, "active_submission", absent)
    assert attach(left.home, "tiny") == 0
    assert capsys.readouterr().out.splitlines() == ["one", "half"]


def test_attach_without_a_detached_head_says_how_to_start_one(tmp_path):
    with pytest.raises(InputError, match="--detach starts one"):
        attach(tmp_path, "tiny")
