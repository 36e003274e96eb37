"""Make a plan from overrides, and write it down: the road's first step, for the command line and for Snakemake alike.

`make_plan` reads configs, the declared inventory and the sweep's earlier plan, never a record. It writes nothing, so
that bad input leaves no trace. `write_plan` then writes blocks first and the manifest last.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from accelsweep import registry
from accelsweep.analysis.power import MIN_BLOCKS
from accelsweep.config.setting import Setting
from accelsweep.config.sweep_options import LOOKS, BlockOptions, Options
from accelsweep.config.versions import Version
from accelsweep.errors import InputError
from accelsweep.files import set_aside, write_bytes_atomically
from accelsweep.planning import auto_batch_size, checked_grid, randomized_blocks
from accelsweep.planning.checked_grid import (
    BatchSearchNeeded,
    CheckedGrid,
    VersionedGrid,
    grid_of,
    grid_with_batch_sizes,
)
from accelsweep.planning.randomized_blocks import (
    BlockDesign,
    DesignInput,
    PreviousPlan,
    block_design,
    paired_block_design,
    version_groups,
)
from accelsweep.planning.source_digests import core_versions
from accelsweep.records.cleanup import refuse_obstacles
from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import Block, FoundBatch, Manifest, PlannedSetting, PlanPart
from accelsweep.redaction import without_secrets
from accelsweep.run_config import VERSION

# The number of blocks of a sweep: as the config says, with added ones, decided by a pilot, or look by look.


@dataclass(frozen=True)
class BlocksAsked:
    """The number of blocks, the part of a feature, and the profile, as `make_plan` takes them."""

    add: int
    decided: int | None
    until_decided: bool
    decided_at: Mapping[str, int] | None
    profile: str | None
    part: PlanPart | None = None


def with_repeats(options: Options, before: Options | None, asked: BlocksAsked) -> Options:
    """Return `options` with the number of blocks that the sweep is to have."""
    if asked.part is not None:
        return options.model_copy(update={"repeats": asked.part.repeats, "added_repeats": 0, "auto_repeats": False})
    if asked.until_decided:
        return _until_decided(options, before, asked)
    if not options.auto_repeats:
        return _with_added(options, before, asked.add)
    if asked.add:
        raise InputError(
            f"--add-repeats {asked.add} and repeats=auto are two answers to one question: leave one out, or give the "
            "number of repeats, as repeats=N"
        )
    kept = before.repeats if before and before.auto_repeats else options.repeats
    return options.model_copy(update={"repeats": asked.decided or kept})


def refuse_too_many(options: Options, settings: int) -> None:
    """Raise InputError where a sweep of so many settings is larger than its limits: planning it would take minutes."""
    limits, runs = options.limits, settings * options.repeats
    mended = "give fewer, or raise"
    if options.repeats > limits.max_repeats:
        raise InputError(
            f"{options.repeats} repeats of each setting are more than limits.max_repeats={limits.max_repeats}: "
            f"{mended} it if you mean it"
        )
    if runs > limits.max_runs:
        raise InputError(
            f"{settings} settings with {options.repeats} repeats are {runs} runs, more than "
            f"limits.max_runs={limits.max_runs}: {mended} it if you mean it"
        )


def _until_decided(options: Options, before: Options | None, asked: BlocksAsked) -> Options:
    """Return `options` with the blocks of the present look: the first one, or that of the earlier plan."""
    if options.auto_repeats or asked.add:
        other = "repeats=auto" if options.auto_repeats else f"--add-repeats {asked.add}"
        raise InputError(f"--until-decided and {other} are two answers to one question: leave one out")
    if not options.looks:
        raise InputError(f"repeats_most={options.repeats_most}: --until-decided takes {LOOKS[0]} blocks at least")
    kept = before if before is not None and before.until_decided and before.repeats in options.looks else None
    return options.model_copy(
        update={
            "until_decided": True,
            "repeats": asked.decided or (kept.repeats if kept else options.looks[0]),
            "decided_at": dict(asked.decided_at if asked.decided_at is not None else kept.decided_at if kept else {}),
        }
    )


def _with_added(options: Options, before: Options | None, add: int) -> Options:
    """Return `options` with the repeats that `--add-repeats` added, now and to the earlier plan.

    Earlier additions stay while the config asks for the same number as it did then. So repeating the command without
    `--add-repeats` resumes the larger sweep. A changed `repeats` states the wanted number anew.
    """
    kept = before.added_repeats if before and before.repeats - before.added_repeats == options.repeats else 0
    return options.model_copy(update={"repeats": options.repeats + kept + add, "added_repeats": kept + add})


# The blocks of a checked grid, and the manifest that holds both.


def manifest_of(
    sweep: str,
    overrides: Sequence[str],
    grid: CheckedGrid,
    options: Options,
    baseline: str | None,
    blocks: BlockDesign,
    sources: dict[str, str],
    past: PreviousPlan,
    *,
    compared: tuple[Version, ...] = (),
    profile: str | None = None,
    found_batches: tuple[FoundBatch, ...] = (),
    searches_for: str | None = None,
    part: PlanPart | None = None,
) -> Manifest:
    """Return the manifest of a grid and its blocks: the next revision, or that of the `past` where nothing changed."""
    settings = grid.settings.values()
    manifest = Manifest(
        sweep=sweep,
        revision=past.revision + 1,
        experiment=grid.experiment,
        overrides=tuple(overrides),
        axes=grid.axes,
        settings=tuple(
            PlannedSetting(name=setting.name, axes=setting.axes, unsupported=setting.unsupported)
            for setting in settings
        ),
        excluded=grid.excluded,
        baseline=baseline,
        blocks=blocks.planned,
        options=options,
        site=grid.site,
        sources=sources,
        versions=core_versions(),
        compared=compared,
        profile=profile,
        found_batches=found_batches,
        searches_for=searches_for,
        parts={} if part is None else {part.command: part},
    )
    # Everyone may read a manifest, and it is copied to MLflow. The blocks hold the unmasked values for the runs.
    manifest = Manifest.model_validate(without_secrets(manifest.model_dump(mode="json")))
    if past.manifest and manifest.model_copy(update={"revision": past.manifest.revision}) == past.manifest:
        return past.manifest
    return manifest


def once_each(block: BlockOptions) -> BlockOptions:
    """Return the rules of blocks in which every setting runs once, those that others are compared with too."""
    return block.model_copy(update={"baseline_runs": 1})


def planned_blocks(
    folder: SweepFolder,
    grid: CheckedGrid,
    options: Options,
    baseline: str | None,
    existing: Sequence[Block],
    part: PlanPart | None,
) -> BlockDesign:
    """Return the blocks of a grid, which a feature may plan in its own way."""
    if part is None or baseline is None:
        return blocks_of(folder.name, grid, options, baseline, existing)
    measured = frozenset(block.name for block in existing if folder.done(block.name).is_file())
    task = _cutting(folder.name, grid, options, baseline)
    return _planner_of(part)(task, part, existing, measured)


def _planner_of(part: PlanPart) -> Callable[..., BlockDesign]:
    """Return the function that plans the blocks of a sweep with this part."""
    targets = (feature.plan_blocks for feature in registry.features() if feature.name == part.command)
    planner: Callable[..., BlockDesign] = registry.load(next(filter(None, targets)))
    return planner


def blocks_of(
    sweep: str, grid: CheckedGrid, options: Options, baseline: str | None, existing: Sequence[Block]
) -> BlockDesign:
    """Return the blocks of a grid: the `existing` ones that it still wants some runs of, and new ones."""
    if baseline is None:
        return BlockDesign((), ())
    task = _cutting(sweep, grid, options, baseline)
    if VERSION in grid.axes:
        return paired_block_design(task, version_groups(task.settings.values()), existing)
    return block_design(task, existing)


def _cutting(sweep: str, grid: CheckedGrid, options: Options, baseline: str) -> DesignInput:
    supported = {setting.name: setting for setting in grid.settings.values() if setting.unsupported is None}
    return DesignInput(sweep, supported, baseline, options, grid.site)


@dataclass(frozen=True)
class Plan:
    """A plan before it is written: the manifest, the blocks that no file holds yet, every setting with its config.

    `notes` are sentences for the user. `previous` is the revision that this one follows, None for the first. `damaged`
    are files of the earlier plan that cannot be read. They are set aside when this plan is written. `versioned`
    is the grid of the versions that are compared.
    """

    manifest: Manifest
    new_blocks: tuple[Block, ...]
    settings: tuple[Setting, ...]
    notes: tuple[str, ...] = ()
    previous: Manifest | None = None
    damaged: tuple[Path, ...] = ()
    versioned: VersionedGrid | None = None

    @property
    def changed(self) -> bool:
        """Whether writing this plan would change anything on disk."""
        return self.manifest != self.previous or bool(self.new_blocks) or bool(self.damaged)


def make_plan(
    home: Path,
    overrides: Sequence[str],
    *,
    name: str | None = None,
    add_repeats: int = 0,
    decided: int | None = None,
    until_decided: bool = False,
    decided_at: Mapping[str, int] | None = None,
    versioned: VersionedGrid | None = None,
    profile: str | None = None,
    batches: auto_batch_size.SearchResults | None = None,
    part: PlanPart | None = None,
) -> Plan:
    """Return the plan for Hydra overrides given in the working directory `home`; write nothing.

    `name` is the sweep's name, by default the config's `name`, else the experiment's. `add_repeats` adds so many whole
    blocks to those of the earlier plan of this name. Later plans keep them while the config's `repeats` stays the same.
    `decided` is the number of blocks that a pilot asks for, where `repeats` is `auto`; later plans keep it too. With
    `until_decided` it is that of the next look, and `decided_at` are the settings that were decided before. `versioned`
    is the grid of the versions that the sweep compares, the baseline first. `profile` is Snakemake's,
    by default that of the earlier plan: advice repeats it. `batches` are those that searches have found for
    `batch_size: auto`; the earlier plan's stay as they are. `part` is what a feature's command adds to the plan. Raises
    InputError for anything that is wrong with the input, and Unsearched where batches have to be searched first.
    """
    if add_repeats < 0:
        raise InputError(f"--add-repeats {add_repeats}: repeats can only be added; for fewer, give repeats=N")
    with _seldom_collected():
        asked = BlocksAsked(add_repeats, decided, until_decided, decided_at, profile, part)
        home = home.resolve()
        return _made(home, overrides, _task(home, overrides, name, versioned, batches or {}), asked)


@contextmanager
def _seldom_collected() -> Iterator[None]:
    """Look for cycles of garbage seldom: thousands of settings hold none, and each look goes through all of them."""
    usual = gc.get_threshold()
    gc.set_threshold(100_000, *usual[1:])
    try:
        yield
    finally:
        gc.set_threshold(*usual)


@dataclass(frozen=True)
class _Task:
    """A sweep to be planned: its grid, that grid's sources, its versions, and what earlier plans left in its folder.

    `batches` are those to keep, by their searches.
    """

    folder: SweepFolder
    past: randomized_blocks.PreviousPlan
    grid: CheckedGrid
    sources: dict[str, str]
    versioned: VersionedGrid | None
    batches: dict[str, FoundBatch]


def _task(
    home: Path,
    overrides: Sequence[str],
    name: str | None,
    versioned: VersionedGrid | None,
    batches: auto_batch_size.SearchResults,
) -> _Task:
    grid, sources = (versioned.grid, versioned.sources) if versioned else grid_of(home, overrides, {})
    default = (grid.experiment or "sweep").replace("/", "-")
    folder = SweepFolder(home, next(given for given in (name, grid.name, default) if given is not None))
    refuse_obstacles(folder)
    past = randomized_blocks.read_previous_plan(folder)
    reserved = (name for feature in registry.features() for name in feature.reserved_names)
    if folder.name in reserved and past.manifest is None:
        raise InputError(
            f"the name {folder.name!r} is taken: `accelsweep {folder.name}` writes there. Try --name my-{folder.name}"
        )
    kept = {one.search: one for one in past.manifest.found_batches} if past.manifest else {}
    if auto_batch_size.required_searches(grid.points, grid.settings.values()):
        if versioned:
            raise InputError("batch_size=auto could give each version another batch: give batch_size a number")
        grid, sources, kept = grid_with_batch_sizes(home, overrides, folder.name, kept, batches)
    return _Task(folder, past, grid, sources, versioned, kept)


def _made(home: Path, overrides: Sequence[str], task: _Task, asked: BlocksAsked) -> Plan:
    grid, past = task.grid, task.past
    options = with_repeats(grid.options, past.manifest.options if past.manifest else None, asked)
    refuse_too_many(options, len(grid.settings))
    for planned in registry.loaded("report_options"):
        options = options.model_copy(update={"report": planned(options.report, home)})
    baseline, notes = choose_baseline(grid)
    if task.versioned:  # each setting has a baseline of its own, and none of them stands in every block
        options, notes = options.model_copy(update={"block": once_each(options.block)}), ()
    blocks = planned_blocks(task.folder, grid, options, baseline, past.blocks, asked.part)
    manifest = manifest_of(
        task.folder.name,
        overrides,
        grid,
        options,
        baseline,
        blocks,
        task.sources,
        past,
        compared=tuple(tree.version for tree in task.versioned.trees) if task.versioned else (),
        profile=_profile(asked.profile, past.manifest),
        found_batches=tuple(task.batches.values()),
        part=asked.part,
    )
    notes = (*grid.notes, *notes, *_batch_notes(task), *_pilot_note(options), *past.notes)
    return Plan(manifest, blocks.new, tuple(grid.settings.values()), notes, past.manifest, past.damaged, task.versioned)


def _batch_notes(task: _Task) -> tuple[str, ...]:
    names = auto_batch_size.required_searches(task.grid.points, tuple(task.grid.settings.values()))
    return auto_batch_size.search_notes(task.batches[name] for name in names if name in task.batches)


def _pilot_note(options: Options) -> tuple[str, ...]:
    if not options.pilot:
        return ()
    return (
        "repeats=auto: these blocks are the pilot; `accelsweep run` then measures what its noise asks for, "
        f"{MIN_BLOCKS} to {options.repeats_most} blocks in all",
    )


def write_plan(home: Path, plan: Plan) -> SweepFolder:
    """Write the new parts of a plan and return the sweep's folder; existing blocks are never written again.

    Damaged files of the earlier plan are set aside under another name. The revision before this one is kept.
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


def _profile(given: str | None, past: Manifest | None) -> str | None:
    if given is None:
        return past.profile if past else None
    return given if given != "local" else None


def choose_baseline(grid: CheckedGrid) -> tuple[str | None, tuple[str, ...]]:
    """Return the first supported setting that `baseline:` matches, else the first supported one, and notes about it."""
    supported = [setting for setting in grid.settings.values() if setting.unsupported is None]
    if not supported:
        return None, ("nothing will be measured, because no setting of this grid can run here",)
    wanted = grid.options.baseline
    matching = [
        setting.name for setting in supported if wanted and checked_grid.matches(wanted, grid.points[setting.name])
    ]
    if matching:
        return matching[0], ()
    first = supported[0]
    why = f"no supported setting matches baseline {wanted}" if wanted else "no baseline is named"
    return first.name, (f"{why}: speed-ups are relative to the first supported setting, {first.axes or first.name}",)


# The first phase of a sweep with `batch_size: auto`: a sweep NAME-frontier, with a search for each of its settings.


def batch_search_folder(home: Path, sweep: str) -> SweepFolder:
    """Return the folder of the sweep that searches for the batches of `sweep`."""
    return SweepFolder(home, f"{sweep}-frontier")


def batch_search_plan(home: Path, wanted: BatchSearchNeeded) -> Plan:
    """Return the plan of the first phase: the searches that are left, beside those that were planned before."""
    folder = batch_search_folder(home, wanted.sweep)
    past = randomized_blocks.read_previous_plan(folder)
    before = {setting.name for setting in past.manifest.settings} if past.manifest else set()
    settings = {name: setting for name, setting in wanted.searches.items() if name in wanted.left or name in before}
    axes = tuple(next(iter(settings.values())).axes)
    options = _options(wanted.grid.options)
    grid = replace(wanted.grid, axes=axes, points={}, settings=settings, excluded=(), options=options)
    baseline = next(iter(settings))
    blocks = blocks_of(folder.name, grid, options, baseline, past.blocks)
    manifest = manifest_of(
        folder.name,
        wanted.overrides,
        grid,
        options,
        baseline,
        blocks,
        wanted.sources,
        past,
        searches_for=wanted.sweep,
    )
    return Plan(manifest, blocks.new, tuple(settings.values()), past.notes, past.manifest, past.damaged)


def _options(given: Options) -> Options:
    """Return the settings of the sweep with one search of each setting, and without what is said of its rates."""
    return given.model_copy(
        update={
            "repeats": 1,
            "added_repeats": 0,
            "auto_repeats": False,
            "until_decided": False,
            "decided_at": {},
            "baseline": {},
            "block": once_each(given.block),
            "report": {},
            "analysis": given.analysis.model_copy(update={"rate": None}),
        }
    )
