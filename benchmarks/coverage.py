"""Do the intervals hold the truth, and do equal settings look equal? Simulated sweeps through our own interval code.

    python benchmarks/coverage.py [SWEEPS]

Prints a Markdown page with tables from SWEEPS (10000) simulated sweeps each; `make simulations` keeps it. They compare
the coverage and the half widths of the moderated interval with those of the plain paired t-interval. They also show
false verdicts between equal settings, repeated looks, `repeats: auto`, `--until-decided`, scaling laws, power, and
sweeps on a machine that others use in bursts, whose disturbed runs are measured again, and early decisions. Exit
code 1 if a gate fails. There are seven gates. At least 94 % of the sweeps hold all their truths in every scenario but
`two far modes`. So do 94 % of the scaling laws, contention and coherency at once. At most 5 % of the sweeps of equal
settings have a false verdict. At most 5 % of the comparisons of equal versions have one after any look, chance apart.
At 8 settings in 3 blocks the half widths are at most half of the plain ones. In bursts of 1 to 8 runs, at least 94 % of
the sweeps hold all their truths, and no ratio is biased by more than 1 %. So do 94 %
with early decisions, and at most 5 % leave out a setting that is not much slower. Two settings are printed without a
gate, because a single ratio has the plain interval. All noise is on the log rate, in units of a run's usual standard
deviation.
"""

from __future__ import annotations

import bisect
import math
import sys
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from scipy import special

from accelsweep.analysis.intervals import Family
from accelsweep.analysis.racing import MUCH_SLOWER, race
from accelsweep.analysis.scaling import Logs, fit_law
from accelsweep.analysis.simultaneous_intervals import Pair, critical, half_widths, level_after, moderate
from accelsweep.analysis.statistical_power import PairNoise, repeats_for_resolution
from accelsweep.config.sweep_options import LOOKS, Limits
from accelsweep.executor.block import MAX_VAIN_REPEATS
from accelsweep.executor.quiet_wait import MAX_VAIN_WAITS
from accelsweep.measure.run_doubts import FOREIGN
from accelsweep.records.early_decisions import MIN_BLOCKS
from accelsweep.results import MAX_DISTURBED_SHARE

Array = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Scenario = Callable[[np.random.Generator, tuple[int, int, int]], Array]
"""From a generator and (sweeps, settings, blocks) to the noise of each run; the baseline is setting 0."""

COVERED, FALSE, NARROWER = 0.94, 0.05, 0.5
"""The gates: least coverage, most sweeps with a false verdict, largest part of the plain half width."""

SETTINGS, BLOCKS = (2, 4, 8, 16, 32), (3, 5)
NOISE, THRESHOLD = 0.1, 0.02
"""A run's noise and the practical threshold where verdicts are counted: noise far above the threshold."""

UNGATED = "two far modes"


def normal(random: np.random.Generator, shape: tuple[int, int, int]) -> Array:
    """Equal normal noise."""
    return random.normal(size=shape)


def t3(random: np.random.Generator, shape: tuple[int, int, int]) -> Array:
    """Student's t with 3 degrees of freedom, scaled to standard deviation 1."""
    return random.standard_t(3, size=shape) / math.sqrt(3.0)


def bimodal(random: np.random.Generator, shape: tuple[int, int, int]) -> Array:
    """Every run lies 1 above or below, with half as much normal noise."""
    return random.choice((-1.0, 1.0), size=shape) + 0.5 * normal(random, shape)


def far_modes(random: np.random.Generator, shape: tuple[int, int, int]) -> Array:
    """A third of the settings (not the baseline) switch between two levels, 20 apart."""
    noise, some = normal(random, shape), max(1, shape[1] // 3)
    noise[:, 1 : 1 + some] += random.choice((-10.0, 10.0), size=(shape[0], some, shape[2]))
    return noise


def louder(setting: int, times: float) -> Scenario:
    """One setting (0 is the baseline) has `times` the noise of the others."""

    def noise(random: np.random.Generator, shape: tuple[int, int, int]) -> Array:
        found = normal(random, shape)
        found[:, setting] *= times
        return found

    return noise


def uneven(random: np.random.Generator, shape: tuple[int, int, int]) -> Array:
    """The logarithms of the settings' standard deviations have a standard deviation of 0.5."""
    return normal(random, shape) * np.exp(random.normal(0.0, 0.5, size=(*shape[:2], 1)))


def spared(part: float) -> Scenario:
    """Block shocks of 3 sds that reach only the last `part` of the settings; the baseline is never among them."""

    def noise(random: np.random.Generator, shape: tuple[int, int, int]) -> Array:
        found = normal(random, shape)
        found[:, max(1, shape[1] - round(part * shape[1])) :] += 3.0 * random.normal(size=(shape[0], 1, shape[2]))
        return found

    return noise


def stalls(random: np.random.Generator, shape: tuple[int, int, int]) -> Array:
    """5 % of the runs are 30 % slower, where a run's usual noise is 1 %."""
    return normal(random, shape) + np.where(random.random(shape) < 0.05, math.log(0.7) / 0.01, 0.0)


def drift(random: np.random.Generator, shape: tuple[int, int, int]) -> Array:
    """The machine loses 10 sds over the sweep; the settings of a block run in random order."""
    place = random.random(shape).argsort(axis=1) / shape[1]
    return normal(random, shape) - 10.0 * (np.arange(shape[2]) + place) / shape[2]


def walk(random: np.random.Generator, shape: tuple[int, int, int]) -> Array:
    """A random walk within each block, one sd a run; the settings run in random order."""
    steps = random.normal(size=shape).cumsum(axis=1)
    return np.asarray(normal(random, shape) + np.take_along_axis(steps, random.random(shape).argsort(axis=1), axis=1))


SCENARIOS: dict[str, Scenario] = {
    "equal normal": normal,
    "baseline twice": louder(0, math.sqrt(0.5)),
    "t3": t3,
    "bimodal": bimodal,
    UNGATED: far_modes,
    "baseline 3x": louder(0, 3.0),
    "baseline 10x": louder(0, 10.0),
    "one setting 3x": louder(1, 3.0),
    "one setting 10x": louder(1, 10.0),
    "log-sd spread 0.5": uneven,
    "shocks spare baseline": spared(1.0),
    "shocks spare half": spared(0.5),
    "stalls of 30 %": stalls,
    "drift": drift,
    "walk within block": walk,
}


@dataclass(frozen=True)
class Intervals:
    """Centres and half widths, (sweeps, comparisons): `new` is the analysis' interval, `old` the plain paired one."""

    centers: Array
    new: Array
    old: Array

    def covering(self, widths: Array) -> Flags:
        """Return for each sweep whether all its intervals hold the truth, which is 0."""
        return np.asarray((np.abs(self.centers) <= widths).all(axis=1))

    def deciding(self, widths: Array) -> Flags:
        """Return for each sweep whether any of its verdicts is `faster` or `slower`."""
        return np.asarray((np.abs(self.centers) - widths > math.log1p(THRESHOLD)).any(axis=1))


def intervals(noise: Array, family: Family | None = None) -> Intervals:
    """Return the intervals of sweeps whose log rates are `noise` (sweeps, settings, blocks), as analysed.

    `family` is that of all verdicts, by default of these settings'.
    """
    differences = noise[:, 1:] - noise[:, :1]
    variances, count = differences.var(axis=-1, ddof=1), noise.shape[2]
    family = family or Family(noise.shape[1] - 1)
    counts = np.full(noise.shape[1] - 1, count)
    old = critical(counts - 1.0, family.each) * np.sqrt(variances / count)
    pooled = len(counts) > 1 and count >= 3
    new = half_widths(variances, counts, noise.shape[1], family.each, family.confidence) if pooled else old
    return Intervals(differences.mean(axis=-1), new, old)


class Table:
    """A Markdown table that is printed row by row; it records whether a gate has failed."""

    def __init__(self, title: str, *columns: str) -> None:
        self.failed = False
        print(f"\n**{title}**\n\n| {' | '.join(columns)} |\n|{'---|' * len(columns)}")

    def row(self, *cells: str, missed: bool = False) -> None:
        """Print a row; `missed` marks it as one that fails its gate."""
        self.failed |= missed
        print(f"| {' | '.join(cells)}{' **missed**' if missed else ''} |", flush=True)


def coverage(sweeps: int) -> bool:
    """Print all scenarios at all sizes; return whether a gate failed."""
    heads = [f"{settings} settings" for settings in SETTINGS]
    title = "Sweeps whose intervals all hold the truth, in %: moderated (plain paired t)"
    table = Table(title, "scenario", "blocks", *heads, "half width at 8 settings")
    for name, scenario in SCENARIOS.items():
        for blocks in BLOCKS:
            found = [intervals(scenario(np.random.default_rng(1), (sweeps, settings, blocks))) for settings in SETTINGS]
            held = [(one.covering(one.new).mean(), one.covering(one.old).mean()) for one in found]
            eight = found[SETTINGS.index(8)]
            widths = [float(np.median(eight.new)), float(np.median(eight.old))]
            missed = name != UNGATED and min(new for new, _ in held[1:]) < COVERED
            missed |= (name, blocks) == ("equal normal", 3) and widths[0] > NARROWER * widths[1]
            shown = [f"{100 * new:.1f} ({100 * old:.1f})" for new, old in held]
            table.row(name, str(blocks), *shown, f"{widths[0]:.3g} ({widths[1]:.3g})", missed=missed)
    return table.failed


def verdicts(sweeps: int) -> bool:
    """Print how often equal settings get a verdict, at one look and at repeated ones; return whether a gate failed."""
    title = f"Sweeps of 8 equal settings with a false verdict, {NOISE:.0%} noise, in %: moderated (plain)"
    looks: tuple[tuple[int, ...], ...] = ((3,), (5,), (3, 5, 8))
    table = Table(title, "scenario", "at 3 blocks", "at 5 blocks", "at a look at 3, 5 or 8 (not gated)")
    for name, scenario in SCENARIOS.items():
        noise = NOISE * scenario(np.random.default_rng(2), (sweeps, 8, 8))
        found = {blocks: intervals(noise[..., :blocks]) for blocks in (3, 5, 8)}
        new = [np.any([found[look].deciding(found[look].new) for look in one], axis=0).mean() for one in looks]
        old = [np.any([found[look].deciding(found[look].old) for look in one], axis=0).mean() for one in looks]
        missed = name != UNGATED and max(new[:2]) > FALSE
        table.row(name, *(f"{100 * a:.1f} ({100 * b:.1f})" for a, b in zip(new, old, strict=True)), missed=missed)
    return table.failed


def power(sweeps: int) -> None:
    """Print how often a true gain is found faster."""
    gains = (0.05, 0.1, 0.2, 0.5, 1.0)
    title = "True gains that are found faster, equal normal noise, 8 settings, in %: moderated (plain)"
    table = Table(title, "noise", "blocks", *(f"+{gain:.0%}" for gain in gains))
    for noise in (0.01, 0.03, 0.1):
        for blocks in BLOCKS:
            one = intervals(noise * normal(np.random.default_rng(3), (sweeps, 8, blocks)))
            beyond = [math.log1p(gain) - math.log1p(THRESHOLD) for gain in gains]
            found = [[(one.centers + far > widths).mean() for widths in (one.new, one.old)] for far in beyond]
            table.row(f"{noise:.0%}", str(blocks), *(f"{100 * new:.0f} ({100 * old:.0f})" for new, old in found))


def auto(sweeps: int) -> bool:
    """Print how many blocks `repeats: auto` takes; return whether a gate failed."""
    title = "`repeats: auto`, a resolution of 10 %, at most 20 blocks: sweeps that hold all truths in % (blocks)"
    noises = (0.02, 0.03, 0.05, 0.08)
    table = Table(title, "scenario", "settings", *(f"{noise:.0%} noise" for noise in noises))
    for name in ("equal normal", "t3", "baseline 3x", "one setting 10x", "log-sd spread 0.5"):
        for settings in (4, 8, 16):
            found = [
                _stein(noise * SCENARIOS[name](np.random.default_rng(4), (sweeps, settings, 20))) for noise in noises
            ]
            shown = (f"{100 * held:.1f} ({blocks:.1f})" for held, blocks in found)
            table.row(name, str(settings), *shown, missed=min(held for held, _ in found) < COVERED)
    return table.failed


def _stein(noise: Array) -> tuple[float, float]:
    """Return the share of sweeps that hold all truths after the blocks that the pilot asks for, and their mean."""
    needed = np.fromiter(_needed(noise[..., :3]), dtype=np.int64)
    held = np.zeros(len(needed), dtype=bool)
    for blocks in np.unique(needed):
        found = intervals(noise[needed == blocks][..., :blocks])
        held[needed == blocks] = found.covering(found.new)
    return float(held.mean()), float(needed.mean())


def _needed(pilot: Array) -> Iterator[int]:
    differences = pilot[:, 1:] - pilot[:, :1]
    size = differences.shape[1]
    shown = moderate(differences.var(axis=-1, ddof=1), np.full(size, 2.0), size + 1)
    for variances, worth in zip(shown.variance, shown.prior_degrees, strict=True):
        answer = repeats_for_resolution([PairNoise(float(one), float(worth), size) for one in variances], size)
        assert answer is not None
        yield answer.repeats


def until_decided(sweeps: int) -> bool:
    """Print how `--until-decided` ends for equal and for slower versions; return whether a gate failed."""
    title = "`--until-decided`, 1 comparison: false alarms and 3 % slower versions found, in % (blocks taken, mean)"
    table = Table(title, "noise", "threshold", "equal: slower or faster", "equal: same", "0.97: slower", "0.97: faster")
    for noise in (0.01, 0.03, 0.1):
        for threshold in (0.0, 0.02):
            equal, slower = (_looked(noise, ratio, threshold, sweeps) for ratio in (1.0, 0.97))
            false = equal["slower"][0] + equal["faster"][0]
            shown = [equal["same"], slower["slower"], slower["faster"]]
            cells = [f"{100 * share:.1f} ({blocks:.1f})" for share, blocks in shown]
            limit = FALSE + 2.5 * math.sqrt(FALSE * (1 - FALSE) / sweeps)
            table.row(f"{noise:.0%}", f"{threshold:.0%}", f"{100 * false:.1f}", *cells, missed=false > limit)
    return table.failed


def _looked(noise: float, ratio: float, threshold: float, sweeps: int) -> dict[str, tuple[float, float]]:
    """Return the share of each verdict over all looks, with the mean number of blocks at which it was reached."""
    random, beyond = np.random.default_rng(5), math.log1p(threshold)
    differences = math.log(ratio) + noise * math.sqrt(2.0) * random.normal(size=(sweeps, LOOKS[-1]))
    open_ones = np.ones(sweeps, dtype=bool)
    taken: dict[str, list[int]] = {"slower": [], "faster": [], "same": []}
    for look in LOOKS:
        seen = differences[:, :look]
        critical = special.stdtrit(look - 1, 1.0 - level_after(look, 0.05) / 2.0)
        half, center = critical * seen.std(axis=1, ddof=1) / math.sqrt(look), seen.mean(axis=1)
        found = {
            "slower": center + half < -beyond,
            "faster": center - half > beyond,
            "same": (center - half >= -beyond) & (center + half <= beyond),
        }
        for verdict, reached in found.items():
            taken[verdict] += [look] * int((open_ones & reached).sum())
        open_ones &= ~(found["slower"] | found["faster"] | found["same"])
    return {verdict: (len(at) / sweeps, float(np.mean(at)) if at else math.nan) for verdict, at in taken.items()}


LAWS = ((0.0, 0.0), (0.02, 0.0), (0.3, 0.0), (0.05, 0.001), (0.05, 0.02), (0.0, 0.005))
"""True contentions and coherencies: ideal scaling, Amdahl's law, and the universal one."""

COUNTS: tuple[tuple[int, ...], ...] = ((1, 2, 4, 8), (1, 2, 3, 4, 6, 8, 12, 16))
"""The numbers of devices that are measured."""


def laws(sweeps: int) -> bool:
    """Print how often the intervals of a scaling law hold both truths; return whether a gate failed."""
    title = "Scaling laws whose intervals hold contention and coherency, in % (median half widths)"
    heads = [f"{noise:.0%} noise, {blocks} blocks" for noise in (0.01, 0.05) for blocks in BLOCKS]
    table = Table(title, "contention", "coherency", "devices", *heads, "1 %, 5, no shared blocks")
    for contention, coherency in LAWS:
        for counts in COUNTS:
            ways = [(noise, blocks, True) for noise in (0.01, 0.05) for blocks in BLOCKS] + [(0.01, 5, False)]
            found = [law_coverage(contention, coherency, counts, way, sweeps) for way in ways]
            shown = [f"{100 * held:.1f} ({first:.2g}, {second:.1g})" for held, first, second in found]
            missed = min(held for held, *_ in found) < COVERED - 2.5 * math.sqrt(COVERED * (1 - COVERED) / sweeps)
            names = (f"{contention:g}", f"{coherency:g}", ", ".join(map(str, counts)))
            table.row(*names, *shown, missed=missed)
    return table.failed


def law_coverage(
    contention: float, coherency: float, counts: tuple[int, ...], way: tuple[float, int, bool], sweeps: int
) -> tuple[float, float, float]:
    """Return the share of laws that hold both truths, and the median half widths of contention and coherency.

    `way` has a run's noise, the number of blocks, and whether these hold all numbers of devices. They are then up to
    30 % faster or slower as a whole.
    """
    noise, blocks, shared = way
    random, truth, held, widths = np.random.default_rng(6), (contention, coherency), [], []
    for _ in range(sweeps):
        levels = 0.1 * random.normal(size=blocks) if shared else np.zeros(blocks)
        law = fit_law(
            made_rates(
                contention, coherency, counts, noise * random.normal(size=(len(counts), blocks)) + levels, shared=shared
            ),
            Family(2),
        )
        halves = [one.half_width or math.inf for one in law.intervals]
        off = [abs(one.center - true) for one, true in zip(law.intervals, truth, strict=True)]
        held.append(off[0] <= halves[0] and off[1] <= halves[1])
        widths.append(halves)
    first, second = np.median(widths, axis=0)
    return float(np.mean(held)), float(first), float(second)


def made_rates(contention: float, coherency: float, counts: tuple[int, ...], noise: Array, *, shared: bool) -> Logs:
    """Return the log rates of a known law on these numbers of devices with this `noise`, (counts, blocks)."""
    return {
        n: {
            f"{block}" if shared else f"{n}, {block}": math.log(
                n / (1 + contention * (n - 1) + coherency * n * (n - 1))
            )
            + float(one)
            for block, one in enumerate(row)
        }
        for n, row in zip(counts, noise, strict=True)
    }


# Others use the machine in bursts.

BUSY_SHARE = 0.3
"""The share of time for which others use the machine."""

RUN_SECONDS, WINDOW = 4.0, (1.6, 3.2)
"""The duration of a run, and the start and end of its window in it, in seconds: those of the quickstart."""

GATED_BURSTS, BIAS = (4.0, 32.0), 0.01
"""The mean lengths of bursts, in seconds, for which the gates hold, and the largest bias of a ratio.

Shorter bursts often hit a window twice, and longer ones outlast every wait and all repeats.
"""

GAIN = 2.0
"""The true ratio of the settings whose verdicts are counted."""


@dataclass
class Bursts:
    """Others that use all cores for exponentially distributed times with the mean `seconds`."""

    random: np.random.Generator
    seconds: float
    _starts: list[float] = field(default_factory=lambda: [0.0])
    _slowdowns: list[float] = field(default_factory=list)

    def _at(self, time: float) -> int:
        """Return the number of the interval at `time`; the odd ones are busy."""
        while self._starts[-1] <= time:
            busy = len(self._slowdowns) % 2 == 1
            mean = self.seconds * (1.0 if busy else 1.0 / BUSY_SHARE - 1.0)
            self._starts.append(self._starts[-1] + self.random.exponential(mean))
            self._slowdowns.append(self.random.uniform(0.1, 0.95) if busy else 0.0)
        return bisect.bisect_right(self._starts, time) - 1

    def wait(self, time: float, most: float) -> float:
        """Return the seconds until the machine is quiet, at most `most`."""
        number = self._at(time)
        return min(most, self._starts[number + 1] - time) if number % 2 else 0.0

    def busy(self, start: float, end: float) -> tuple[float, float]:
        """Return the busy share of a window, and by how much it slows a run down that uses all cores."""
        share = slowdown = 0.0
        for number in range(self._at(start), self._at(end) + 1):
            inside = min(end, self._starts[number + 1]) - max(start, self._starts[number])
            if number % 2:
                share += inside / (end - start)
                slowdown += self._slowdowns[number] * inside / (end - start)
        return share, slowdown


def disturbed_sweep(
    random: np.random.Generator, seconds: float, settings: int, blocks: int, limits: Limits
) -> tuple[Array, Array, float]:
    """Measure a sweep as the executor does; return the log rates, the disturbed share of runs, and the time taken.

    Every other setting is hit by a third of a burst's slow-down only. The baseline runs twice in a block.
    """
    bursts, now = Bursts(random, seconds), 0.0
    sums, counts, disturbed = (np.zeros((settings, blocks)) for _ in range(3))
    for block in range(blocks):
        queue = deque((int(setting), 0) for setting in random.permutation([0, *range(settings)]))
        vain_waits = vain_repeats = 0
        while queue:
            setting, repeats = queue.popleft()
            if vain_waits < MAX_VAIN_WAITS:
                waited = bursts.wait(now, limits.quiet_wait_seconds)
                vain_waits = vain_waits + 1 if waited == limits.quiet_wait_seconds > 0.0 else 0
                now += waited
            share, slowdown = bursts.busy(now + WINDOW[0], now + WINDOW[1])
            now += RUN_SECONDS
            if repeats:
                vain_repeats = vain_repeats + 1 if share >= FOREIGN else 0
            if share >= FOREIGN and repeats < limits.disturbed_retries and vain_repeats < MAX_VAIN_REPEATS:
                queue.append((setting, repeats + 1))
                continue
            sums[setting, block] += 0.03 * random.normal() + math.log1p(-slowdown * (1.0 if setting % 2 else 1.0 / 3.0))
            counts[setting, block] += 1
            disturbed[setting, block] += share >= FOREIGN
    return sums / counts, disturbed.sum(axis=1) / counts.sum(axis=1), now


def bursts(sweeps: int) -> bool:
    """Print what measuring disturbed runs again is worth; return whether a gate failed."""
    title = (
        f"Sweeps beside others that are busy {BUSY_SHARE:.0%} of the time, 5 blocks: with (without) repeats and waits"
    )
    columns = ("hold all truths, %", "bias of the ratios, %", f"{GAIN:g}x found faster, %", "equal: wrong verdicts, %")
    table = Table(title, "mean burst, s", "settings", *columns, "time, relative to a quiet machine")
    for seconds in (2.0, 4.0, 8.0, 16.0, 32.0, 64.0):
        for settings in (4, 8, 16):
            new, old = (
                disturbed_sweeps(sweeps, seconds, settings, limits)
                for limits in (Limits(), Limits(disturbed_retries=0, quiet_wait_seconds=0.0))
            )
            is_gated = GATED_BURSTS[0] <= seconds <= GATED_BURSTS[1]
            missed = is_gated and (new[0] < COVERED or abs(new[1]) > BIAS or new[3] > FALSE)
            percent = [f"{100 * one:.1f} ({100 * other:.1f})" for one, other in zip(new[:4], old, strict=False)]
            table.row(f"{seconds:g}", str(settings), *percent, f"{new[4]:.2f} ({old[4]:.2f})", missed=missed)
    return table.failed


def disturbed_sweeps(sweeps: int, seconds: float, settings: int, limits: Limits) -> tuple[float, ...]:
    """Return the cells of a row of `bursts`, as shares: those of settings without a verdict do not count as held."""
    random, blocks, family = np.random.default_rng(9), 5, Family(settings - 1)
    held, biases, found, wrong, times = [], [], [], [], []
    for _ in range(sweeps):
        rates, disturbed, time = disturbed_sweep(random, seconds, settings, blocks, limits)
        differences = rates[1:] - rates[:1]
        counts = np.full(family.size, blocks)
        widths = half_widths(differences.var(axis=-1, ddof=1), counts, settings, family.each, family.confidence)
        errors, judged = differences.mean(axis=-1), np.maximum(disturbed[1:], disturbed[0]) <= MAX_DISTURBED_SHARE
        held.append((np.abs(errors) <= widths)[judged].all())
        biases += errors[judged].tolist()
        found.append((judged & (math.log(GAIN) + errors - widths > math.log1p(THRESHOLD))).mean())
        wrong.append((judged & (np.abs(errors) - widths > math.log1p(THRESHOLD))).any())
        times.append(time / (RUN_SECONDS * (settings + 1) * blocks))
    bias = math.expm1(float(np.mean(biases))) if biases else 0.0
    return float(np.mean(held)), bias, float(np.mean(found)), float(np.mean(wrong)), float(np.mean(times))


# Early decisions.

RACED = (0.8, 0.1, 0.8, 0.4, 0.79, 1.0, 2.0)
"""The true ratios of settings in a race: two are far below what leaves a setting out, three are close to it."""


def early(sweeps: int) -> bool:
    """Print what leaving out much slower settings costs and saves; return whether a gate failed."""
    title = "Early decisions, 8 settings, at most 5 blocks, in %"
    noises = (0.03, 0.1)
    heads = [
        f"{what}, {noise:.0%} noise" for noise in noises for what in ("all truths held", "left out wrongly", "saved")
    ]
    table = Table(title, "scenario", *heads)
    for name, scenario in SCENARIOS.items():
        found = [raced(noise * scenario(np.random.default_rng(10), (sweeps, 8, 5))) for noise in noises]
        missed = name != UNGATED and any(held < COVERED or wrong > FALSE for held, wrong, _ in found)
        table.row(name, *(f"{100 * one:.1f}" for each in found for one in each), missed=missed)
    return table.failed


def raced(noise: Array) -> tuple[float, float, float]:
    """Return the shares of sweeps that hold all truths, of sweeps with a wrong decision, and of runs saved.

    `noise` has the shape (sweeps, settings, blocks), where the settings are those of `RACED` and the baseline.
    """
    truths, blocks = np.log(RACED), noise.shape[2]
    family, decided_wrongly, saved = Family(len(RACED)), 0, 0
    held = np.ones(len(noise), dtype=bool)
    names = [f"{index}" for index in range(len(RACED))]
    for sweep, rates in enumerate(noise):
        racing = list(range(len(RACED)))
        for count in range(MIN_BLOCKS, blocks):
            base = dict(enumerate(rates[0, :count]))
            pairs = [
                Pair(dict(enumerate(rates[1 + index, :count] + truths[index])), base, (names[index], "base"))
                for index in racing
            ]
            decided = {
                racing[index]: interval
                for index, interval in race(pairs, family).items()
                if interval.high is not None and interval.high < math.log(MUCH_SLOWER)
            }
            for index, interval in decided.items():
                held[sweep] &= abs(interval.center - truths[index]) <= (interval.half_width or 0.0)
                saved += blocks - count
            decided_wrongly += any(truths[index] >= math.log(MUCH_SLOWER) for index in decided)
            racing = [index for index in racing if index not in decided]
        left = intervals(np.concatenate([rates[:1], rates[1:][racing]])[np.newaxis], family)
        held[sweep] &= bool(left.covering(left.new)[0])
    runs = len(noise) * len(RACED) * blocks
    return float(held.mean()), decided_wrongly / len(noise), saved / runs


def main(arguments: list[str]) -> int:
    """Print the tables; return 1 if a gate is missed."""
    sweeps = int(arguments[0]) if arguments else 10000
    print("# Simulated sweeps\n\n`make simulations` writes this page. Its seeds are fixed.")
    fifth, tenth, twentieth = (max(sweeps // part, 1) for part in (5, 10, 20))
    print(
        f"Each number stands for {sweeps} sweeps; with `repeats: auto` for {fifth}, of scaling laws and early "
        f"decisions for {tenth}, beside others for {twentieth}. Half widths are medians in units of a run's noise."
    )
    failed = [coverage(sweeps), verdicts(sweeps), auto(fifth), until_decided(sweeps)]
    failed += [laws(tenth), bursts(twentieth), early(tenth)]
    power(sweeps)
    return int(any(failed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
