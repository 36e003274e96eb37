"""A command that is asked to end does so as by Ctrl-C, unless its user has it ignore that."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from accelsweep.signals import end_as_by_ctrl_c

ENDING = (signal.SIGTERM, signal.SIGHUP)


@pytest.fixture(autouse=True)
def default_signals() -> Iterator[None]:
    before = {number: signal.signal(number, signal.SIG_DFL) for number in ENDING}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", ENDING)
def test_a_signal_to_end_is_ctrl_c(number: signal.Signals) -> None:
    end_as_by_ctrl_c()
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(number)


def test_what_nohup_ignores_stays_ignored() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    end_as_by_ctrl_c()
    signal.raise_signal(signal.SIGHUP)
