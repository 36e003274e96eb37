"""What `run` reads from its options."""

from types import SimpleNamespace

import pytest

from accelsweep.driver import run_sweep as running
from accelsweep.driver.request import Request
from accelsweep.driver.run_sweep import SweepExit
from accelsweep.driver.snakefile_functions import find_profile
from accelsweep.errors import EXIT_INCOMPLETE, InputError
from accelsweep.features.ab.command import VersionsRequest


@pytest.mark.parametrize(("text", "seconds"), [("90", 90), ("90s", 90), ("1.5m", 90), ("2h", 7200), (None, None)])
def test_time_budgets_are_read_with_their_units(text, seconds):
    assert Request(time_budget=text).budget_seconds == seconds


@pytest.mark.parametrize("text", ["", "soon", "-5m", "5d", "m"])
def test_other_time_budgets_are_refused_with_an_example(text):
    with pytest.raises(InputError, match="30m"):
        Request(time_budget=text).budget_seconds  # noqa: B018 - it raises


def test_a_profile_is_found_by_name_or_by_path(tmp_path):
    (tmp_path / "profile.yaml").write_text("cores: 1\n")
    assert find_profile("local").name == "local"
    assert find_profile(str(tmp_path)) == tmp_path


def test_an_unknown_profile_is_refused_with_the_known_ones():
    with pytest.raises(InputError, match="local"):
        find_profile("nowhere")


def test_the_resume_command_does_not_add_repeats_again():
    request = Request(overrides=("experiment=tiny", "note=a b"), name="mine", add_repeats=2)
    assert request.resume_command() == "accelsweep run experiment=tiny 'note=a b' --name mine"


def test_the_resume_command_has_the_gate_of_ab():
    request = Request(
        overrides=("experiment=tiny",), extension=VersionsRequest(names=("main", "."), fail_if="slower:2%")
    )
    assert request.resume_command() == "accelsweep ab main . --fail-if slower:2% experiment=tiny"


def test_the_resume_command_shows_no_password_in_the_stores_url():
    request = Request(overrides=("experiment=tiny",), tracking_uri="http://me:hunter2@host")
    assert request.resume_command() == "accelsweep run experiment=tiny --tracking-uri 'http://***@host'"


def test_the_resume_command_shows_no_notification_targets():
    request = Request(
        overrides=("experiment=tiny",), features={"notify": ["slack://T0K3N/T0K3N", "command: mail -s T0K3N me"]}
    )
    assert request.resume_command() == "accelsweep run experiment=tiny --notify 'slack://***' --notify command:mail"


def test_the_resume_command_shows_no_password_of_a_store():
    request = Request(overrides=("experiment=tiny",), tracking_uri="http://me:T0K3N@host:5000")
    assert request.resume_command() == "accelsweep run experiment=tiny --tracking-uri 'http://***@host:5000'"


@pytest.fixture
def heard(tmp_path):
    """Where notices go; a function that returns those that came."""
    file = tmp_path / "heard.txt"
    return f"command: cat >> {file}", lambda: file.read_text().splitlines() if file.exists() else []


@pytest.mark.parametrize(("name", "title"), [(None, "accelsweep"), ("mine", "accelsweep mine")])
def test_a_sweep_that_cannot_be_planned_sends_a_notification(tmp_path, monkeypatch, heard, name, title):
    """A detached driver plans again, hours later, and nobody sees why it cannot."""

    def refused(*_):
        raise InputError("no experiment 'quikstart'")

    monkeypatch.setattr(running, "plan_or_searches", refused)
    where, came = heard
    with pytest.raises(InputError):
        running.run_sweep(tmp_path, Request((), name=name, features={"notify": [where]}))
    assert came() == [f"{title}: ended with an error: no experiment 'quikstart'"]


def test_searches_notify_on_failures_and_completion(tmp_path, monkeypatch, heard):
    def failing(_folder, _request, _plan, _budget, listeners, *_):
        listeners.progressed(SimpleNamespace(failure="batch auto, repeat 0  crashed: no memory"))
        return EXIT_INCOMPLETE

    site = SimpleNamespace(scheduler="slurm")
    first = SimpleNamespace(manifest=SimpleNamespace(sweep="mine-largest-batch", site=site))
    monkeypatch.setattr(running, "plan_or_searches", lambda *_: (SimpleNamespace(sweep="mine"), first))
    monkeypatch.setattr(running, "measure_sweep", failing)
    for name in ("check_and_show_plan", "announce_searches", "report_searches"):
        monkeypatch.setattr(running, name, lambda *_: None)
    where, came = heard
    assert running.run_sweep(tmp_path, Request((), features={"notify": [where]})) == SweepExit("mine", EXIT_INCOMPLETE)
    assert came() == [
        "accelsweep mine-largest-batch: the first run failed: batch auto, repeat 0  crashed: no memory",
        "accelsweep mine-largest-batch: ended without a report: accelsweep status mine-largest-batch",
    ]
