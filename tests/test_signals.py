"""SIGTERM and SIGHUP interrupt a command as Ctrl-C does, unless they are ignored."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from accelsweep.signals import interrupt_on_termination

TERMINATION = (signal.SIGTERM, signal.SIGHUP)


@pytest.fixture(autouse=True)
def default_signals() -> Iterator[None]:
    before = {number: signal.signal(number, signal.SIG_DFL) for number in TERMINATION}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", TERMINATION)
def test_a_termination_signal_raises_keyboard_interrupt(number: signal.Signals) -> None:
    interrupt_on_termination()
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(number)


def test_a_signal_that_nohup_ignores_stays_ignored() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    interrupt_on_termination()
    signal.raise_signal(signal.SIGHUP)
