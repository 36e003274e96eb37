"""What optional features bring to the core: data and dotted names only.

A feature is a folder below `features/`, or a module of somebody else's package that an entry point in the group
`accelsweep.features` names. It describes itself in one `FEATURE = Feature(...)` and imports nothing but this module to
do so. The core imports no feature: it asks `features()`, and loads a target when it uses it.

A target is `"module:name"`.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Literal

ENTRY_POINTS = "accelsweep.features"
"""The group of entry points with which other packages bring features."""


BATCH_SEARCH_KEYS = (
    "measure.headroom",
    "measure.max_batch",
    "measure.batch_resolution",
    "measure.rank_memory_bytes",
)

WINDOW_KEYS = ("measure.warmup_steps", "measure.min_steps", "measure.max_steps", "measure.min_seconds")

TARGET_KEYS = ("measure.target", "measure.max_samples", "measure.validate_every_samples")

QUALITY_KEYS = (
    "measure.quality_samples",
    "measure.quality_metric",
    "measure.quality_better",
    "measure.probe_steps",
    "measure.matmul_steps",
)
"""Config keys that only some tasks use, for `Task.unused_keys`."""


@dataclass(frozen=True)
class Command:
    """A command of the command line. `target` is a function that Typer can read; `help` is its line in `--help`.

    With `overrides` its arguments are Hydra overrides, so Hydra's own options are refused with an explanation.
    """

    name: str
    help: str
    target: str
    overrides: bool = False


@dataclass(frozen=True)
class RunOption:
    """An option of every command that measures; its value is `Request.features[name]`.

    `target` is an `Annotated` type that Typer can read. `repeated` is a function of the value that returns the words by
    which a later command asks for the same, None where it must not.
    """

    name: str
    target: str
    repeated: str | None = None


@dataclass(frozen=True)
class ConfigKeys:
    """Config keys. `model` is a pydantic model with a field for each key in `group`, such as `report` or `site.slurm`.

    Those of the group `""` are top-level keys of a setting, and so part of its identity where they are given.
    """

    group: str
    model: str


@dataclass(frozen=True)
class Task:
    """A way to use model and data, chosen by the config key `task`, and by `when`: dotted keys with their values.

    `name` is how its rates are listed: the value of `task`, or another word where `when` chooses among several.
    `target` is a class with the interface `worker.tasks.task.Task`. `rates` are the metrics that settings may be
    compared by, the usual one first. `unused_keys` are config keys, with all below them, that change nothing in its
    measurement. `without_loop` says why it has no training loop (`task=NAME does not train`), None where it has one.
    `check` is a function (config, file_of) that raises InputError for a config that does not fit; it is called for
    every task's configs. `unsupported` is a function (config, site) that returns why a setting cannot run there, or
    None. `version_of` is a function of the config that returns the module whose version decides its speed, or None.
    With `model_trains` the class of the model trains by itself: it gets more arguments than its config says, and no
    Trainer.
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
    """Files of a sweep's folder, which are exported too.

    `pattern` is relative to the folder, where `*` stands for one name. `model` is the kind of document, None for other
    files. `check` is a function (document, path, place in an exported sweep) that raises DamagedFile for a document in
    the place of another one. `published` ones go to MLflow with the report.
    """

    pattern: str
    model: str | None = None
    check: str | None = None
    published: bool = False


@dataclass(frozen=True)
class Section:
    """A part of the findings. `model` is a subclass of `records.findings.Section`.

    `build` is a function of an `analysis.analyse_sweep.Analysis` that returns the section, or None where the sweep has
    nothing of the kind.
    """

    model: str
    build: str


@dataclass(frozen=True)
class Tables:
    """Tables of the report. `target` is a function of the findings that returns them, none where there is nothing.

    `place` is `first` for tables above that of the settings, `results` for those right below it.
    """

    target: str
    place: Literal["first", "results"] = "results"


@dataclass(frozen=True)
class Figure:
    """A figure of the report, with its title and caption.

    `draw` is a function of the findings that returns a `Figure` or a `Skipped` of this name. `place` is `first` for a
    figure right after the speed-ups, `last` for one after all others, and `table` for one above the table of its name.
    """

    name: str
    title: str
    caption: str
    draw: str
    place: Literal["first", "last", "table"] = "last"


@dataclass(frozen=True)
class Scheduler:
    """A scheduler of a cluster, chosen by `site.scheduler=NAME`.

    `engine` is a class with the interface `schedulers.protocol.Engine`, made of a site. `job` is a class whose
    `found()` returns the job that this process is in (`schedulers.select.ThisJob`), or None. `variables` of a job's
    environment are kept in records. `options` is the model of the keys `site.NAME`, a subclass of
    `config.site.JobOptions`, and `check` a function (options, file_of) that raises InputError for unfit ones.
    `says_no_memory` is a function of a line of a job's log that tells whether it reports a lack of memory.
    `draft` is a function of a site's name that returns the text of a site file, from what the commands in
    `draft_source` list.
    """

    name: str
    title: str
    engine: str
    job: str
    variables: tuple[str, ...]
    options: str
    check: str
    says_no_memory: str
    draft: str
    draft_source: str


@dataclass(frozen=True)
class Feature:
    """An optional capability and its parts. Every field but the name may be left out.

    `name` is the name of its folder. `requires` names the features that it imports.
    `answers` are the models of what its commands print with `--json`, for the reference.
    `metrics` is a mapping of the names of metrics to `metrics.MetricInfo`.
    `setting_doubts` is a function of a setting's runs (`analysis.run_results.SettingRuns`) that yields doubts.
    `generated_data` are dotted names of data modules without `prepare_data`, for whose sake torch is not imported.
    `plan_part` is a subclass of `records.plan.PlanPart`, and `plan_blocks` a function (`DesignInput`, that part,
    existing blocks, names of finished blocks) that returns the `BlockDesign` of its sweep, both of
    `planning.randomized_blocks`.
    `grid_points` is a function (composer, grid, accelerator in place of `auto`, the `report` options, file_of) that
    returns `config.grid.GridPoints` for a grid that it expands in its own way, or None.
    `report_options` is a function (the `report` options, working directory) that returns them as the plan holds them,
    and `merge_options` one that returns the keys of several sweeps' `report` options (a list) as one.
    `device_kind` is a subclass of `devices.device_kind.DeviceKind`.
    `reserved_names` are names that no sweep may have.
    `request` is a subclass of `driver.request.Extension`: what one of its commands adds to the request.
    `run_elsewhere` is a function (home, `driver.request.Request`, options given that answer in the terminal) that runs
    the command elsewhere, such as in the background, and returns the exit code; None where that was not asked for.
    `listener` is a function (request, folder or None) that returns a `driver.run_sweep.Listener`.
    `background_driver` is a class with the interface `driver.sweep_lock.BackgroundDriver`.
    `before_measuring` is called with the sweep's folder by its driver, and yields warnings; `before_deleting` is called
    before the folder is deleted.
    `before_collect` is called with the sweep's folder before its records are read. `after_blocks` is a module that the
    workflow of a cluster's sweep runs as a program, with the sweep's folder, when all jobs have ended. `run_metrics` is
    a function (folder, rows) that returns the collected runs with further metrics.
    `recommend` is a function (`analysis.headline.Situation`, blocks that would settle open comparisons) that returns
    the recommendation in place of the usual one, or None.
    `last_lines` is a function of the findings that yields lines and tables for the end of `accelsweep run`.
    `import_rows` is a function (home, file, source, device, name) that imports what others have published.
    `open_file` is a context manager that opens a file (a Path) as the folder of a sweep, for `accelsweep.open(FILE)`.
    `experiment_tags` is a function of the findings that returns tags (name -> text) for the experiment in MLflow.
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
    after_blocks: str | None = None
    run_metrics: str | None = None
    section: Section | None = None
    recommend: str | None = None
    tables: Tables | None = None
    figures: tuple[Figure, ...] = ()
    last_lines: str | None = None
    import_rows: str | None = None
    open_file: str | None = None
    experiment_tags: str | None = None
    scheduler: Scheduler | None = None
    request: str | None = None
    run_options: tuple[RunOption, ...] = ()
    run_elsewhere: str | None = None
    listener: str | None = None
    background_driver: str | None = None
    before_measuring: str | None = None
    before_deleting: str | None = None


@cache
def features() -> tuple[Feature, ...]:
    """Return all features: those in `features/`, by name, the simulated device, then those of other packages."""
    folder = Path(__file__).with_name("features")
    names = sorted(module.name for module in pkgutil.iter_modules([str(folder)]))
    found = [
        import_module(f"accelsweep.{name}").FEATURE for name in (*(f"features.{name}" for name in names), "testing")
    ]
    found += [point.load() for point in sorted(entry_points(group=ENTRY_POINTS), key=lambda point: point.name)]
    return tuple(found)


def load(target: str) -> Any:
    """Return what a target names. Raises ImportError or AttributeError where there is no such thing."""
    module, _, name = target.partition(":")
    return getattr(import_module(module), name)


def loaded(field: str) -> Iterator[Any]:
    """Yield what each feature's target in this field names, such as `recommend`."""
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


def config_models(group: str) -> Iterator[Any]:
    """Yield the models of the features' config keys in a group."""
    for feature in features():
        yield from (load(keys.model) for keys in feature.config_keys if keys.group == group)


def files() -> Iterator[SweepFile]:
    """Yield the files that features leave in a sweep's folder."""
    for feature in features():
        yield from feature.files


def schedulers() -> tuple[Scheduler, ...]:
    """Return the schedulers that features bring."""
    return tuple(feature.scheduler for feature in features() if feature.scheduler is not None)
