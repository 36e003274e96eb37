"""A head that leaves its terminal: what it is told to do, what it prints, and when no further one follows."""

import os
import stat
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from accelsweep.base.errors import AccelsweepError, InputError
from accelsweep.commands.detached import attach as attaching
from accelsweep.commands.detached.attach import attach
from accelsweep.commands.detached.carry_on import MOST_STARTS, last_of_chain
from accelsweep.commands.detached.order import HeadOrder
from accelsweep.commands.running.request import Request
from accelsweep.core.plans import Manifest
from accelsweep.core.settings import Site
from accelsweep.drive.detached.handed import Handed, HeadEnd
from accelsweep.state.folders import SweepFolder

ODD = ("experiment=tiny", "+env.WORDS='two  words'", 'model.name="a\\"b"', "x=$(id);`id`", "y=\t\n", "z=é")
SECRET = "slack://T0K3N/T0K3N"


def order(**changes: object) -> HeadOrder:
    request = Request(overrides=ODD, notify=(SECRET,), tracking_uri="http://me:pass@host", **changes)
    return HeadOrder(request=request, site=Site(name="local"), sweeps=("tiny",), revision=2)


def test_an_order_keeps_every_argument_exactly_and_its_owner_alone_can_read_it(tmp_path):
    os.umask(before := os.umask(0))
    os.umask(0)
    try:
        order(jobs=3).write(tmp_path / "order.json")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "order.json").stat().st_mode) == 0o600
    assert HeadOrder.read(tmp_path / "order.json") == order(jobs=3)


def test_repeats_that_are_in_the_plan_are_not_added_by_another_head(example_sweep):
    revision = Manifest.read(example_sweep.manifest).revision
    waiting = order(add_repeats=2).model_copy(update={"revision": revision + 1})
    assert waiting.begun(example_sweep).request.add_repeats == 2
    planned = waiting.model_copy(update={"revision": revision})
    assert planned.begun(example_sweep).request.add_repeats == 0
    assert planned.begun(example_sweep).begun(example_sweep).starts == 2


def test_the_next_head_has_what_is_left_of_the_time_budget():
    assert order(time_budget="1h").later(time.monotonic() - 600).request.time_budget == "3000s"
    assert order(time_budget="5m").later(time.monotonic() - 600).request.time_budget == "1s"
    assert order().later(time.monotonic() - 600).request.time_budget is None


@pytest.mark.parametrize(
    ("starts", "moved", "waiting", "ends"),
    [(1, True, 0, False), (1, False, 2, False), (1, False, 0, True), (MOST_STARTS, True, 2, True)],
)
def test_a_chain_of_heads_goes_on_while_something_moves_or_waits_and_has_an_end(starts, moved, waiting, ends):
    assert (last_of_chain(starts, moved=moved, waiting=waiting) is not None) is ends


@pytest.mark.parametrize("option", [["--dry-run"], ["--cfg", "job"]])
def test_what_answers_in_the_terminal_is_not_detached(option, tmp_path, monkeypatch):
    from accelsweep.cli import app

    monkeypatch.chdir(tmp_path)
    ended = CliRunner().invoke(app, ["run", "experiment=quickstart", "--detach", *option])
    assert isinstance(ended.exception, InputError)
    assert f"{option[0]} answers in this terminal" in str(ended.exception)


@pytest.fixture
def left(tmp_path: Path) -> SweepFolder:
    """A sweep whose head was handed over to a tmux that is no more, and said three lines."""
    folder = SweepFolder(tmp_path, "tiny")
    Handed(place="tmux", name="accelsweep-none", host=os.uname().nodename, since="").write(folder.of_head("handed"))
    folder.head_log.parent.mkdir()
    folder.head_log.write_text("one\ntwo \x1b[31mred\nthree\n")
    return folder


def test_attach_shows_all_that_a_head_said_and_ends_as_it_ended(left, capsys):
    HeadEnd(code=1).write(left.of_head("ended"))
    assert attach(left.home, "tiny") == 1
    assert capsys.readouterr().out.splitlines()[::2] == ["one", "three"]


def test_attach_tells_of_a_head_that_was_killed(left, capsys, monkeypatch):
    monkeypatch.setattr(attaching, "_ASK_SECONDS", 0.0)
    monkeypatch.setattr(attaching, "_READ_SECONDS", 0.0)
    with pytest.raises(AccelsweepError, match="ended without a word"):
        attach(left.home, "tiny")
    assert "three" in capsys.readouterr().out


def test_attach_without_a_detached_head_says_how_to_start_one(tmp_path):
    with pytest.raises(InputError, match="--detach starts one"):
        attach(tmp_path, "tiny")
