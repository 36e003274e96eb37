"""Builds a plan from overrides and writes it. This is the first step of a sweep, on the command line and in Snakemake.

`make_plan` reads configs, the declared inventory and the sweep's previous plan, but no records. It writes nothing, so
invalid input leaves no trace. `write_plan` then writes the blocks and, finally, the manifest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from accelsweep import registry
from accelsweep.config.setting import Setting, label
from accelsweep.config.sweep_options import LOOKS, REPEATS_LEAST, Options
from accelsweep.config.versions import Version
from accelsweep.errors import AccelsweepError, DamagedFile, InputError
from accelsweep.files import set_aside, write_bytes_atomically
from accelsweep.planning import auto_batch_size
from accelsweep.planning.checked_grid import (
    BatchSearchNeeded,
    CheckedGrid,
    VersionedGrid,
    entry_grid,
    grid_with_batch_sizes,
    matches,
    project_grid,
)
from accelsweep.planning.entry_point import measured_project
from accelsweep.planning.project_config import Compositions
from accelsweep.planning.project_overrides import DEFAULT_MINUTES
from accelsweep.planning.randomized_blocks import (
    BlockDesign,
    DesignInput,
    block_design,
    paired_block_design,
    version_groups,
)
from accelsweep.planning.source_digests import core_versions
from accelsweep.records.cleanup import refuse_obstacles
from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import (
    Block,
    FoundBatch,
    Manifest,
    MeasuredProject,
    PlannedSetting,
    PlanPart,
    TrialFindings,
)
from accelsweep.redaction import without_secrets
from accelsweep.run_config import VERSION


@dataclass(frozen=True)
class Plan:
    """A plan that has not been written yet: the manifest, the blocks without a file, and every setting with its config.

    `notes` contains sentences for the user. `previous` is the manifest of the preceding plan, None for the first plan.
    `damaged` lists unreadable files of the previous plan, which are set aside when this plan is written. `versioned` is
    the grid of the compared versions, and `entry_options` are the arguments of `make_plan` about the user's own script.
    """

    manifest: Manifest
    new_blocks: tuple[Block, ...]
    settings: tuple[Setting, ...]
    notes: tuple[str, ...] = ()
    previous: Manifest | None = None
    damaged: tuple[Path, ...] = ()
    versioned: VersionedGrid | None = None
    entry_options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def changed(self) -> bool:
        """Whether writing this plan would change anything on disk."""
        return self.manifest != self.previous or bool(self.new_blocks) or bool(self.damaged)


@dataclass(frozen=True)
class PreviousPlan:
    """The plan on disk: its `blocks` in the order in which they were planned, followed by those of earlier plans.

    `revision` is the number of the last revision, or 0 if there is none. `damaged` lists files that were not read.
    """

    manifest: Manifest | None
    revision: int
    blocks: tuple[Block, ...]
    damaged: tuple[Path, ...]
    notes: tuple[str, ...]


def read_previous_plan(folder: SweepFolder) -> PreviousPlan:
    """Read the plan in the sweep's folder, but no records; the result is empty if there is no plan yet."""
    damaged: list[DamagedFile] = []
    manifest = None
    try:
        manifest = Manifest.read(folder.manifest)
    except FileNotFoundError:
        pass
    except DamagedFile as error:
        damaged.append(error)
    blocks = {}
    for path in folder.blocks():
        try:
            blocks[path.stem] = Block.read(path)
        except DamagedFile as error:
            damaged.append(error)
    planned = [block.name for block in manifest.blocks if block.name in blocks] if manifest else []
    return PreviousPlan(
        manifest=manifest,
        revision=max([manifest.revision if manifest else 0, *folder.revisions()]),
        blocks=tuple(blocks[name] for name in dict.fromkeys([*planned, *blocks])),
        damaged=tuple(error.path for error in damaged),
        notes=tuple(f"{error}; it is set aside and planned again" for error in damaged),
    )


def make_plan(
    home: Path,
    overrides: Sequence[str],
    *,
    name: str | None = None,
    add_repeats: int = 0,
    total_repeats: int | None = None,
    until_decided: bool = False,
    decided_at: Mapping[str, int] | None = None,
    versioned: VersionedGrid | None = None,
    profile: str | None = None,
    search_results: auto_batch_size.SearchResults | None = None,
    part: PlanPart | None = None,
    entry: str | None = None,
    trial: TrialFindings | None = None,
    compositions: Compositions | None = None,
    minutes: float | None = None,
) -> Plan:
    """Return the plan for Hydra overrides used in the working directory `home`, without writing anything.

    `name` is the sweep's name; it defaults to the config's `name` or, if that is not set, to the experiment's name.
    `add_repeats` adds blocks to the previous plan with this name; later plans keep them as long as the config's
    `repeats` stays the same. `total_repeats` is the number of blocks that the pilot requires if `repeats` is `auto`;
    later plans keep it as well. If `until_decided` is set, it is the number of blocks at the next interim analysis, and
    `decided_at` contains the settings decided so far. `versioned` is the grid of the versions to compare, baseline
    first. `profile` is the Snakemake profile, which is included in printed commands; it defaults to the previous
    plan's. `search_results` contains the batch sizes found for `batch_size: auto`; those in the previous plan are kept.
    `part` is a feature command's addition to the plan. `entry` is the command that runs the user's own training script;
    if it is None, a script is looked for unless the overrides compose a model of accelsweep's. `trial` is what a trial
    of that script has shown; if it is None, the previous plan's trial counts. `compositions` are that project's
    configs, as far as a plan has already composed them. `minutes` is about how long a sweep of it without axes may
    take. Raises InputError for any error in the input, and BatchSearchNeeded if batch sizes must be searched for first.
    """
    if add_repeats < 0:
        raise InputError(f"--add-repeats {add_repeats}: repeats can only be added; for fewer, set repeats=N")
    home = home.resolve()
    compositions = {} if compositions is None else compositions
    project = None if versioned else measured_project(home, entry, overrides)
    measured = versioned.entry if versioned else None
    if project is not None:
        script = project.measured.default_name
        varied = None if part else DEFAULT_MINUTES if minutes is None else minutes
        earlier = earlier_manifest(SweepFolder(home, name or _typed_name(overrides) or script))
        grid, sources, measured, overrides = entry_grid(project, overrides, earlier, trial, varied, compositions)
    else:
        grid, sources = (versioned.grid, versioned.sources) if versioned else project_grid(home, overrides, {})
    folder = _sweep_folder(home, name, grid, None if measured is None else measured.default_name)
    previous = read_previous_plan(folder)
    before = previous.manifest
    if before is None:
        _refuse_reserved_name(folder)
    batches = {batch.search: batch for batch in before.found_batches} if before else {}
    if auto_batch_size.required_searches(grid.points, grid.settings.values()):
        if versioned:
            raise InputError(
                "batch_size=auto could give each version a different batch size: set batch_size to a number"
            )
        grid, sources, batches = grid_with_batch_sizes(home, overrides, folder.name, batches, search_results or {})
    if part is not None:
        repeats = {"repeats": part.repeats, "added_repeats": 0, "auto_repeats": False}
        options = grid.options.model_copy(update=repeats)
    else:
        requested = RepeatRequest(add_repeats, total_repeats, until_decided, decided_at)
        options = with_repeats(grid.options, before.options if before else None, requested)
    refuse_too_many(options, len(grid.settings))
    for report_options in registry.loaded("report_options"):
        options = options.model_copy(update={"report": report_options(options.report, home)})
    baseline, baseline_notes = choose_baseline(grid)
    if versioned:  # each setting has its own baseline, and none is in every block
        options, baseline_notes = _with_one_baseline_run(options), ()
    blocks = design_blocks(folder, grid, options, baseline, previous.blocks, part)
    manifest = build_manifest(
        folder.name,
        overrides,
        grid,
        options,
        baseline,
        blocks,
        sources,
        previous,
        compared=tuple(tree.version for tree in versioned.trees) if versioned else (),
        profile=_profile(profile, before),
        found_batches=tuple(batches.values()),
        part=part,
        entry=measured,
    )
    searches = auto_batch_size.required_searches(grid.points, grid.settings.values())
    search_notes = auto_batch_size.search_notes(batches[name] for name in searches if name in batches)
    script_notes: tuple[str, ...] = () if project is None else (project.note(),)
    if measured is not None and measured.trial is not None:
        script_notes += tuple(measured.trial.notes())
    notes = (*script_notes, *grid.notes, *baseline_notes, *search_notes, *_pilot_note(options), *previous.notes)
    return Plan(
        manifest,
        blocks.new,
        tuple(grid.settings.values()),
        notes,
        before,
        previous.damaged,
        versioned,
        {"entry": entry, "minutes": minutes, "compositions": compositions},
    )


def _sweep_folder(home: Path, name: str | None, grid: CheckedGrid, script: str | None = None) -> SweepFolder:
    default = (grid.experiment or script or "sweep").replace("/", "-")
    folder = SweepFolder(home, next(given for given in (name, grid.name, default) if given is not None))
    refuse_obstacles(folder)
    return folder


def _typed_name(overrides: Sequence[str]) -> str | None:
    """Return the sweep's name among the overrides of a sweep of the user's own script."""
    named = (line.partition("=")[2] for line in overrides if line.startswith(("name=", "sweep.name=")))
    return next(named, None)


def earlier_manifest(folder: SweepFolder) -> Manifest | None:
    """Return the sweep's plan on disk; None if there is none that can be read."""
    try:
        return Manifest.read(folder.manifest)
    except (FileNotFoundError, AccelsweepError):
        return None


def _refuse_reserved_name(folder: SweepFolder) -> None:
    if folder.name in (name for feature in registry.features() for name in feature.reserved_names):
        raise InputError(
            f"the name {folder.name!r} is taken: `accelsweep {folder.name}` writes there. Try --name my-{folder.name}"
        )


def _profile(given: str | None, before: Manifest | None) -> str | None:
    if given is None:
        return before.profile if before else None
    return given if given != "local" else None


def _pilot_note(options: Options) -> tuple[str, ...]:
    if not options.pilot:
        return ()
    return (
        "repeats=auto: these blocks are the pilot; `accelsweep run` then measures as many as its noise requires, "
        f"{REPEATS_LEAST} to {options.repeats_most} blocks in total",
    )


def choose_baseline(grid: CheckedGrid) -> tuple[str | None, tuple[str, ...]]:
    """Return the first supported setting that matches `baseline:`, else the first supported one, and notes on it."""
    supported = [setting for setting in grid.settings.values() if setting.unsupported is None]
    if not supported:
        return None, ()
    wanted = grid.options.baseline
    matching = (setting.name for setting in supported if wanted and matches(wanted, grid.points[setting.name]))
    if (name := next(matching, None)) is not None:
        return name, ()
    first = supported[0]
    why = f"no supported setting matches baseline {wanted}" if wanted else "no baseline is set"
    return first.name, (f"{why}: speed-ups are relative to the first supported setting, {label(first.axes)}",)


@dataclass(frozen=True)
class RepeatRequest:
    """The number of blocks that the caller of `make_plan` requests."""

    add: int
    total: int | None
    until_decided: bool
    decided_at: Mapping[str, int] | None


def with_repeats(options: Options, before: Options | None, requested: RepeatRequest) -> Options:
    """Return `options` with the sweep's number of blocks; `before` contains the previous plan's options."""
    add = requested.add
    if requested.until_decided:
        return _until_decided(options, before, requested)
    if options.auto_repeats:
        if add:
            raise InputError(
                f"--add-repeats {add} and repeats=auto cannot be combined: remove one of them, or set "
                "the number of repeats with repeats=N"
            )
        pilot_or_known = before.repeats if before and before.auto_repeats else options.repeats
        return options.model_copy(update={"repeats": requested.total or pilot_or_known})
    # Earlier additions are kept as long as the config's `repeats` stays the same, so running the command without
    # `--add-repeats` resumes the larger sweep.
    added = before.added_repeats if before and before.repeats - before.added_repeats == options.repeats else 0
    return options.model_copy(update={"repeats": options.repeats + added + add, "added_repeats": added + add})


def _until_decided(options: Options, before: Options | None, requested: RepeatRequest) -> Options:
    """Return `options` with the number of blocks at the current interim analysis: the first or the previous plan's."""
    if options.auto_repeats or requested.add:
        other = "repeats=auto" if options.auto_repeats else f"--add-repeats {requested.add}"
        raise InputError(f"--until-decided and {other} cannot be combined: remove one of them")
    if not options.looks:
        raise InputError(f"repeats_most={options.repeats_most}: --until-decided needs at least {LOOKS[0]} blocks")
    continued = before if before is not None and before.until_decided and before.repeats in options.looks else None
    decided_at = requested.decided_at
    if decided_at is None:
        decided_at = continued.decided_at if continued else {}
    return options.model_copy(
        update={
            "until_decided": True,
            "repeats": requested.total or (continued.repeats if continued else options.looks[0]),
            "decided_at": dict(decided_at),
        }
    )


def refuse_too_many(options: Options, settings: int) -> None:
    """Raise InputError if a sweep with this many settings exceeds its limits; planning it would take minutes."""
    limits, runs = options.limits, settings * options.repeats
    if options.repeats > limits.max_repeats:
        raise InputError(
            f"{options.repeats} repeats of each setting are more than limits.max_repeats={limits.max_repeats}: "
            "request fewer, or raise the limit if this is intended"
        )
    if runs > limits.max_runs:
        raise InputError(
            f"{settings} settings with {options.repeats} repeats are {runs} runs, more than "
            f"limits.max_runs={limits.max_runs}: request fewer, or raise the limit if this is intended"
        )


def _with_one_baseline_run(options: Options) -> Options:
    """Return `options` with blocks in which every setting, including baselines, runs once."""
    return options.model_copy(update={"block": options.block.model_copy(update={"baseline_runs": 1})})


def design_blocks(
    folder: SweepFolder,
    grid: CheckedGrid,
    options: Options,
    baseline: str | None,
    existing: Sequence[Block],
    part: PlanPart | None = None,
) -> BlockDesign:
    """Return a grid's blocks: `existing` blocks with runs that are still wanted, and new blocks.

    If `part` is given, its feature designs the blocks.
    """
    if baseline is None:
        return BlockDesign((), ())
    supported = {name: setting for name, setting in grid.settings.items() if setting.unsupported is None}
    task = DesignInput(folder.name, supported, baseline, options, grid.site)
    if part is not None:
        planners = (feature.plan_blocks for feature in registry.features() if feature.name == part.command)
        finished = frozenset(block.name for block in existing if folder.done(block.name).is_file())
        design: BlockDesign = registry.load(next(filter(None, planners)))(task, part, existing, finished)
        return design
    if VERSION in grid.axes:
        return paired_block_design(task, version_groups(supported.values()), existing)
    return block_design(task, existing)


def build_manifest(
    sweep: str,
    overrides: Sequence[str],
    grid: CheckedGrid,
    options: Options,
    baseline: str | None,
    blocks: BlockDesign,
    sources: dict[str, str],
    previous: PreviousPlan,
    *,
    compared: tuple[Version, ...] = (),
    profile: str | None = None,
    found_batches: tuple[FoundBatch, ...] = (),
    searches_for: str | None = None,
    part: PlanPart | None = None,
    entry: MeasuredProject | None = None,
) -> Manifest:
    """Build the manifest for a grid and its blocks: the next revision, or the previous one if nothing changed."""
    theirs = {} if entry is None else entry.software
    versions = {name: theirs.get(name, version) for name, version in core_versions().items()}
    if entry is not None and entry.kind == "command":
        versions = {name: version for name, version in versions.items() if name not in ("torch", "lightning")}
    manifest = Manifest(
        sweep=sweep,
        revision=previous.revision + 1,
        experiment=grid.experiment,
        overrides=tuple(overrides),
        axes=grid.axes,
        settings=tuple(
            PlannedSetting(name=setting.name, axes=setting.axes, unsupported=setting.unsupported)
            for setting in grid.settings.values()
        ),
        excluded=grid.excluded,
        baseline=baseline,
        blocks=blocks.planned,
        options=options,
        site=grid.site,
        sources=sources,
        versions=versions,
        compared=compared,
        profile=profile,
        found_batches=found_batches,
        searches_for=searches_for,
        parts={} if part is None else {part.command: part},
        entry=entry,
    )
    # The manifest is world-readable and copied to MLflow, so values are masked. Blocks, which runs read, contain them
    # unmasked.
    manifest = Manifest.model_validate(without_secrets(manifest.model_dump(mode="json")))
    before = previous.manifest
    if before and manifest.model_copy(update={"revision": before.revision}) == before:
        return before
    return manifest


def write_plan(home: Path, plan: Plan) -> SweepFolder:
    """Write the new parts of a plan and return the sweep's folder. Existing blocks are never rewritten.

    Damaged files of the previous plan are renamed. The previous revision of the manifest is kept.
    """
    folder = SweepFolder(home, plan.manifest.sweep)
    for path in plan.damaged:
        set_aside(path)
    for tree in plan.versioned.trees if plan.versioned else ():
        tree.write(folder.version_file(tree.version.id))
    for block in plan.new_blocks:
        block.write(folder.block(block.name))
    if plan.manifest != plan.previous:
        if plan.previous is not None:
            write_bytes_atomically(folder.old_manifest(plan.previous.revision), folder.manifest.read_bytes())
        plan.manifest.write(folder.manifest)
    return folder


# The first phase of a sweep with `batch_size: auto` is a sweep named NAME-largest-batch, with the required searches.


def batch_search_folder(home: Path, sweep: str) -> SweepFolder:
    """Return the folder of the sweep that searches for the batch sizes of `sweep`."""
    return SweepFolder(home, f"{sweep}-largest-batch")


def batch_search_plan(home: Path, needed: BatchSearchNeeded) -> Plan:
    """Return the plan for the first phase: the pending searches and those planned earlier."""
    folder = batch_search_folder(home, needed.sweep)
    previous = read_previous_plan(folder)
    before = {setting.name for setting in previous.manifest.settings} if previous.manifest else set()
    settings = {name: setting for name, setting in needed.searches.items() if name in needed.pending or name in before}
    baseline, first = next(iter(settings.items()))
    options = _with_one_baseline_run(needed.grid.options).model_copy(
        update={
            "repeats": 1,
            "added_repeats": 0,
            "auto_repeats": False,
            "until_decided": False,
            "decided_at": {},
            "baseline": {},
            "report": {},
            "analysis": needed.grid.options.analysis.model_copy(update={"rate": None}),
        }
    )
    grid = replace(needed.grid, axes=tuple(first.axes), points={}, settings=settings, excluded=(), options=options)
    blocks = design_blocks(folder, grid, options, baseline, previous.blocks)
    manifest = build_manifest(
        folder.name,
        needed.overrides,
        grid,
        options,
        baseline,
        blocks,
        needed.sources,
        previous,
        searches_for=needed.sweep,
    )
    return Plan(manifest, blocks.new, tuple(settings.values()), previous.notes, previous.manifest, previous.damaged)
