"""`accelsweep watch`: runs a training command whose rate is compared with what a sweep measured."""

from __future__ import annotations

import os
import shlex
import signal
from pathlib import Path
from typing import Annotated

import typer

from accelsweep.cli.options import SweepName, complete_setting
from accelsweep.errors import InputError
from accelsweep.features.watch.live_rate import say_on_stderr
from accelsweep.features.watch.measured_rate import EXPECTATION_VARIABLE, Expectation
from accelsweep.features.watch.records import EVERY_MINUTES, expectation_of
from accelsweep.installation import python_path, worker_folder
from accelsweep.significant_digits import count_of

MAX_BYTES = 100_000
"""Linux limits each environment variable to 128 KiB."""


def watched_environment(expectation: Expectation) -> dict[str, str]:
    """Return the environment in which each Python process compares its training."""
    text = expectation.to_json()
    if len(text) > MAX_BYTES:
        raise InputError(f"{expectation.sweep} has too many settings to compare with all: name one with --setting")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "accelsweep"
    injected = Path(__file__).with_name("injected")
    return {
        **os.environ,
        EXPECTATION_VARIABLE: text,
        "PYTHONPATH": python_path(str(injected), str(worker_folder(cache))),
    }


def watch(
    name: SweepName,
    command: Annotated[list[str], typer.Argument(help="your training command, after --")],
    setting: Annotated[
        str | None,
        typer.Option(
            "--setting",
            help="the setting to compare with: an ID, a label, or values such as batch_size=32 (default: detected from "
            "the training run)",
            autocompletion=complete_setting,
        ),
    ] = None,
    every: Annotated[float, typer.Option("--every", help="minutes between comparisons")] = EVERY_MINUTES,
) -> None:
    """`accelsweep watch NAME -- COMMAND`: become the command, so that its signals and exit code are its own."""
    expectation = expectation_of(name, setting, every)
    environment = watched_environment(expectation)
    settings = count_of(len({rate.setting for rate in expectation.rates}), "setting")
    say_on_stderr(f"comparing with {settings} of {expectation.sweep}, every {every:g} min: {shlex.join(command)}")
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and the command would inherit that
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvpe(command[0], command, environment)  # noqa: S606  the user's command, word by word
    except OSError as error:
        raise InputError(f"cannot start {command[0]!r}: {error.strerror}: type the command after --") from error
