"""`accelsweep profile`: torch's profiler around some steps of one setting, or of two and what they differ in."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer
from pydantic import Field

from accelsweep.cli.options import AsJson, OneOrTwoSettings, SweepName, TrackingUri
from accelsweep.cli.runs import full_name
from accelsweep.config.setting import axes_in_words
from accelsweep.config.sweep_options import Limits
from accelsweep.config.tasks import task_of
from accelsweep.driver.console import Listing, say, show, warn
from accelsweep.driver.json_output import Answer, AnswerPart
from accelsweep.errors import AccelsweepError, InputError
from accelsweep.executor.attempt import RankRunner, standalone_spec
from accelsweep.executor.code_versions import CodeVersions
from accelsweep.executor.device_lease import Lease, leased
from accelsweep.executor.ipc import Interrupted, Signals
from accelsweep.executor.launch import Launcher
from accelsweep.executor.outcome import conclude
from accelsweep.executor.preflight import check_disk_space
from accelsweep.executor.recording import read_results
from accelsweep.executor.result_reuse import CurrentConditions
from accelsweep.features.profile.model import (
    ModuleTime,
    OperatorTime,
    PartDifference,
    SettingProfile,
    StepProfile,
    keep_profile,
    profile_folder,
    profiles_folder,
    trace_of,
)
from accelsweep.features.profile.report import circumstances, difference_words, module_words
from accelsweep.files import sha256_file
from accelsweep.records.layout import LOG_FILE, SweepFolder, existing_sweep
from accelsweep.records.plan import Manifest
from accelsweep.records.run_files import block_of
from accelsweep.records.run_record import Outcome, now
from accelsweep.report.units import number
from accelsweep.worker.run_spec import RankResult, RunSpec

if TYPE_CHECKING:
    from accelsweep.analysis.run_results import RunRow
    from accelsweep.features.profile.model import ProfileFinding


# The answer of `accelsweep profile`.


class ProfiledSetting(AnswerPart):
    """A setting under torch's profiler. Times are seconds of a mean step; none of them is a measured run's."""

    cell: str = Field(description="the setting's name in files")
    label: str = Field(description="the setting in words")
    axes: dict[str, Any] = Field(description="the swept keys with this setting's values")
    task: str = Field(description="the task whose steps these are")
    started_at: str = Field(description="when the run of the profile began")
    ranks: int = Field(description="the number of ranks, of which rank 0 was looked at")
    device: str = Field(description="the kind of device")
    device_name: str = Field(description="the device")
    warmup_steps: int = Field(description="the steps before the profile")
    steps: int = Field(description="the profiled steps")
    profiled_step_seconds: float = Field(description="a step by the clock, under the profiler")
    measured_step_seconds: float | None = Field(description="the median over the setting's measured runs")
    cost: float | None = Field(description="the profiled step over the measured one")
    changed: str | None = Field(description="what is not as it was when the setting was measured")
    operators: tuple[OperatorTime, ...] = Field(description="the operators that take longest, each by itself")
    modules: tuple[ModuleTime, ...] = Field(description="the modules that take longest, each by itself")
    folder: str = Field(description="the folder of trace.json.gz and profile.json, which has all rows")
    against: str | None = Field(description="the setting that the differences are to")
    operator_differences: tuple[PartDifference, ...] = Field(description="operators whose times differ")
    module_differences: tuple[PartDifference, ...] = Field(description="modules whose times differ")


class ProfileAnswer(Answer):
    """`accelsweep profile NAME SETTING --json`: where the time of a step goes, in one setting or in two."""

    kind: ClassVar[str] = "profile"

    sweep: str = Field(description="the sweep's name")
    settings: tuple[ProfiledSetting, ...] = Field(description="the settings, in the order that was asked for")
    report: str = Field(description="the page of the report, which shows the profiles too")


# A profile of one setting, in a run of its own: the frozen config, the devices and the processes of a measured run.


INSTEAD = "accelsweep.features.profile.profiler:profile"
"""What a rank runs in place of the measurement."""


class NotProfiled(AccelsweepError):
    """The run of a profile ended without one; the message says how, and where its output is."""


def profile_setting(
    folder: SweepFolder, cell: str, steps: int, say: Callable[[str], None], launcher: Launcher | None = None
) -> SettingProfile:
    """Profile `steps` steps of `cell` and keep the result, in the place of an earlier one of this cell.

    `say` is told of waiting for the machine. Raises InputError if no block holds the cell or it takes several nodes,
    NotProfiled where its run failed, and KeyboardInterrupt.
    """
    signals, limits = Signals(), Manifest.read(folder.manifest).settings.limits
    check_disk_space(folder.root, limits)
    profiles_folder(folder).mkdir(exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix=".", suffix=".part", dir=profiles_folder(folder)) as attempt,
        signals.caught(),
    ):
        spec = standalone_spec(folder, cell, Path(attempt), "profile", INSTEAD, steps)
        spec.write(spec.file())
        started, fingerprint = now(), CurrentConditions(folder).read_fingerprint(spec.config)
        holder = f"process {os.getpid()} (profiling {cell} of {folder.name})"
        try:
            with leased(spec.config, holder, signals.pause, say, spec.device_models) as lease:
                result = _run(folder, spec, lease, RankRunner(launcher or Launcher(), signals), limits)
        except Interrupted:
            raise KeyboardInterrupt from None
        assert result.extra is not None, "rank 0 was asked for a profile"
        found = SettingProfile(
            sweep=folder.name,
            cell=cell,
            axes=spec.axes,
            block=spec.block,
            task=spec.config.task,
            started_at=started,
            ranks=spec.world_size,
            found=StepProfile.model_validate(result.extra),
            fingerprint=fingerprint,
            trace_sha256=sha256_file(trace_of(spec)),
        )
        keep_profile(folder, found, trace_of(spec))
    return found


def _run(folder: SweepFolder, spec: RunSpec, lease: Lease, runner: RankRunner, limits: Limits) -> RankResult:
    """Return rank 0's result. Its output is kept, whatever the end."""
    ending = runner.run(spec, "spawn", lease, CodeVersions(folder).require(spec.config), limits)
    results = read_results(spec, ending.reported)
    conclusion = conclude(spec, ending, results, limits)
    log = profile_folder(folder, spec.run.cell) / LOG_FILE
    log.parent.mkdir(exist_ok=True)
    shutil.move(Path(spec.attempt_folder) / LOG_FILE, log)
    if conclusion is None:
        raise Interrupted
    if conclusion.outcome is not Outcome.measured:
        raise NotProfiled(
            f"no profile of setting {spec.run.cell}: {conclusion.outcome}: {conclusion.reason}; see {log}"
        )
    return results[0]


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
    if config.task not in TASKS or task_of(config.task, config.raw).when:
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
    from accelsweep.features.profile.model import kept_profiles
    from accelsweep.features.profile.report import compared

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


def profile(
    name: SweepName,
    settings: OneOrTwoSettings,
    steps: Annotated[int, typer.Option(min=1, max=1000, help="profile so many steps")] = 10,
    tracking_uri: TrackingUri = None,
    as_json: AsJson = False,
) -> None:
    """`accelsweep profile NAME SETTING...`."""
    profile_settings(Path.cwd(), name, settings, steps, tracking_uri, as_json=as_json)
