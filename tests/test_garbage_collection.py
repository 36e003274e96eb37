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
