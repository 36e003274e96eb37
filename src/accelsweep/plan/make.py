"""Make a plan from overrides, and write it down: the road's first step, for the command line and for Snakemake alike.

`make_plan` reads configs, the declared inventory and the sweep's earlier plan, never a record. It writes nothing, so
that bad input leaves no trace. `write_plan` then writes blocks first and the manifest last.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from accelsweep.base.documents import set_aside, write_bytes_atomically
from accelsweep.base.errors import InputError
from accelsweep.core.cells.cell import Cell
from accelsweep.core.cells.versions import Tree
from accelsweep.core.claims.claims import GROUP
from accelsweep.core.planned.plans import Block, FoundBatch, Manifest
from accelsweep.core.planned.settings import Fleet, Settings
from accelsweep.plan import automatic, select
from accelsweep.plan.blocks import earlier
from accelsweep.plan.blocks.repeats import BlocksAsked, refuse_too_many, with_repeats
from accelsweep.plan.cells import CheckedGrid
from accelsweep.plan.manifest import manifest_of, once_each, planned_blocks
from accelsweep.plan.published import with_published
from accelsweep.plan.searched import grid_of, with_batches
from accelsweep.plan.versioned import versioned_grid
from accelsweep.repeats.resolution import FEWEST_BLOCKS
from accelsweep.state.folders import SweepFolder
from accelsweep.state.strangers import refuse_obstacles


@dataclass(frozen=True)
class Plan:
    """A plan before it is written: the manifest, the blocks that no file holds yet, every cell with its config.

    `notes` are sentences for the user. `previous` is the revision that this one follows, None for the first. `damaged`
    are files of the earlier plan that cannot be read. They are set aside when this plan is written. `trees`
    are those of the versions that are compared.
    """

    manifest: Manifest
    new_blocks: tuple[Block, ...]
    cells: tuple[Cell, ...]
    notes: tuple[str, ...] = ()
    previous: Manifest | None = None
    damaged: tuple[Path, ...] = ()
    trees: tuple[Tree, ...] = ()

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
    trees: Sequence[Tree] = (),
    profile: str | None = None,
    batches: automatic.Batches | None = None,
    fleet: Fleet | None = None,
) -> Plan:
    """Return the plan for Hydra overrides given in the working directory `home`; write nothing.

    `name` is the sweep's name, by default the config's `name`, else the experiment's. `add_repeats` adds so many whole
    blocks to those of the earlier plan of this name. Later plans keep them while the config's `repeats` stays the same.
    `decided` is the number of blocks that a pilot asks for, where `repeats` is `auto`; later plans keep it too. With
    `until_decided` it is that of the next look, and `decided_at` are the settings that were decided before. `trees` are
    those of the versions that the sweep compares, the baseline first. `profile` is the one of Snakemake that the user
    gives, by default that of the earlier plan: advice repeats it. `batches` are those that searches have found for
    `batch_size: auto`; the earlier plan's stay as they are. `fleet` are the nodes that the sweep compares. Raises
    InputError for anything that is wrong with the input, and Unsearched where batches have to be searched first.
    """
    if add_repeats < 0:
        raise InputError(f"--add-repeats {add_repeats}: repeats can only be added; for fewer, give repeats=N")
    with _seldom_collected():
        asked = BlocksAsked(add_repeats, decided, until_decided, decided_at, profile, fleet)
        home = home.resolve()
        return _made(home, overrides, _task(home, overrides, name, tuple(trees), batches or {}), asked)


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
    past: earlier.Past
    grid: CheckedGrid
    sources: dict[str, str]
    trees: tuple[Tree, ...]
    batches: dict[str, FoundBatch]


def _task(
    home: Path, overrides: Sequence[str], name: str | None, trees: tuple[Tree, ...], batches: automatic.Batches
) -> _Task:
    if trees:
        assert name is not None, "the trees lie in the sweep's folder already"
        found = versioned_grid(SweepFolder(home, name), trees, overrides)
        grid, sources, trees = found.grid, found.sources, found.trees
    else:
        grid, sources = grid_of(home, overrides, {})
    default = (grid.experiment or "sweep").replace("/", "-")
    folder = SweepFolder(home, next(given for given in (name, grid.name, default) if given is not None))
    refuse_obstacles(folder)
    past = earlier.read(folder)
    if folder.name == GROUP and past.manifest is None:
        raise InputError(f"the name {GROUP!r} is taken: `accelsweep claims` writes there. Try --name my-{GROUP}")
    kept = {one.search: one for one in past.manifest.found_batches} if past.manifest else {}
    if automatic.searches_of(grid.points, grid.cells.values()):
        if trees:
            raise InputError("batch_size=auto could give each version another batch: give batch_size a number")
        grid, sources, kept = with_batches(home, overrides, folder.name, kept, batches)
    return _Task(folder, past, grid, sources, trees, kept)


def _made(home: Path, overrides: Sequence[str], task: _Task, asked: BlocksAsked) -> Plan:
    grid, past = task.grid, task.past
    settings = with_repeats(grid.settings, past.manifest.settings if past.manifest else None, asked)
    refuse_too_many(settings, len(grid.cells))
    settings = with_published(settings, home)
    baseline, notes = choose_baseline(grid)
    if task.trees:  # each setting has a baseline of its own, and none of them stands in every block
        settings, notes = settings.model_copy(update={"block": once_each(settings.block)}), ()
    blocks = planned_blocks(task.folder, grid, settings, baseline, past.blocks, asked.fleet)
    manifest = manifest_of(
        task.folder.name,
        overrides,
        grid,
        settings,
        baseline,
        blocks,
        task.sources,
        past,
        compared=tuple(tree.version for tree in task.trees),
        profile=_profile(asked.profile, past.manifest),
        found_batches=tuple(task.batches.values()),
        fleet=asked.fleet,
    )
    notes = (*grid.notes, *notes, *_batch_notes(task), *_pilot_note(settings), *past.notes)
    return Plan(manifest, blocks.new, tuple(grid.cells.values()), notes, past.manifest, past.damaged, task.trees)


def _batch_notes(task: _Task) -> tuple[str, ...]:
    names = automatic.searches_of(task.grid.points, tuple(task.grid.cells.values()))
    return automatic.notes_on(task.batches[name] for name in names if name in task.batches)


def _pilot_note(settings: Settings) -> tuple[str, ...]:
    if not settings.pilot:
        return ()
    return (
        "repeats=auto: these blocks are the pilot; `accelsweep run` then measures what its noise asks for, "
        f"{FEWEST_BLOCKS} to {settings.repeats_most} blocks in all",
    )


def write_plan(home: Path, plan: Plan) -> SweepFolder:
    """Write the new parts of a plan and return the sweep's folder; existing blocks are never written again.

    Damaged files of the earlier plan are set aside under another name. The revision before this one is kept.
    """
    folder = SweepFolder(home, plan.manifest.sweep)
    for path in plan.damaged:
        set_aside(path)
    for tree in plan.trees:
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
    """Return the first supported cell that `baseline:` matches, else the first supported one, and notes about it."""
    supported = [cell for cell in grid.cells.values() if cell.unsupported is None]
    if not supported:
        return None, ("nothing will be measured, because no setting of this grid can run here",)
    wanted = grid.settings.baseline
    matching = [cell.name for cell in supported if wanted and select.matches(wanted, grid.points[cell.name])]
    if matching:
        return matching[0], ()
    first = supported[0]
    why = f"no supported setting matches baseline {wanted}" if wanted else "no baseline is named"
    return first.name, (f"{why}: speed-ups are relative to the first supported setting, {first.axes or first.name}",)
