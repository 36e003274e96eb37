"""A browser that a process of its own opens, from a terminal or not; forked.py starts that process."""

from __future__ import annotations

import os
import pty
import sys
import threading

from accelsweep.tracking.ui import open_in_browser

ANSWERS = {"yes": True, "no": False, "unsaid": None}


def main() -> int:
    """Do what the command line says: the address, whether that was asked for, and whether there is a terminal."""
    address, asked, place = sys.argv[1:]
    if place == "terminal":
        user, terminal = pty.openpty()
        os.dup2(terminal, 1)
        os.set_inheritable(user, False)
    open_in_browser(address, ANSWERS[asked], print)
    for thread in threading.enumerate():
        if thread is not threading.current_thread():
            thread.join()
    return 0
