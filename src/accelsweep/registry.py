"""Declarations of what optional features add to the core, consisting only of data and dotted names.

A feature is a folder under `features/`, or a module of a third-party package registered as an entry point in the group
`accelsweep.features`. It describes itself in a single `FEATURE = Feature(...)`, which requires importing nothing but
this module. The core imports no feature: it calls `features()` and loads a target on first use.

A target is `"module:name"`.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Literal

ENTRY_POINTS = "accelsweep.features"
"""The entry point group through which other packages provide features."""


BATCH_SEARCH_KEYS = (
    "measure.headroom",
    "measure.max_batch",
    "measure.batch_resolution",
    "measure.rank_memory_bytes",
)

WINDOW_KEYS = (
    "measure.warmup_steps",
    "measure.min_steps",
    "measure.max_steps",
    "measure.min_seconds",
    "measure.max_seconds",
)

TARGET_KEYS = ("measure.target", "measure.max_samples", "measure.validate_every_samples")

GRADIENT_KEYS = ("activation_checkpointing", "gradient_accumulation")

MODULE_KEYS = (*GRADIENT_KEYS, "compile", "compile_options", "channels_last", "loader")

QUALITY_KEYS = (
    "measure.quality_samples",
    "measure.quality_metric",
    "measure.quality_better",
    "measure.probe_steps",
    "measure.matmul_steps",
)
"""Config keys that only some tasks use, for `Task.unused_keys`."""


COMMAND_GROUPS = ("Measure", "Read results", "Decide", "Find causes", "Manage")
"""The headings in `--help` under which commands are listed."""


@dataclass(frozen=True)
class Command:
    """A command-line command. `target` is a function that Typer can inspect; `help` is its line in `--help`.

    `group` is one of `COMMAND_GROUPS`. `examples` maps each command line in the command's own help to its purpose.
    If `overrides` is set, the arguments are Hydra overrides, and Hydra's own options are rejected with an explanation.
    """

    name: str
    help: str
    target: str
    group: str
    examples: Mapping[str, str]
    overrides: bool = False


@dataclass(frozen=True)
class RunOption:
    """An option added to every command that measures; its value is stored in `Request.features[name]`.

    `target` is an `Annotated` type that Typer can inspect. `repeated` is a function that takes the value and returns
    the arguments with which a later command requests the same thing, or None if a later command must not repeat it.
    """

    name: str
    target: str
    repeated: str | None = None


@dataclass(frozen=True)
class ConfigKeys:
    """Config keys. `model` is a pydantic model with a field for each key in `group`, such as `report` or `site.slurm`.

    Keys of the group `""` are top-level keys of a setting, and are therefore part of its identity if they are set.
    """

    group: str
    model: str


@dataclass(frozen=True)
class Task:
    """A way to use a model and data, selected by the config key `task` and by `when`, which maps dotted keys to values.

    `name` is the name under which its rates are listed: the value of `task`, or a different word if `when` selects one
    of several variants. `target` is a class with the interface `worker.tasks.task.Task`. `rates` are the metrics by
    which settings may be compared, the default first. `unused_keys` are config keys that, together with all keys below
    them, do not affect its measurement. `without_loop` is the reason why it has no training loop (`task=NAME does not
    train`), or None if it has one. `check` is a function (config, file_of) that raises InputError for an invalid
    config; it is called for the configs of all tasks. `unsupported` is a function (config, site) that returns why a
    setting cannot run on the site, or None. `version_of` is a function that takes the config and returns the module
    whose version determines its speed, or None. If `model_trains` is set, the model's class performs the training
    itself, without a Trainer, and receives more arguments than its config contains.
    """

    name: str
    task: str
    target: str
    rates: tuple[str, ...]
    unused_keys: tuple[str, ...] = ()
    when: tuple[tuple[str, Any], ...] = ()
    without_loop: str | None = None
    check: str | None = None
    unsupported: str | None = None
    version_of: str | None = None
    model_trains: bool = False


@dataclass(frozen=True)
class SweepFile:
    """Files in a sweep's folder, which are included in exports.

    `pattern` is relative to the folder; `*` matches one name. `model` is the kind of document, or None for other files.
    `check` is a function (document, path, path in an exported sweep) that raises DamagedFile if the document belongs at
    a different path. `published` files are uploaded to MLflow with the report.
    """

    pattern: str
    model: str | None = None
    check: str | None = None
    published: bool = False


@dataclass(frozen=True)
class Section:
    """A part of the findings. `model` is a subclass of `records.findings.Section`.

    `build` is a function that takes an `analysis.analyse_sweep.Analysis` and returns the section, or None if the
    section does not apply to the sweep.
    """

    model: str
    build: str


@dataclass(frozen=True)
class Tables:
    """Tables of the report. `target` is a function that takes the findings and returns the tables, if any.

    `place` is `first` for tables above the settings table, and `results` for tables right below it.
    """

    target: str
    place: Literal["first", "results"] = "results"


@dataclass(frozen=True)
class Figure:
    """A figure of the report, with its title and caption.

    `draw` is a function that takes the findings and returns a `Figure` or a `Skipped` with this name. `place` is
    `first` for a figure right after the speed-ups, `last` for a figure after all others, and `table` for a figure above
    the table of the same name.
    """

    name: str
    title: str
    caption: str
    draw: str
    place: Literal["first", "last", "table"] = "last"


@dataclass(frozen=True)
class SchedulerEntry:
    """A cluster scheduler, selected by `site.scheduler=NAME`.

    `implementation` is a class with the interface `schedulers.protocol.Scheduler`, constructed from a site. `job` is a
    class whose `found()` returns the job that this process runs in (`schedulers.select.ThisJob`), or None. `variables`
    lists the environment variables of a job that are recorded. `options` is the model of the keys under `site.NAME`, a
    subclass of `config.site.JobOptions`, and `check` is a function (options, file_of) that raises InputError for
    invalid options. `says_no_memory` is a function that returns whether a line of a job's log reports that the job ran
    out of memory. `draft` is a function that takes a site's name and returns the text of a site file, based on the
    output of the commands in `draft_source`.
    """

    name: str
    title: str
    implementation: str
    job: str
    variables: tuple[str, ...]
    options: str
    check: str
    says_no_memory: str
    draft: str
    draft_source: str


@dataclass(frozen=True)
class Feature:
    """An optional capability and its parts. All fields except the name are optional.

    `name` is the name of its folder. `requires` lists the features that it imports.
    `answers` are the models of its commands' `--json` output, for the reference documentation.
    `metrics` is a mapping from metric names to `metrics.MetricInfo`.
    `setting_doubts` is a function that takes a setting's runs (`analysis.run_results.SettingRuns`) and yields doubts.
    `generated_data` are dotted names of data modules without `prepare_data`, for which torch need not be imported.
    `plan_part` is a subclass of `records.plan.PlanPart`, and `plan_blocks` is a function (`DesignInput`, the plan part,
    existing blocks, names of finished blocks) that returns the sweep's `BlockDesign`; both types are from
    `planning.randomized_blocks`.
    `grid_points` is a function (composer, grid, the accelerator that `auto` resolves to, the `report` options, file_of)
    that returns `config.grid.GridPoints` for a grid that the feature expands itself, or None.
    `report_options` is a function (the `report` options, working directory) that returns them in the form used in the
    plan, and `merge_options` is a function that merges a list of several sweeps' `report` options and returns the
    merged keys.
    `device_kind` is a subclass of `devices.device_kind.DeviceKind`.
    `reserved_names` are names that sweeps must not use.
    `request` is a subclass of `driver.request.Extension`: the part that one of its commands adds to the request.
    `run_elsewhere` is a function (home, `driver.request.Request`, the options in use that print to the terminal) that
    runs the command elsewhere, such as in the background, and returns the exit code; None if this was not requested.
    `listener` is a function (request, folder or None) that returns a `driver.run_sweep.Listener`.
    `background_driver` is a class with the interface `driver.sweep_lock.BackgroundDriver`.
    `before_measuring` is called by the driver with the sweep's folder, and yields warnings; `before_deleting` is called
    before the folder is deleted.
    `before_collect` is called with the sweep's folder before its records are read; its keyword `blocks_ended` tells
    whether all blocks have just been measured. `closer_look` is called with the folder and the findings once all blocks
    have been measured, and returns whether it has added files from which the findings should be computed again.
    `run_metrics` is a function (folder, rows) that returns the collected runs with additional metrics.
    `recommend` is a function (`analysis.headline.Situation`, blocks that would settle open comparisons) that returns
    a recommendation to replace the usual one, or None.
    `last_lines` is a function that takes the findings and yields lines and tables that `accelsweep run` prints last.
    `import_rows` is a function (home, file, source, device, name) that imports results published by others.
    `open_file` is a context manager that opens a file (a Path) as a sweep's folder, for `accelsweep.open(FILE)`.
    `experiment_tags` is a function that takes the findings and returns tags (name -> text) for the MLflow experiment.
    """

    name: str
    requires: tuple[str, ...] = ()
    commands: tuple[Command, ...] = ()
    answers: tuple[str, ...] = ()
    config_keys: tuple[ConfigKeys, ...] = ()
    tasks: tuple[Task, ...] = ()
    metrics: str | None = None
    setting_doubts: str | None = None
    generated_data: tuple[str, ...] = ()
    plan_part: str | None = None
    plan_blocks: str | None = None
    grid_points: str | None = None
    report_options: str | None = None
    merge_options: str | None = None
    device_kind: str | None = None
    reserved_names: tuple[str, ...] = ()
    files: tuple[SweepFile, ...] = ()
    before_collect: str | None = None
    closer_look: str | None = None
    run_metrics: str | None = None
    section: Section | None = None
    recommend: str | None = None
    tables: Tables | None = None
    figures: tuple[Figure, ...] = ()
    last_lines: str | None = None
    import_rows: str | None = None
    open_file: str | None = None
    experiment_tags: str | None = None
    scheduler: SchedulerEntry | None = None
    request: str | None = None
    run_options: tuple[RunOption, ...] = ()
    run_elsewhere: str | None = None
    listener: str | None = None
    background_driver: str | None = None
    before_measuring: str | None = None
    before_deleting: str | None = None


@cache
def features() -> tuple[Feature, ...]:
    """Return all features: those in `features/` sorted by name, the simulated device, then those of other packages."""
    folder = Path(__file__).with_name("features")
    names = sorted(module.name for module in pkgutil.iter_modules([str(folder)]))
    found = [
        import_module(f"accelsweep.{name}").FEATURE for name in (*(f"features.{name}" for name in names), "testing")
    ]
    found += [point.load() for point in sorted(entry_points(group=ENTRY_POINTS), key=lambda point: point.name)]
    return tuple(found)


def load(target: str) -> Any:
    """Load and return the object that a target names. Raises ImportError or AttributeError if it does not exist."""
    module, _, name = target.partition(":")
    return getattr(import_module(module), name)


def loaded(field: str) -> Iterator[Any]:
    """Load and yield each feature's target in this field, such as `recommend`."""
    for feature in features():
        if (target := getattr(feature, field)) is not None:
            yield load(target)


def commands() -> Iterator[Command]:
    """Yield the commands of all features."""
    for feature in features():
        yield from feature.commands


def run_options() -> Iterator[RunOption]:
    """Yield the options that features add to commands that measure."""
    for feature in features():
        yield from feature.run_options


@cache
def config_models(group: str) -> tuple[Any, ...]:
    """Return the models of the features' config keys in a group."""
    return tuple(load(keys.model) for feature in features() for keys in feature.config_keys if keys.group == group)


def files() -> Iterator[SweepFile]:
    """Yield the files that features write to a sweep's folder."""
    for feature in features():
        yield from feature.files


def schedulers() -> tuple[SchedulerEntry, ...]:
    """Return the schedulers that features provide."""
    return tuple(feature.scheduler for feature in features() if feature.scheduler is not None)
