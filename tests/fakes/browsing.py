"""Opens a browser from a process of its own, with or without a terminal; forked.py starts it."""

from __future__ import annotations

import os
import pty
import sys
import threading

from accelsweep.tracking.ui import open_in_browser

REQUESTED = {"yes": True, "no": False, "default": None}


def main() -> int:
    """Arguments: the address, whether the browser was requested, and what stdout is."""
    address, requested, output = sys.argv[1:]
    if output == "terminal":
        user, terminal = pty.openpty()
        os.dup2(terminal, 1)
        os.set_inheritable(user, False)
    open_in_browser(address, REQUESTED[requested], print)
    for thread in threading.enumerate():
        if thread is not threading.current_thread():
            thread.join()
    return 0
