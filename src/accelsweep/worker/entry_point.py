"""Runs the user's own training script as `python SCRIPT ARGUMENTS` does, and measures its first training."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from pathlib import Path

from accelsweep import reporting
from accelsweep.errors import InputError
from accelsweep.results import ScriptTrainer
from accelsweep.run_config import EntryPoint
from accelsweep.worker.kept_values import KeptValues
from accelsweep.worker.loops.loop import Measured
from accelsweep.worker.project_files import ProjectFiles
from accelsweep.worker.rank_setup import RankPlace, seed_all
from accelsweep.worker.run_spec import RunSpec
from accelsweep.worker.script import ErrorOutput, run_script
from accelsweep.worker.script_quality import ScriptQuality, SearchedOutput


def run_entry_point(spec: RunSpec, place: RankPlace, measure: Callable[[tuple[str, ...], ScriptTrainer], None]) -> None:
    """Run the script; once its training is set up, call `measure`, then end the script.

    `measure` gets the files that the script has read, and its Trainer.

    Raises what the script or `measure` raises, and InputError if the script ends without being measured.
    """
    reporting.is_measured = True
    if spec.config.loop == "script":
        _run_script(spec, place, measure)
        return
    from accelsweep.worker.loops.entry_point import check_effective, observe_trainers

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
    errors = ErrorOutput(sys.stderr)
    try:
        with contextlib.redirect_stderr(errors):
            run_script(command_words(spec, entry, place))
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


def _run_script(spec: RunSpec, place: RankPlace, measure: Callable[[tuple[str, ...], ScriptTrainer], None]) -> None:
    """Run a script without a Lightning Trainer, and measure its steps."""
    from accelsweep.worker.loops.hugging_face import observe_trainer
    from accelsweep.worker.loops.script import ScriptLoop, WatchedSteps

    entry, metric = spec.config.entry, spec.config.measure.quality_metric
    assert entry is not None, "the caller checks"
    outcome, files = _Outcome(), ProjectFiles(Path.cwd())
    quality = None if metric is None else ScriptQuality(metric, entry.quality_pattern)

    def measure_once() -> None:
        files.stop()
        observe_trainer(lambda: steps.is_timed, (lambda _: None) if quality is None else quality.evaluated)
        with contextlib.suppress(BaseException), outcome:
            ScriptLoop(spec, steps)
            measure(files.paths(), ScriptTrainer())

    for name, value in OFFLINE.items():
        os.environ.setdefault(name, value)
    if spec.world_size == 1:
        for name in TORCHRUN:  # libraries would take a process with them for one of several
            os.environ.pop(name, None)
    else:
        os.environ["TORCHELASTIC_RUN_ID"] = spec.run.name  # makes Fabric use the ranks that are already running
    os.environ.update(entry.variables)
    steps = reporting.observer = WatchedSteps(spec, measure_once, quality)
    seed_all(spec.run.seed)
    printed = sys.stdout if quality is None else SearchedOutput(sys.stdout, quality)
    errors = ErrorOutput(sys.stderr if quality is None else SearchedOutput(sys.stderr, quality))
    ending, remedy = "ended", "measuring needs a training that goes on; pass --entry the script that trains"
    try:
        with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(printed):
            run_script(command_words(spec, entry, place))
    except Measured:
        pass
    except SystemExit as error:
        ending = f"ended with sys.exit({error.code!r})"
        remedy = remedy if error.code in (None, 0) else "its arguments come from --entry, the axes and accelsweep.yaml"
    steps.script_ended()
    outcome.raise_error()
    if not outcome.measured:
        seen = len(steps.watched)
        raise InputError(
            f"{_name(entry)} {ending} after {seen} steps of an optimiser in this process{errors.quoted()} ({remedy})"
        )


OFFLINE = {"WANDB_MODE": "disabled", "HF_HUB_OFFLINE": "1"}
"""A measured script sends nothing to trackers and downloads nothing, unless these variables are set."""


TORCHRUN = (
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "TORCHELASTIC_RUN_ID",
)
"""Variables that torchrun sets."""


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


def command_words(spec: RunSpec, entry: EntryPoint, place: RankPlace) -> list[str]:
    """Return the command with its arguments, in which `{run_dir}` stands for a folder of this rank of the run."""
    folder = spec.scratch() / f"rank-{place.rank}"
    folder.mkdir(parents=True, exist_ok=True)
    words = entry.words(run_dir=str(folder), seed=str(spec.run.seed))
    return [*words, *(template.format(seed=spec.run.seed, folder=folder) for template in entry.run_arguments)]


def _name(entry: EntryPoint) -> str:
    return entry.command[1] if entry.command[0] == "-m" else entry.command[0]
