"""Runs the user's own training script as `python SCRIPT ARGUMENTS` does, and measures its first training."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

from accelsweep.errors import InputError
from accelsweep.results import ScriptTrainer
from accelsweep.run_config import EntryPoint
from accelsweep.worker.kept_values import KeptValues
from accelsweep.worker.project_files import ProjectFiles
from accelsweep.worker.rank_setup import RankPlace, seed_all
from accelsweep.worker.run_spec import RunSpec
from accelsweep.worker.script import ErrorOutput, run_script


def run_entry_point(spec: RunSpec, place: RankPlace, measure: Callable[[tuple[str, ...], ScriptTrainer], None]) -> None:
    """Run the script; once its training is set up, call `measure`, then end the script.

    `measure` gets the files that the script has read, and its Trainer.

    Raises what the script or `measure` raises, and InputError if the script ends without being measured.
    """
    from accelsweep.worker.loops.entry_point import Measured, check_effective, observe_trainers

    entry = spec.config.entry
    assert entry is not None, "the caller checks"
    outcome, files = _Outcome(), ProjectFiles(Path.cwd())

    def measure_once(trainer: ScriptTrainer) -> None:
        files.stop()
        with outcome:
            check_effective(spec)
            measure(files.paths(), trainer)

    os.environ["TORCHELASTIC_RUN_ID"] = spec.run.name  # makes Lightning use the ranks that are already running
    os.environ["HYDRA_FULL_ERROR"] = "1"  # otherwise Hydra turns every exception of the script into sys.exit(1)
    if entry.kept_values:
        KeptValues(entry.kept_values).install()
    observe_trainers(spec, measure_once)
    seed_all(spec.run.seed)
    errors = ErrorOutput()
    try:
        with contextlib.redirect_stderr(errors):
            run_script([*entry.command, *_arguments(spec, entry, place)])
    except Measured:
        outcome.raise_error()  # the script caught the error and called `fit` again
        return
    except SystemExit as error:
        outcome.raise_error()
        if outcome.measured:
            return
        raise InputError(
            f"{_name(entry)} ended with sys.exit({error.code!r}) before it was measured{errors.quoted()}"
        ) from error
    outcome.raise_error()
    if not outcome.measured:
        raise InputError(
            f"{_name(entry)} ended without calling Trainer.fit, so there is nothing to measure: pass --entry the "
            "script that trains, with any arguments that it needs"
        )


class _Outcome:
    """Remembers how the measurement ended, because the script may catch its exception."""

    def __init__(self) -> None:
        self.measured = False
        self._error: BaseException | None = None

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.measured, self._error = error is None, error

    def raise_error(self) -> None:
        if self._error is not None:
            raise self._error


def _arguments(spec: RunSpec, entry: EntryPoint, place: RankPlace) -> list[str]:
    folder = spec.scratch() / f"rank-{place.rank}"
    folder.mkdir(parents=True, exist_ok=True)
    values = {"seed": spec.run.seed, "folder": folder}
    return [*entry.arguments, *(template.format(**values) for template in entry.run_arguments)]


def _name(entry: EntryPoint) -> str:
    return entry.command[1] if entry.command[0] == "-m" else entry.command[0]
