"""The garbage collector pauses for a step, and is as it was afterwards."""

import gc

import pytest

from accelsweep.garbage_collection import collector_paused


def test_the_collector_pauses_within_and_runs_again_even_after_an_error():
    @collector_paused()
    def step():
        assert not gc.isenabled()
        raise ValueError("broken")

    assert gc.isenabled()
    with pytest.raises(ValueError, match="broken"):
        step()
    assert gc.isenabled()


def test_a_step_within_a_step_leaves_the_collector_paused():
    with collector_paused():
        with collector_paused():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()


@pytest.fixture
def nothing_frozen():
    gc.unfreeze()  # the tests' own set-up
    yield
    gc.freeze()


@pytest.mark.usefixtures("nothing_frozen")
def test_what_was_made_during_a_pause_counts_as_old_afterwards():
    with collector_paused():
        made = [[] for _ in range(1000)]
    young, old = ({id(each) for each in gc.get_objects(generation)} for generation in (0, 2))
    assert young.isdisjoint(map(id, made))
    assert old.issuperset(map(id, made))


def test_what_a_program_has_frozen_stays_frozen():
    gc.freeze()
    frozen = gc.get_freeze_count()
    with collector_paused():
        pass
    assert gc.get_freeze_count() == frozen
