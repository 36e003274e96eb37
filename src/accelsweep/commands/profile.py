"""`accelsweep profile`: torch's profiler around some steps of one setting, or of two and what they differ in."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from accelsweep.cli.runs import full_name
from accelsweep.config.setting import axes_in_words
from accelsweep.driver.console import Listing, say, show, warn
from accelsweep.errors import AccelsweepError, InputError
from accelsweep.records.layout import SweepFolder, existing_sweep
from accelsweep.records.plan import Manifest
from accelsweep.records.run_files import block_of
from accelsweep.report.profiles.words import circumstances, difference_words, module_words
from accelsweep.report.units import number

if TYPE_CHECKING:
    from accelsweep.analysis.run_results import RunRow
    from accelsweep.core.recorded.profiles import OperatorTime, ProfileFinding

TASKS = ("train_throughput", "time_to_accuracy", "inference")
"""The tasks whose steps are a model's."""


def profile_settings(
    home: Path, name: str, settings: Sequence[str], steps: int, tracking_uri: str | None, *, as_json: bool = False
) -> None:
    """Profile one setting or two, print what was seen, and write the report again.

    Raises InputError for wrong settings, AccelsweepError while the sweep is being run and where a run fails.
    """
    from accelsweep.analysis.collect import look_up
    from accelsweep.driver.finalize import finish
    from accelsweep.driver.sweep_lock import refuse_while_run
    from accelsweep.supervise.profiling import profile_setting

    folder = existing_sweep(home, name)
    manifest = Manifest.read(folder.manifest)
    cells = _cells(folder, settings)
    runs = look_up(folder, manifest)
    for cell in cells:
        _refuse(folder, manifest, cell, runs)
    refuse_while_run(folder)
    for cell in cells:
        profile_setting(folder, cell, steps, warn)
    page = finish(folder)
    found = _findings(folder, manifest, cells, runs)
    mlflow = _published(folder, tracking_uri)
    if as_json:
        from accelsweep.answers.forms.profiled import ProfileAnswer

        say(ProfileAnswer.model_validate({"sweep": name, "settings": found, "report": str(page)}).text())
        return
    _print(name, found)
    say(page)
    say(mlflow)


def _cells(folder: SweepFolder, settings: Sequence[str]) -> list[str]:
    cells = [full_name(folder, setting) for setting in settings]
    if len(cells) > 2 or len(set(cells)) < len(cells):
        raise InputError("profile takes one setting, or two different ones to tell what they differ in")
    return cells


def _refuse(folder: SweepFolder, manifest: Manifest, cell: str, runs: Sequence[RunRow]) -> None:
    """Raise InputError for a setting without steps of a model, and for one that was not measured."""
    config = block_of(folder, manifest, cell).configs[cell]
    loadgen = config.serving is not None and config.serving.generator == "loadgen"
    if config.task not in TASKS or config.work == "serving" or loadgen:
        what = "a load generator asks it" if config.task in TASKS else f"task={config.task}"
        raise InputError(f"setting {cell} has no steps to profile ({what}); there are steps in {', '.join(TASKS)}")
    if not any(run.cell == cell and run.value("step_seconds") is not None for run in runs):
        raise InputError(
            f"setting {cell} of {folder.name!r} was not measured, so there is nothing to look closer at. Measure it "
            f"first (accelsweep runs {folder.name} tells how far it is)"
        )


def _findings(
    folder: SweepFolder, manifest: Manifest, cells: Sequence[str], runs: Sequence[RunRow]
) -> list[ProfileFinding]:
    """Return the profiles of these settings, the second with its differences to the first."""
    from accelsweep.analyse.beside.profiles import compared
    from accelsweep.state.profiles import kept_profiles

    axes = {cell.name: cell.axes for cell in manifest.cells}
    kept = kept_profiles(folder, cells).whole
    return [
        compared(profile, kept[0] if place else None, runs, axes[profile.cell]) for place, profile in enumerate(kept)
    ]


def _published(folder: SweepFolder, tracking_uri: str | None) -> str:
    """Copy the profiles to MLflow, if the sweep is there or an address was given; return what was done, in words."""
    from accelsweep.cli.sweeps import publish_now

    later = f"accelsweep publish {folder.name} copies the profile to MLflow"
    if tracking_uri is None and not folder.published.is_file():
        return later
    try:
        return publish_now(folder.home, folder.name, tracking_uri)
    except InputError:
        raise
    except AccelsweepError as error:
        return f"{error}\n{later}"


def _print(name: str, found: Sequence[ProfileFinding]) -> None:
    for profile in found:
        words = axes_in_words(profile.axes)
        say(f"{name}, {words}: {circumstances(profile)}")
        say(_cost(profile))
        if profile.changed is not None:
            say(f"not as it was measured: {profile.changed}")
        show(_operators(profile, words))
        say("modules: " + "; ".join(module_words(row) for row in profile.modules))
        say(f"trace: {profile.folder}/trace.json.gz (open it in ui.perfetto.dev or chrome://tracing)")
    if len(found) == 2:
        first, second = found
        against = f"{axes_in_words(second.axes)} against {axes_in_words(first.axes)}"
        say(f"{against}, operators: {difference_words(second.operator_differences)}")
        say(f"{against}, modules: {difference_words(second.module_differences)}")


def _cost(profile: ProfileFinding) -> str:
    profiled, measured = number(profile.profiled_step_seconds, "s"), number(profile.measured_step_seconds, "s")
    if profile.cost is None:
        return f"a profiled step took {profiled}; no measured one is left to compare with"
    return f"a profiled step took {profiled}, a measured one {measured}: the profiler itself costs {profile.cost:.2f}x"


def _operators(profile: ProfileFinding, words: str) -> Listing:
    headings = ("operator", "calls", "host", "device", "of the step")
    rows = tuple(_row(row, profile.profiled_step_seconds) for row in profile.operators)
    return Listing(f"operators in a step of {words}", headings, rows, headings[1:])


def _row(row: OperatorTime, step: float) -> tuple[str, ...]:
    device = "-" if row.device_seconds is None else number(row.device_seconds, "s")
    return (row.name, f"{row.calls:g}", number(row.host_seconds, "s"), device, f"{row.seconds / step:.0%}")
