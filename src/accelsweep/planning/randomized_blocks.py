"""Divides a sweep's runs into randomised complete blocks, and reuses existing blocks when the plan grows.

Each block contains one repeat of each of its settings and `block.baseline_runs` runs of the baseline. Their order is
random but seeded by the block's content, so the same plan produces the same blocks on any machine. Blocks are
immutable: a larger plan puts its additional runs into new blocks with new repeats of the baseline.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from accelsweep.config.setting import Setting
from accelsweep.config.site import Site
from accelsweep.config.sweep_options import Options
from accelsweep.errors import InputError
from accelsweep.plain_json import SharedJson, canonical_json, sha256_text
from accelsweep.planning.resources import combined, fits_in, max_runs_within, resource_class, resources_of
from accelsweep.records.plan import Block, PlannedBlock, axes_without_version
from accelsweep.run_config import Run
from accelsweep.schedulers.protocol import Resources

MIN_SETTINGS_PER_JOB = 6
"""A separate job for fewer settings than this is not worth its start-up time and the two extra baseline runs."""

VersionGroup = tuple[str, ...]
"""The names of settings that differ only in their version."""


@dataclass(frozen=True)
class DesignInput:
    """The settings to divide into blocks: supported settings keyed by name, in grid order, including the baseline."""

    sweep: str
    settings: Mapping[str, Setting]
    baseline: str
    options: Options
    site: Site

    @cached_property
    def needs(self) -> dict[str, Resources]:
        """The resources that a single run of each setting requires."""
        return resources_of({name: setting.config for name, setting in self.settings.items()}, self.site)

    def allocation(self, settings: Iterable[str], runs: int) -> Resources:
        """Return an allocation for `runs` runs of these settings."""
        needs = {id(need): need for need in map(self.needs.__getitem__, settings)}  # many settings share theirs
        return combined(list(needs.values()), runs, self.options.limits)

    @cached_property
    def digests(self) -> dict[str, str]:
        """The SHA-256 of each setting's config, used to name the blocks that contain the setting."""
        json_of = SharedJson()
        return {name: sha256_text(json_of(setting.config.raw)) for name, setting in self.settings.items()}


@dataclass(frozen=True)
class BlockDesign:
    """A plan's blocks: `planned` blocks as listed in the manifest, and `new` blocks, which are not yet written."""

    planned: tuple[PlannedBlock, ...]
    new: tuple[Block, ...]


class RepeatNumbering:
    """Assigns repeat numbers and seeds: for each setting, the smallest values that no block has used."""

    def __init__(self, blocks: Iterable[Block]) -> None:
        self._repeats: dict[str, set[int]] = {}
        self._seeds: dict[str, set[int]] = {}
        for run in (run for block in blocks for run in block.runs):
            self._repeats.setdefault(run.setting, set()).add(run.repeat)
            self._seeds.setdefault(run.setting, set()).add(run.seed)

    def next_runs(self, settings: Sequence[Setting]) -> list[Run]:
        """Return the runs of a new block.

        A setting that occurs twice is assigned two repeat numbers but one seed. All settings in a block thus share a
        seed unless the plan has grown, so values that depend on the seed are also paired by block.
        """
        first_seeds = {setting.name: setting.config.seed for setting in settings}
        seeds = {name: _next_unused(self._seeds.setdefault(name, set()), first) for name, first in first_seeds.items()}
        runs = []
        for setting in settings:
            repeat = _next_unused(self._repeats.setdefault(setting.name, set()), 0)
            runs.append(Run.of(setting.name, repeat, seeds[setting.name] - repeat))
        return runs


def _next_unused(used: set[int], first: int) -> int:
    """Return the smallest number that is at least `first` and not in `used`, and add it to `used`."""
    number = first
    while number in used:
        number += 1
    used.add(number)
    return number


def block_design(task: DesignInput, existing: Sequence[Block]) -> BlockDesign:
    """Design blocks such that each supported setting is in `options.repeats` of them, counting existing wanted runs.

    Raises InputError if `block.minutes` is too short for a single run.
    """
    for setting in {task.needs[name].node_kind: name for name in task.settings}.values():
        max_runs_per_block(task, setting)
    blocks = {block.name: block for block in existing}
    wanted = _wanted_runs(existing, task)
    numbering = RepeatNumbering(existing)
    new = list(_new_blocks(task, wanted, numbering))
    repeats_of = task.options.repeats_of
    repeats = max((repeats_of(name) for name in task.settings if name != task.baseline), default=task.options.repeats)
    with_baseline = [
        runs
        for runs in (*wanted.values(), *(block.runs for block in new))
        if any(run.setting == task.baseline for run in runs)
    ]
    # If settings cannot share a block with the baseline, the baseline lacks repeats: first reuse its runs in blocks
    # without other wanted runs, then add blocks that contain only the baseline.
    missing = max(0, repeats - len(with_baseline))
    reusable = {block.name: _baseline_runs(block, task) for block in existing if not wanted[block.name]}
    reused = dict([(name, runs) for name, runs in reusable.items() if runs][:missing])
    wanted.update(reused)
    new += [new_block(numbering.next_runs([task.settings[task.baseline]]), task) for _ in range(missing - len(reused))]
    for block in new:
        blocks[block.name], wanted[block.name] = block, block.runs
    return _design(blocks, wanted, existing, task)


def _design(
    blocks: Mapping[str, Block], wanted: Mapping[str, Sequence[Run]], existing: Sequence[Block], task: DesignInput
) -> BlockDesign:
    on_disk = {block.name for block in existing}
    kept = [block for block in blocks.values() if wanted[block.name]]
    return BlockDesign(
        planned=tuple(planned_block(block, wanted[block.name], task) for block in kept),
        new=tuple(block for block in kept if block.name not in on_disk),
    )


def _wanted_runs(blocks: Sequence[Block], task: DesignInput) -> dict[str, tuple[Run, ...]]:
    """Return each block's wanted runs; the baseline is wanted if another run needs it.

    If a former baseline has several runs in a block, the first of them is used as its repeat.
    """
    wanted: dict[str, tuple[Run, ...]] = {}
    count = dict.fromkeys(task.settings, 0)
    for block in blocks:
        first: dict[str, Run] = {}
        for run in sorted(block.runs, key=lambda run: run.repeat):
            name = run.setting
            if name in count and name != task.baseline and count[name] < task.options.repeats_of(name):
                first.setdefault(name, run)
        count.update({name: count[name] + 1 for name in first})
        wanted[block.name] = (*first.values(), *(_baseline_runs(block, task) if first else ()))
    return wanted


def _baseline_runs(block: Block, task: DesignInput) -> tuple[Run, ...]:
    return tuple(run for run in block.runs if run.setting == task.baseline)


def _new_blocks(
    task: DesignInput, wanted: Mapping[str, tuple[Run, ...]], numbering: RepeatNumbering
) -> Iterator[Block]:
    """Yield new blocks until every setting except the baseline has enough repeats."""
    have = Counter(run.setting for runs in wanted.values() for run in runs)
    missing = {name: task.options.repeats_of(name) - have[name] for name in task.settings if name != task.baseline}
    for layer in range(max(missing.values(), default=0)):
        settings = [name for name, count in missing.items() if count > layer]
        for names in _chunks(settings, len(wanted) + layer, task):
            yield new_block(numbering.next_runs([task.settings[name] for name in names]), task)


def _chunks(settings: Sequence[str], layer: int, task: DesignInput) -> Iterator[list[str]]:
    """Yield each block's settings for one repeat of all `settings`, grouped by resource class, within the size limits.

    The baseline comes first and is repeated `block.baseline_runs` times, but no more often than there are other
    settings: with only one other setting, the time for a second baseline run is better spent on more blocks.
    """
    classes: dict[tuple[object, ...], list[str]] = {}
    for name in settings:
        classes.setdefault(resource_class(task.settings[name].config, task.site), []).append(name)
    for members in classes.values():
        most = max_runs_per_block(task, members[0])
        baselines = int(min(task.options.block.baseline_runs, most / 2)) if _baseline_fits(members, task) else 0
        room = int(min(most - baselines, _settings_per_job(members, task)))
        for chunk in _shuffled_chunks(members, room, layer, task):
            yield [task.baseline] * min(baselines, len(chunk)) + chunk


def _shuffled_chunks(names: Sequence[str], size: int, layer: int, task: DesignInput) -> Iterator[list[str]]:
    """Yield `names` in chunks of nearly equal size, at most `size`, shuffled differently for each layer of repeats."""
    shuffled = sorted(names, key=lambda name: sha256_text(f"{task.sweep}/{layer}/{name}"))
    count = math.ceil(len(names) / size)
    return (shuffled[index::count] for index in range(count))


def _baseline_fits(members: Sequence[str], task: DesignInput) -> bool:
    """Return whether the baseline can run in a job for these settings, which share a resource class."""
    if task.site.scheduler == "local":
        return True
    baseline = task.needs[task.baseline]
    allocation = task.allocation(members, 1)
    if task.site.of_kind(allocation.node_kind).jobs.exclusive:  # it may request all cores of its nodes
        allocation = allocation.model_copy(update={"cpus": max(allocation.cpus, baseline.cpus)})
    return fits_in(baseline, allocation)


def _settings_per_job(members: Sequence[str], task: DesignInput) -> int:
    """Return how many of these settings to put in a block if `block.size` is unset: few enough to keep all nodes busy.

    The blocks of all repeats may run concurrently. Each block contains its own baseline runs, so smaller blocks would
    cost more than they save.
    """
    if task.site.scheduler == "local" or task.options.block.size is not None:
        return len(members)
    needs = task.needs[members[0]]
    concurrent = task.site.of_kind(needs.node_kind).nodes // needs.nodes
    jobs = max(1, math.ceil(concurrent / task.options.repeats))
    return min(len(members), max(MIN_SETTINGS_PER_JOB, math.ceil(len(members) / jobs)))


def max_runs_per_block(task: DesignInput, setting: str) -> float:
    """Return the maximum number of runs in a block on the nodes that this setting needs; infinity if unbounded.

    Raises InputError if a time limit is too short for a single run.
    """
    site = task.site.of_kind(task.needs[setting].node_kind)
    limits, most = task.options.limits, task.options.block.size or math.inf
    time_limits: dict[str, float | None] = {"block.minutes": task.options.block.minutes}
    if site.scheduler != "local":
        time_limits[f"{site.jobs_key}.max_minutes"] = site.jobs.max_minutes
    for key, available in time_limits.items():
        runs = math.inf if available is None else max_runs_within(limits, available)
        if runs < 1:
            raise InputError(
                f"{key}={available} is too short for one run, which may take limits.run_seconds="
                f"{limits.run_seconds:g} plus start-up: raise {key} or lower limits.run_seconds"
            )
        most = min(most, runs)
    return most


def new_block(runs: Sequence[Run], task: DesignInput) -> Block:
    """Return a block of these runs in random order, named by a hash of its content."""
    order_seed = int(sha256_text(canonical_json([task.sweep, sorted(run.name for run in runs)]))[:8], 16)
    settings = [task.settings[run.setting] for run in runs]
    block = Block.model_construct(  # not validated, because the parts are valid and many
        name="",
        sweep=task.sweep,
        order_seed=order_seed,
        runs=tuple(in_random_order(runs, order_seed)),
        configs={setting.name: setting.config for setting in settings},
        axes={setting.name: setting.axes for setting in settings},
        resources=task.allocation((run.setting for run in runs), len(runs)),
    )
    # Resources are not part of the name because limits may change, whereas runs may not.
    default_seeds = {run.name: block.configs[run.setting].seed + run.repeat for run in block.runs}
    names = [run.name if run.seed == default_seeds[run.name] else f"{run.name}/{run.seed}" for run in block.runs]
    digests = {name: task.digests[name] for name in block.configs}
    content = canonical_json([block.sweep, order_seed, names, digests])
    return block.model_copy(update={"name": f"b{sha256_text(content)[:12]}"})


def in_random_order(runs: Sequence[Run], order_seed: int) -> list[Run]:
    """Sort the runs by the SHA-256 of `order_seed` and name: random, but the same on any machine."""
    return sorted(runs, key=lambda run: sha256_text(f"{order_seed}/{run.name}"))


def planned_block(block: Block, wanted: Sequence[Run], task: DesignInput) -> PlannedBlock:
    """Return a block as listed in the manifest, with its `wanted` runs."""
    names = {run.name for run in wanted}
    runs = [run for run in block.runs if run.name in names]
    resources = task.allocation((run.setting for run in runs), len(runs))
    resources = resources.model_copy(update={"node": block.resources.node})
    return PlannedBlock(name=block.name, runs=tuple(run.name for run in runs), resources=resources)


def version_groups(settings: Iterable[Setting]) -> list[VersionGroup]:
    """Group the names of settings that differ only in their version."""
    groups: dict[str, list[str]] = {}
    for setting in settings:
        groups.setdefault(axes_without_version(setting.axes), []).append(setting.name)
    return [tuple(names) for names in groups.values()]


def paired_block_design(task: DesignInput, groups: Sequence[VersionGroup], existing: Sequence[Block]) -> BlockDesign:
    """Design blocks such that all versions of each setting are in `options.repeats` of them, counting existing blocks.

    Raises InputError if the versions of a setting do not all fit in a block.
    """
    blocks = {block.name: block for block in existing}
    have: Counter[VersionGroup] = Counter()
    repeats = {group: max(map(task.options.repeats_of, group[1:] or group)) for group in groups}
    wanted: dict[str, tuple[Run, ...]] = {}
    for block in existing:
        runs = {run.setting: run for run in sorted(block.runs, key=lambda run: -run.repeat)}
        complete = [group for group, count in repeats.items() if have[group] < count and runs.keys() >= set(group)]
        have.update(complete)
        wanted[block.name] = tuple(runs[name] for group in complete for name in group)
    numbering, used = RepeatNumbering(existing), sum(map(bool, wanted.values()))
    missing = {group: count - have[group] for group, count in repeats.items()}
    for layer in range(max(missing.values(), default=0)):
        left = [group for group, count in missing.items() if count > layer]
        for chunk in _paired_chunks(task, left, used + layer):
            block = new_block(numbering.next_runs([task.settings[name] for group in chunk for name in group]), task)
            blocks[block.name], wanted[block.name] = block, block.runs
    return _design(blocks, wanted, existing, task)


def _paired_chunks(task: DesignInput, groups: Sequence[VersionGroup], layer: int) -> Iterator[list[VersionGroup]]:
    """Yield each block's groups, separated by resource class and within the size limits of a block."""
    classes: dict[tuple[object, ...], dict[str, VersionGroup]] = {}
    for group in groups:
        classes.setdefault(resource_class(task.settings[group[0]].config, task.site), {})[group[0]] = group
    for members in classes.values():
        most = max_runs_per_block(task, next(iter(members)))
        versions = max(map(len, members.values()))
        room = min(most / versions, len(members))
        if room < 1:
            raise InputError(
                f"a block may contain {most:g} runs, but a setting has {versions} versions, which must share a block "
                "to be compared. Raise block.size, or the time limit of a block"
            )
        for chunk in _shuffled_chunks(list(members), int(room), layer, task):
            yield [members[name] for name in chunk]
