"""Cut a sweep's runs into randomised complete blocks, and let existing blocks stand when the plan grows.

Each block holds one repeat of each of its settings, and the baseline as often as `block.baseline_runs` says. The order
is random, with a seed from the block's content, so the same plan gives the same blocks everywhere. Blocks are
immutable. A larger plan puts its further runs into new blocks with fresh repeats of the baseline.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from accelsweep.config.setting import Setting
from accelsweep.config.site import Site
from accelsweep.config.sweep_options import Options
from accelsweep.errors import DamagedFile, InputError
from accelsweep.plain_json import canonical_json, sha256_text
from accelsweep.planning.resources import combined, fits_in, max_runs_within, required_resources, resource_class
from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import Block, Manifest, PlannedBlock, in_any_version
from accelsweep.run_config import Run
from accelsweep.schedulers.protocol import Resources

# The numbers of a setting's repeats, and the seeds of its runs.


class RepeatNumbering:
    """Numbers the repeats of each setting, and deals out its seeds: each time the smallest that no block has used."""

    def __init__(self, known: Iterable[Block]) -> None:
        self._repeats: dict[str, set[int]] = {}
        self._seeds: dict[str, set[int]] = {}
        for run in (run for block in known for run in block.runs):
            self._repeats.setdefault(run.setting, set()).add(run.repeat)
            self._seeds.setdefault(run.setting, set()).add(run.seed)

    def next_runs(self, settings: Sequence[Setting]) -> list[Run]:
        """Return the runs of a new block. A setting that is there twice has two numbers and one seed.

        So all settings of a block have one seed, unless the plan has grown. Then values that depend on the seed pair by
        block too.
        """
        each = {setting.name: setting for setting in settings}
        seeds = {
            name: _unused(self._seeds.setdefault(name, set()), setting.config.seed) for name, setting in each.items()
        }
        return [self._next_run(setting, seeds[setting.name]) for setting in settings]

    def _next_run(self, setting: Setting, seed: int) -> Run:
        number = _unused(self._repeats.setdefault(setting.name, set()), 0)
        return Run.of(setting.name, number, seed - number)


def _unused(used: set[int], first: int) -> int:
    """Return the smallest number from `first` on that is not in `used`, and put it there."""
    found = next(number for number in itertools.count(first) if number not in used)
    used.add(found)
    return found


FEWEST_TOGETHER = 6
"""The settings beside which a job of its own is worth the baseline's two further runs, and another start-up."""


@dataclass(frozen=True)
class DesignInput:
    """The settings that blocks are cut for: the supported ones by name in grid order, the baseline among them."""

    sweep: str
    settings: Mapping[str, Setting]
    baseline: str
    options: Options
    site: Site
    needs: dict[str, Resources] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Compute the needs of each setting."""
        self.needs.update(
            (name, required_resources(setting.config, self.site)) for name, setting in self.settings.items()
        )


@dataclass(frozen=True)
class BlockDesign:
    """The blocks of a plan: `planned` as the manifest lists them, `new` the ones that no file holds yet."""

    planned: tuple[PlannedBlock, ...]
    new: tuple[Block, ...]


def block_design(task: DesignInput, existing: Sequence[Block]) -> BlockDesign:
    """Return blocks of which `settings.repeats` hold each supported setting; wanted runs of existing blocks count.

    Raises InputError if `block.minutes` is too short for a single run.
    """
    for setting in task.settings:
        max_runs_per_block(task, setting)
    known = {block.name: block for block in existing}
    wanted = _wanted_of(list(known.values()), task)
    numbers = RepeatNumbering(known.values())
    layers = list(_layers(task, wanted, numbers))
    most = max((task.options.repeats_of(name) for name in task.settings if name != task.baseline), default=None)
    repeats = task.options.repeats if most is None else most
    missing = repeats - _holding(task.baseline, [*wanted.values(), *(block.runs for block in layers)])
    spare = _spare_baselines(list(known.values()), wanted, task)[: max(0, missing)]
    wanted.update(spare)
    alone = [new_block(numbers.next_runs([task.settings[task.baseline]]), task) for _ in range(missing - len(spare))]
    for block in [*layers, *alone]:
        known[block.name], wanted[block.name] = block, block.runs
    on_disk = {block.name for block in existing}
    blocks = [block for block in known.values() if wanted[block.name]]
    return BlockDesign(
        planned=tuple(planned_block(block, wanted[block.name], task) for block in blocks),
        new=tuple(block for block in blocks if block.name not in on_disk),
    )


def _wanted_of(known: Sequence[Block], task: DesignInput) -> dict[str, tuple[Run, ...]]:
    """Return the wanted runs of each known block; the baseline is wanted where another run needs it.

    A setting that was the baseline once may have several runs in a block: the first of them is its repeat there.
    """
    wanted: dict[str, tuple[Run, ...]] = {}
    count = dict.fromkeys(task.settings, 0)
    for block in known:
        first: dict[str, Run] = {}
        for run in sorted(block.runs, key=lambda run: run.repeat):
            if (
                run.setting in count
                and run.setting != task.baseline
                and count[run.setting] < task.options.repeats_of(run.setting)
            ):
                first.setdefault(run.setting, run)
        count.update({setting: count[setting] + 1 for setting in first})
        wanted[block.name] = (*first.values(), *(_baselines(block, task) if first else ()))
    return wanted


def _baselines(block: Block, task: DesignInput) -> tuple[Run, ...]:
    return tuple(run for run in block.runs if run.setting == task.baseline)


def _holding(setting: str, blocks: Iterable[Sequence[Run]]) -> int:
    return sum(any(run.setting == setting for run in runs) for runs in blocks)


def _spare_baselines(
    known: Sequence[Block], wanted: Mapping[str, tuple[Run, ...]], task: DesignInput
) -> list[tuple[str, tuple[Run, ...]]]:
    """Return the baseline's runs, with the block's name, of each block without any other wanted run."""
    spare = [(block.name, _baselines(block, task)) for block in known if not wanted[block.name]]
    return [(name, runs) for name, runs in spare if runs]


def _layers(task: DesignInput, wanted: Mapping[str, tuple[Run, ...]], numbers: RepeatNumbering) -> Iterator[Block]:
    """Yield new blocks until every setting but the baseline has its repeats."""
    have = Counter(run.setting for runs in wanted.values() for run in runs)
    repeats_of = task.options.repeats_of
    missing = {name: repeats_of(name) - have[name] for name in task.settings if name != task.baseline}
    for layer in range(max(missing.values(), default=0)):
        settings = [name for name, count in missing.items() if count > layer]
        for chunk in _chunks(settings, len(wanted) + layer, task):
            yield new_block(numbers.next_runs([task.settings[name] for name in chunk]), task)


def _chunks(settings: Sequence[str], layer: int, task: DesignInput) -> Iterator[list[str]]:
    """Yield the settings of each block: one repeat of all `settings`, by resource class, within the bounds.

    The baseline comes first, `block.baseline_runs` times but never more often than there are other settings. Beside a
    single other setting, the time for its second run is better spent on more blocks.
    """
    classes: dict[tuple[object, ...], list[str]] = {}
    for name in settings:
        classes.setdefault(resource_class(task.settings[name].config, task.site), []).append(name)
    for members in classes.values():
        most = max_runs_per_block(task, members[0])
        baselines = int(min(task.options.block.baseline_runs, most / 2)) if _takes_baseline(members, task) else 0
        room = int(min(most - baselines, _share(members, task)))
        shuffled = sorted(members, key=lambda name: sha256_text(f"{task.sweep}/{layer}/{name}"))
        count = math.ceil(len(members) / room)
        for index in range(count):
            chunk = shuffled[index::count]
            yield [task.baseline] * min(baselines, len(chunk)) + chunk


def _takes_baseline(members: Sequence[str], task: DesignInput) -> bool:
    """Return whether the baseline has a place among these settings of one resource class.

    One machine has what any run needs. A job of whole nodes has all of their cores, so it may ask for the baseline's.
    """
    if task.site.scheduler == "local":
        return True
    baseline = task.needs[task.baseline]
    allocation = combined([task.needs[name] for name in members], 1, task.options.limits)
    if task.site.of_kind(allocation.node_kind).jobs.exclusive:
        allocation = allocation.model_copy(update={"cpus": max(allocation.cpus, baseline.cpus)})
    return fits_in(baseline, allocation)


def _share(members: Sequence[str], task: DesignInput) -> int:
    """Return how many of these settings a block has where nothing bounds it: so many that all nodes of a cluster work.

    The blocks of all repeats may run at once. Each has a fresh baseline, so a small share would cost more than it wins.
    """
    if task.site.scheduler == "local" or task.options.block.size is not None:
        return len(members)
    required_resources = task.needs[members[0]]
    at_once = task.site.of_kind(required_resources.node_kind).nodes // required_resources.nodes
    jobs = max(1, math.ceil(at_once / task.options.repeats))
    return min(len(members), max(FEWEST_TOGETHER, math.ceil(len(members) / jobs)))


def max_runs_per_block(task: DesignInput, setting: str) -> float:
    """Return how many runs a block may hold on nodes of the kind that this setting needs.

    Raises InputError where its time is too short for one.
    """
    site = task.site.of_kind(task.needs[setting].node_kind)
    size, limits = task.options.block.size, task.options.limits
    most = size or math.inf
    for key, limit in {
        "block.minutes": task.options.block.minutes,
        f"{site.jobs_key}.max_minutes": _job_minutes(site),
    }.items():
        by_time = math.inf if limit is None else max_runs_within(limits, limit)
        if by_time < 1:
            raise InputError(
                f"{key}={limit} is too short for one run, which may take limits.run_seconds={limits.run_seconds:g} "
                f"besides start-up: raise {key} or lower limits.run_seconds"
            )
        most = min(most, by_time)
    return most


def _job_minutes(site: Site) -> int | None:
    return None if site.scheduler == "local" else site.jobs.max_minutes


def new_block(runs: Sequence[Run], task: DesignInput) -> Block:
    """Return the block of these runs, in its random order and under the name of its content."""
    order_seed = int(sha256_text(canonical_json([task.sweep, sorted(run.name for run in runs)]))[:8], 16)
    settings = [task.settings[run.setting] for run in runs]
    return _named(
        Block(
            name="",
            sweep=task.sweep,
            order_seed=order_seed,
            runs=tuple(in_random_order(runs, order_seed)),
            configs={setting.name: setting.config for setting in settings},
            axes={setting.name: setting.axes for setting in settings},
            resources=combined([task.needs[setting.name] for setting in settings], len(runs), task.options.limits),
        )
    )


def in_random_order(runs: Sequence[Run], order_seed: int) -> list[Run]:
    """Return the runs in the order of `order_seed`, by the SHA-256 of seed and name: it is the same on any machine."""
    return sorted(runs, key=lambda run: sha256_text(f"{order_seed}/{run.name}"))


def _named(block: Block) -> Block:
    """Return the block under the name of its content. Resources are no part of it: limits may change, runs may not."""
    configs = {name: config.digest for name, config in block.configs.items()}
    usual = {run.name: block.configs[run.setting].seed + run.repeat for run in block.runs}
    runs = [run.name if run.seed == usual[run.name] else f"{run.name}/{run.seed}" for run in block.runs]
    content = canonical_json([block.sweep, block.order_seed, runs, configs])
    return block.model_copy(update={"name": f"b{sha256_text(content)[:12]}"})


def planned_block(block: Block, wanted: Sequence[Run], task: DesignInput) -> PlannedBlock:
    """Return a block as the manifest lists it, with the `wanted` ones of its runs."""
    names = {run.name for run in wanted}
    runs = [run for run in block.runs if run.name in names]
    each = list({run.setting: task.needs[run.setting] for run in runs}.values())
    resources = combined(each, len(runs), task.options.limits).model_copy(update={"node": block.resources.node})
    return PlannedBlock(name=block.name, runs=tuple(run.name for run in runs), resources=resources)


# The files of an earlier plan of the same sweep: its manifest and all blocks. Records are never read.


@dataclass(frozen=True)
class PreviousPlan:
    """The earlier plan: `blocks` in the order in which they were planned, those of still earlier plans after them.

    `revision` is the number of the last revision, 0 if there was none. `damaged` files were not read.
    """

    manifest: Manifest | None
    revision: int
    blocks: tuple[Block, ...]
    damaged: tuple[Path, ...]
    notes: tuple[str, ...]


def read_previous_plan(folder: SweepFolder) -> PreviousPlan:
    """Return the earlier plan in the sweep's folder; it is empty before the first plan."""
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
    planned_block = [block.name for block in manifest.blocks if block.name in blocks] if manifest else []
    return PreviousPlan(
        manifest=manifest,
        revision=max([manifest.revision if manifest else 0, *folder.revisions()]),
        blocks=tuple(blocks[name] for name in dict.fromkeys([*planned_block, *blocks])),
        damaged=tuple(error.path for error in damaged),
        notes=tuple(f"{error}; it is set aside and planned again" for error in damaged),
    )


# Blocks of a sweep that compares versions: one block holds all versions of a setting.

Unit = tuple[str, ...]
"""The names of the settings of one setting, one for each version."""


def paired_block_design(task: DesignInput, version_groups: Sequence[Unit], existing: Sequence[Block]) -> BlockDesign:
    """Return blocks of which `settings.repeats` hold all versions of each setting; existing blocks count.

    Raises InputError if a block cannot hold all versions of one setting.
    """
    known = {block.name: block for block in existing}
    have: Counter[Unit] = Counter()
    repeats = {unit: max(map(task.options.repeats_of, unit[1:] or unit)) for unit in version_groups}
    wanted = {name: _complete_units(block, repeats, have) for name, block in known.items()}
    numbers, on_disk = RepeatNumbering(known.values()), {block.name for block in existing}
    missing = {unit: count - have[unit] for unit, count in repeats.items()}
    for block in _paired_layers(task, missing, sum(map(bool, wanted.values())), numbers):
        known[block.name], wanted[block.name] = block, block.runs
    blocks = [block for block in known.values() if wanted[block.name]]
    return BlockDesign(
        planned=tuple(planned_block(block, wanted[block.name], task) for block in blocks),
        new=tuple(block for block in blocks if block.name not in on_disk),
    )


def _complete_units(block: Block, repeats: Mapping[Unit, int], have: Counter[Unit]) -> tuple[Run, ...]:
    """Return the runs of a block whose settings still lack repeats, and count them in `have`."""
    runs = {run.setting: run for run in sorted(block.runs, key=lambda run: -run.repeat)}
    found = [unit for unit, count in repeats.items() if have[unit] < count and all(setting in runs for setting in unit)]
    have.update(found)
    return tuple(runs[setting] for unit in found for setting in unit)


def _paired_layers(
    task: DesignInput, missing: Mapping[Unit, int], first: int, numbers: RepeatNumbering
) -> Iterator[Block]:
    """Yield new blocks until every setting has its repeats; `first` numbers the layer, which shuffles the settings."""
    for layer in range(max(missing.values(), default=0)):
        version_groups = [unit for unit, count in missing.items() if count > layer]
        for chunk in _paired_chunks(task, version_groups, first + layer):
            yield new_block(numbers.next_runs([task.settings[setting] for unit in chunk for setting in unit]), task)


def _paired_chunks(task: DesignInput, version_groups: Sequence[Unit], layer: int) -> Iterator[list[Unit]]:
    """Yield the settings of one block after the other, by resource class and within the bounds of a block."""
    classes: dict[tuple[object, ...], list[Unit]] = {}
    for unit in version_groups:
        classes.setdefault(resource_class(task.settings[unit[0]].config, task.site), []).append(unit)
    for members in classes.values():
        most = max_runs_per_block(task, members[0][0])
        room = min(most / max(map(len, members)), len(members))
        if room < 1:
            raise InputError(
                f"a block may hold {most:g} runs, but a setting has {max(map(len, members))} versions, which must "
                "stand in one block to be compared. Raise block.size, or the time that bounds it"
            )
        shuffled = sorted(members, key=lambda unit: sha256_text(f"{task.sweep}/{layer}/{unit[0]}"))
        count = math.ceil(len(members) / int(room))
        yield from (shuffled[index::count] for index in range(count))


def version_groups(settings: Iterable[Setting]) -> list[Unit]:
    """Return the names of each setting's supported settings, one for each version."""
    found: dict[str, list[str]] = {}
    for setting in settings:
        found.setdefault(in_any_version(setting.axes), []).append(setting.name)
    return [tuple(names) for names in found.values()]
