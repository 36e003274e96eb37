"""Signals that ask a command to end, all taken as Ctrl-C: work is put down in order, and there is a word about it."""

from __future__ import annotations

import signal

_ENDING = (signal.SIGTERM, signal.SIGHUP)


def end_as_by_ctrl_c() -> None:
    """Have SIGTERM and SIGHUP raise KeyboardInterrupt. What is ignored, as by `nohup`, stays so. Main thread only."""
    for number in _ENDING:
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, signal.default_int_handler)
