"""The browser opens where somebody looks, and where it was asked for."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.heavy

ADDRESS = "http://127.0.0.1:5000/#/experiments/1"
CODE = """
import sys, threading
from accelsweep.publish.browse.browser import open_in_browser
open_in_browser(sys.argv[1], {"yes": True, "no": False, "unsaid": None}[sys.argv[2]], print)
[thread.join() for thread in threading.enumerate() if thread is not threading.current_thread()]
"""


def opened(tmp_path: Path, asked: str, *, terminal: bool, **variables: str) -> str | None:
    """Return the address that the browser of `tmp_path` was given, if any."""
    browser, address = tmp_path / "browser", tmp_path / "address"
    browser.write_text(f'#!/bin/sh\nprintf %s "$1" > {address}\n')
    browser.chmod(0o755)
    hidden = ("DISPLAY", "WAYLAND_DISPLAY", "SSH_CONNECTION", "BROWSER")
    kept = {name: value for name, value in os.environ.items() if name not in hidden}
    environment = kept | {"BROWSER": f"{browser} %s"} | variables
    ours, theirs = pty.openpty() if terminal else os.pipe()
    command = [sys.executable, "-c", CODE, ADDRESS, asked]
    subprocess.run(command, env=environment, stdout=theirs if terminal else subprocess.DEVNULL, check=True)
    os.close(theirs)
    os.close(ours)
    return address.read_text() if address.exists() else None


@pytest.mark.parametrize(("asked", "terminal"), [("yes", True), ("yes", False), ("unsaid", True)])
def test_it_opens_where_it_was_asked_for_and_in_a_terminal_with_a_browser(
    tmp_path: Path, asked: str, terminal: bool
) -> None:
    assert opened(tmp_path, asked, terminal=terminal) == ADDRESS


@pytest.mark.parametrize(("asked", "terminal"), [("no", True), ("unsaid", False)])
def test_it_stays_closed_for_scripts_and_where_that_was_asked_for(tmp_path: Path, asked: str, terminal: bool) -> None:
    assert opened(tmp_path, asked, terminal=terminal) is None


def test_it_stays_closed_at_the_far_end_of_ssh(tmp_path: Path) -> None:
    assert opened(tmp_path, "unsaid", terminal=True, SSH_CONNECTION="10.0.0.1 22") is None


def test_a_machine_without_a_browser_says_so_where_one_was_asked_for(tmp_path: Path) -> None:
    command = [sys.executable, "-c", CODE, ADDRESS, "yes"]
    done = subprocess.run(command, env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=True)
    assert done.stdout == "no browser was found: open the address by hand, or set BROWSER\n"
