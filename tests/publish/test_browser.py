"""The browser opens where somebody looks, and where it was asked for."""

from __future__ import annotations

import os
from pathlib import Path

import forked
import pytest
from patience import PATIENCE_SECONDS

pytestmark = pytest.mark.heavy

ADDRESS = "http://127.0.0.1:5000/#/experiments/1"


def opened(tmp_path: Path, asked: str, *, terminal: bool, **variables: str) -> str | None:
    """Return the address that the browser of `tmp_path` was given, if any."""
    browser, address = tmp_path / "browser", tmp_path / "address"
    browser.write_text(f'#!/bin/sh\nprintf %s "$1" > {address}\n')
    browser.chmod(0o755)
    hidden = ("DISPLAY", "WAYLAND_DISPLAY", "SSH_CONNECTION", "BROWSER")
    kept = {name: value for name, value in os.environ.items() if name not in hidden}
    environment = kept | {"BROWSER": f"{browser} %s"} | variables
    assert said(tmp_path, asked, environment, place="terminal" if terminal else "pipe") == ""
    return address.read_text() if address.exists() else None


def said(tmp_path: Path, asked: str, environment: dict[str, str], place: str) -> str:
    """Return what a process in this environment printed beside its terminal."""
    with forked.start("browsing", ADDRESS, asked, place, cwd=tmp_path, environment=environment) as process:
        printed, _ = process.communicate(PATIENCE_SECONDS)
        assert process.wait() == 0, printed
    return printed


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
    printed = said(tmp_path, "yes", {"PATH": str(tmp_path)}, place="pipe")
    assert printed == "no browser was found: open the address by hand, or set BROWSER\n"
