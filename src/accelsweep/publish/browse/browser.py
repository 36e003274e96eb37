"""The user's browser: opened where there is one to look at, or where it was asked for."""

from __future__ import annotations

import os
import sys
import threading
import webbrowser

from accelsweep.publish.publisher import Tell


def open_in_browser(address: str, asked: bool | None, tell: Tell) -> None:
    """Open `address` in the browser. If `asked` is None, only from a terminal on a desktop or with BROWSER set.

    `tell` gets a line where a browser was asked for and there is none.
    """
    if asked is False or (asked is None and not _at_a_desktop()):
        return
    try:
        browser = webbrowser.get()
    except webbrowser.Error:
        if asked:
            tell("no browser was found: open the address by hand, or set BROWSER")
        return
    threading.Thread(target=browser.open, args=(address,), daemon=True).start()  # some return when they are closed


def _at_a_desktop() -> bool:
    shown = sys.platform in ("darwin", "win32") or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")))
    return shown and sys.stdout.isatty() and "SSH_CONNECTION" not in os.environ
