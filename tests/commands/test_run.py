"""What `run` reads from its options."""

import pytest

from accelsweep.base.errors import InputError
from accelsweep.commands.running.request import Request, seconds_of
from accelsweep.drive.snakemake.profiles import find_profile


@pytest.mark.parametrize(("text", "seconds"), [("90", 90), ("90s", 90), ("1.5m", 90), ("2h", 7200), (None, None)])
def test_time_budgets_are_read_with_their_units(text, seconds):
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "-5m", "5d", "m"])
def test_other_time_budgets_are_refused_with_an_example(text):
    with pytest.raises(InputError, match="30m"):
        seconds_of(text)


def test_a_profile_is_found_by_name_or_by_path(tmp_path):
    (tmp_path / "profile.yaml").write_text("cores: 1\n")
    assert find_profile("local").name == "local"
    assert find_profile(str(tmp_path)) == tmp_path


def test_an_unknown_profile_is_refused_with_the_known_ones():
    with pytest.raises(InputError, match="local"):
        find_profile("nowhere")


def test_the_command_to_resume_with_adds_no_repeats_again():
    request = Request(overrides=("experiment=tiny", "note=a b"), name="mine", add_repeats=2)
    assert request.again() == "accelsweep run experiment=tiny 'note=a b' --name mine"


def test_the_command_to_resume_with_has_the_gate_of_ab():
    request = Request(overrides=("experiment=tiny",), versions=("main", "."), compares=True, fail_if="slower:2%")
    assert request.again() == "accelsweep ab main . experiment=tiny --fail-if slower:2%"


def test_the_command_to_resume_with_shows_no_password_of_the_store():
    request = Request(overrides=("experiment=tiny",), tracking_uri="http://me:hunter2@host")
    assert request.again() == "accelsweep run experiment=tiny --tracking-uri 'http://***@host'"


def test_the_command_to_resume_with_shows_no_address_of_notices():
    request = Request(overrides=("experiment=tiny",), notify=("slack://T0K3N/T0K3N", "command: mail -s T0K3N me"))
    assert request.again() == "accelsweep run experiment=tiny --notify 'slack://***' --notify command:mail"


def test_the_command_to_resume_with_shows_no_password_of_a_store():
    request = Request(overrides=("experiment=tiny",), tracking_uri="http://me:T0K3N@host:5000")
    assert request.again() == "accelsweep run experiment=tiny --tracking-uri 'http://***@host:5000'"
