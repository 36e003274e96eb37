"""`accelsweep profile`: runs torch's profiler on some steps of one setting, or compares two."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

import typer
from pydantic import Field, TypeAdapter

from accelsweep.cli.options import AsJson, SweepName, TrackingUri, complete_setting
from accelsweep.cli.runs import resolve_setting
from accelsweep.config.sweep_options import Limits
from accelsweep.driver.console import Listing, say, show, warn
from accelsweep.driver.json_output import Answer
from accelsweep.errors import AccelsweepError, InputError
from accelsweep.executor.attempt import RankRunner, standalone_spec
from accelsweep.executor.attempt_outcome import conclude
from accelsweep.executor.code_versions import CodeVersions
from accelsweep.executor.device_lease import Lease, leased
from accelsweep.executor.launch import Launcher
from accelsweep.executor.preflight import check_disk_space
from accelsweep.executor.recording import read_results
from accelsweep.executor.result_reuse import CurrentConditions
from accelsweep.executor.sampler import Sampler
from accelsweep.features.profile.model import (
    ProfileFinding,
    SettingProfile,
    profile_folder,
    profiles_folder,
    store_profile,
    stored_profiles,
)
from accelsweep.features.profile.report import circumstances, compare, difference_words, module_words
from accelsweep.features.profile.step_profile import StepProfile, trace_of
from accelsweep.files import sha256_file
from accelsweep.ipc import Interrupted, Signals
from accelsweep.records.layout import LOG_FILE, SweepFolder, existing_sweep
from accelsweep.records.plan import Manifest
from accelsweep.records.run_files import block_of
from accelsweep.records.run_record import now
from accelsweep.report.formatting import number
from accelsweep.results import Outcome, RankResult
from accelsweep.tasks import task_of
from accelsweep.worker.run_spec import RunSpec

if TYPE_CHECKING:
    from accelsweep.analysis.run_results import RunRow


OneOrTwoSettings = Annotated[
    list[str],
    typer.Argument(
        help="a setting's ID or a prefix of it, its label, or values such as batch_size=32; two settings are compared",
        autocompletion=complete_setting,
    ),
]

PROFILE_TASKS = ("train_throughput", "time_to_accuracy", "inference")
"""Tasks that run model steps."""

ENTRY_POINT = "accelsweep.features.profile.profiler:profile"
"""What each rank runs instead of the measurement."""


class ProfileAnswer(Answer):
    """`accelsweep profile NAME SETTING --json`: where a step's time goes, in one or two settings."""

    kind: ClassVar[str] = "profile"

    sweep: str = Field(description="the sweep's name")
    settings: tuple[ProfileFinding, ...] = Field(description="the settings, in the requested order")
    report: str = Field(description="the page of the report, which also shows the profiles")


class NotProfiled(AccelsweepError):
    """A profiling run failed; the message contains the reason and the log's path."""


def profile_setting(
    folder: SweepFolder, setting: str, steps: int, report: Callable[[str], None], launcher: Launcher | None = None
) -> None:
    """Profile `steps` steps of a setting in a separate run, and store the result, replacing any earlier one.

    `report` receives messages about waiting for devices. Raises InputError if no block contains the setting or if the
    setting needs several nodes, NotProfiled if the run failed, and KeyboardInterrupt if interrupted.
    """
    signals, limits = Signals(), Manifest.read(folder.manifest).options.limits
    limits = limits.model_copy(update={"sample_seconds": None})
    check_disk_space(folder.root, limits)
    profiles_folder(folder).mkdir(exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix=".", suffix=".part", dir=profiles_folder(folder)) as attempt,
        signals.caught(),
    ):
        spec = standalone_spec(folder, setting, Path(attempt), "profile", ENTRY_POINT, steps)
        measure = replace(spec.config.measure, quality_samples=None)  # a script's quality phase would come first
        spec = replace(spec, config=replace(spec.config, measure=measure))
        spec.write()
        started, fingerprint = now(), CurrentConditions(folder).read_fingerprint(spec.config)
        holder = f"process {os.getpid()} (profiling {setting} of {folder.name})"
        try:
            with leased(spec.config, holder, signals.pause, report, spec.device_models) as lease, Sampler() as sampler:
                result = _run(folder, spec, lease, RankRunner(launcher or Launcher(), signals, sampler), limits)
        except Interrupted:
            raise KeyboardInterrupt from None
        assert result.extra is not None, "rank 0 was asked for a profile"
        profile = SettingProfile(
            sweep=folder.name,
            setting=setting,
            axes=dict(spec.axes),
            block=spec.block,
            task=spec.config.task,
            started_at=started,
            ranks=spec.world_size,
            profile=TypeAdapter(StepProfile).validate_python(result.extra),
            fingerprint=fingerprint,
            trace_sha256=sha256_file(trace_of(spec)),
        )
        store_profile(folder, profile, trace_of(spec))


def _run(folder: SweepFolder, spec: RunSpec, lease: Lease, runner: RankRunner, limits: Limits) -> RankResult:
    """Return rank 0's result. The log is kept even if the run fails."""
    ending = runner.run(spec, "spawn", lease, CodeVersions(folder).run_code(spec.config), limits)
    results = read_results(spec, ending.reported)
    conclusion = conclude(spec, ending, results, limits)
    log = profile_folder(folder, spec.run.setting) / LOG_FILE
    log.parent.mkdir(exist_ok=True)
    shutil.move(Path(spec.attempt_folder) / LOG_FILE, log)
    if conclusion is None:
        raise Interrupted
    if conclusion.outcome is not Outcome.measured:
        raise NotProfiled(
            f"no profile of setting {spec.run.setting}: {conclusion.outcome}: {conclusion.reason}; see {log}"
        )
    return results[0]


def profile_settings(
    home: Path, name: str, names: Sequence[str], steps: int, tracking_uri: str | None, *, as_json: bool = False
) -> None:
    """Profile one or two settings, print the profiles, and update the report.

    Raises InputError for invalid settings, AccelsweepError if the sweep is being run or a run fails.
    """
    from accelsweep.analysis.collect import read_runs
    from accelsweep.driver.finalize import finalize
    from accelsweep.driver.sweep_lock import refuse_if_running

    folder = existing_sweep(home, name)
    manifest = Manifest.read(folder.manifest)
    settings = [resolve_setting(folder, given) for given in names]
    if len(settings) > 2 or len(set(settings)) < len(settings):
        raise InputError("profile takes one setting, or two different ones to compare")
    runs = read_runs(folder, manifest)
    for setting in settings:
        refuse_to_profile(folder, manifest, setting)
        _check_measured(folder, setting, runs)
    refuse_if_running(folder)
    for setting in settings:
        profile_setting(folder, setting, steps, warn)
    finalize(folder)
    axes = {setting.name: setting.axes for setting in manifest.settings}
    stored = stored_profiles(folder, settings).intact
    profiles = [
        compare(profile, stored[0] if place else None, runs, axes[profile.setting])
        for place, profile in enumerate(stored)
    ]
    published = _publish(folder, tracking_uri)
    if as_json:
        say(ProfileAnswer(sweep=name, settings=tuple(profiles), report=str(folder.page)).text())
        return
    _print(name, profiles)
    say(folder.page)
    say(published)


def refuse_to_profile(folder: SweepFolder, manifest: Manifest, setting: str) -> None:
    """Raise InputError if a setting runs no model steps."""
    config = block_of(folder, manifest, setting).configs[setting]
    if config.whole_process:
        raise InputError(f"setting {setting} has no steps to profile, because measure.scope=process times a process")
    conditions = {key for key, _ in task_of(config.task, config.raw).when} - {"loop", "batch_unit"}
    if config.task not in PROFILE_TASKS or conditions:
        what = "its queries come from a load generator" if config.task in PROFILE_TASKS else f"task={config.task}"
        raise InputError(
            f"setting {setting} has no steps to profile ({what}); these tasks have steps: {', '.join(PROFILE_TASKS)}"
        )


def _check_measured(folder: SweepFolder, setting: str, runs: Sequence[RunRow]) -> None:
    """Raise InputError if a setting was not measured."""
    if not any(run.setting == setting and run.value("step_seconds") is not None for run in runs):
        raise InputError(
            f"setting {setting} of {folder.name!r} was not measured, so there is nothing to profile. Measure it "
            f"first (accelsweep runs {folder.name} shows its progress)"
        )


def _publish(folder: SweepFolder, tracking_uri: str | None) -> str:
    """Copy the profiles to MLflow if the sweep is published or a URI was given; return a summary."""
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


def _print(name: str, profiles: Sequence[ProfileFinding]) -> None:
    for profile in profiles:
        say(f"{name}, {profile.label}: {circumstances(profile)}")
        say(_cost(profile))
        if profile.changed is not None:
            say(f"changed since the measurement: {profile.changed}")
        show(_operators(profile, profile.label))
        say("modules: " + "; ".join(module_words(row) for row in profile.modules))
        say(f"trace: {profile.folder}/trace.json.gz (open it in ui.perfetto.dev or chrome://tracing)")
    if len(profiles) == 2:
        first, second = profiles
        against = f"{second.label} against {first.label}"
        say(f"{against}, operators: {difference_words(second.operator_differences)}")
        say(f"{against}, modules: {difference_words(second.module_differences)}")


def _cost(profile: ProfileFinding) -> str:
    profiled, measured = number(profile.profiled_step_seconds, "s"), number(profile.measured_step_seconds, "s")
    if profile.cost is None:
        return f"a profiled step took {profiled}; there is no measured step left to compare it with"
    return f"a profiled step took {profiled}, a measured one {measured}: the profiler's overhead is {profile.cost:.2f}x"


def _operators(profile: ProfileFinding, label: str) -> Listing:
    headings = ("operator", "calls", "host", "device", "of the step")
    rows = []
    for row in profile.operators:
        device = "-" if row.device_seconds is None else number(row.device_seconds, "s")
        share = f"{row.seconds / profile.profiled_step_seconds:.0%}"
        rows.append((row.name, f"{row.calls:g}", number(row.host_seconds, "s"), device, share))
    return Listing(f"operators in a step of {label}", headings, tuple(rows), headings[1:])


def profile(
    name: SweepName,
    settings: OneOrTwoSettings,
    steps: Annotated[int, typer.Option(min=1, max=1000, help="number of steps to profile")] = 10,
    tracking_uri: TrackingUri = None,
    as_json: AsJson = False,
) -> None:
    """`accelsweep profile NAME SETTING...`."""
    profile_settings(Path.cwd(), name, settings, steps, tracking_uri, as_json=as_json)
