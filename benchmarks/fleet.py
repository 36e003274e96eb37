"""Is the slow node found, are healthy ones left alone, and do the variance components hold the truth? Simulated fleets.

    python benchmarks/fleet.py [FLEETS]

Prints a Markdown page with a table from FLEETS (2000) simulated fleets for each row, through the code of
`accelsweep fleet`; `make simulations` keeps it. Nodes
differ by a standard deviation of 0.63 %, as 39 published machines do. In half of the fleets one node is then 2 % slower
than the mean of the others. `found` is how often it is named. `false` is in how many fleets a node within the tolerance
is named. `between` and `within` are how often the intervals of the components hold the truth. `ratios` is how often
the intervals of all nodes do. Exit code 1 if a gate fails, chance apart. At most 5 % of the fleets have a false name.
At least 94 % of the components hold where the noise is equal. All ratios of 94 % of the fleets do, unless one node has
ten times the noise of the others.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from accelsweep.analysis.intervals import Family
from accelsweep.features.fleet.planning import FLEET_TOLERANCE
from accelsweep.features.fleet.statistics import ComponentEstimate, deviations_from_others, holm, variance_components

BETWEEN, SLOW, CONFIDENCE = 0.0063, 0.02, 0.95
COVERED, FALSE = 0.94, 0.05
BOUND = -math.log1p(FLEET_TOLERANCE)
UNGATED = "one node 10x"
SCENARIOS = ("equal noise", UNGATED, "log-sd spread 0.5")


HEAD = """\
# Simulated fleets

`make simulations` writes this page. Its seeds are fixed. Nodes differ by a standard deviation of 0.63 %.
In half of the fleets one node is 2 % slower than the mean of the others.

* `found` is how often that node is named, `false` is how often one within the tolerance is.
* `between` and `within` are how often the intervals of these components hold the truth.
* `ratios` is how often the intervals of all nodes hold it together.
"""


@dataclass(frozen=True)
class Row:
    """Shares of the fleets of one row."""

    nodes: int
    rounds: int
    noise: float
    scenario: str
    found: float
    false: float
    between: float
    within: float
    ratios: float

    def passed(self, fleets: int) -> bool:
        """Return whether the row keeps its gates, but for two and a half standard errors."""
        chance = 2.5 * math.sqrt(0.05 * 0.95 / fleets)
        held = [1.0] if self.scenario == UNGATED else [self.ratios]
        held += [self.between, self.within] if self.scenario == SCENARIOS[0] else []
        return min(held) >= COVERED - chance and self.false <= FALSE + chance


def noises(random: np.random.Generator, scenario: str, nodes: int, noise: float) -> npt.NDArray[np.float64]:
    """Return the standard deviation of each node's blocks."""
    if scenario == UNGATED:
        return noise * np.where(np.arange(nodes) == 1, 10.0, 1.0)
    return noise * (np.exp(random.normal(0.0, 0.5, nodes)) if scenario == "log-sd spread 0.5" else np.ones(nodes))


def simulated(nodes: int, rounds: int, noise: float, scenario: str, fleets: int) -> Row:
    """Return the row of one kind of fleet."""
    random, counts = np.random.default_rng([nodes, rounds, round(1e5 * noise), len(scenario)]), np.zeros(5)
    slow = 0
    for number in range(fleets):
        levels = random.normal(0.0, BETWEEN, nodes)
        if number % 2:
            levels[0], slow = levels[1:].mean() + math.log1p(-SLOW), slow + 1
        spread = noises(random, scenario, nodes, noise)
        values = [list(row) for row in levels[:, None] + spread[:, None] * random.normal(size=(nodes, rounds))]
        truth, found = levels - (levels.sum() - levels) / (nodes - 1), deviations_from_others(values)
        named = np.array(holm([one.p_value_below(BOUND, CONFIDENCE) for one in found])) <= 1.0 - CONFIDENCE
        ends = [one.interval(Family(nodes, CONFIDENCE)) for one in found]
        parts = variance_components(values, CONFIDENCE) if not number % 2 else None
        counts += [
            named[0] if number % 2 else 0,
            (named & (truth >= BOUND)).any(),
            parts is not None and holds(parts.between, BETWEEN),
            parts is not None and holds(parts.within, noise),
            all((one.low or 0.0) <= true <= (one.high or 0.0) for one, true in zip(ends, truth, strict=True)),
        ]
    plain = fleets - slow
    shares = counts / [slow, fleets, plain, plain, fleets]
    return Row(nodes, rounds, noise, scenario, *map(float, shares))


def holds(found: ComponentEstimate, truth: float) -> bool:
    """Return whether the interval of a component holds the truth; one that is not known claims nothing."""
    return found.low is None or found.high is None or found.low <= truth <= found.high


def main(fleets: int) -> int:
    """Print the page; return 1 if a gate fails."""
    print(f"{HEAD}\nEach row stands for {fleets} fleets.\n")
    print("| nodes | rounds | noise | scenario | found | false | between | within | ratios |")
    print("| ---: | ---: | ---: | --- | ---: | ---: | ---: | ---: | ---: |")
    passed = True
    for nodes in (4, 8, 39):
        for rounds, noise in ((3, 0.0003), (3, 0.002), (5, 0.002), (3, 0.01)):
            for scenario in SCENARIOS:
                row = simulated(nodes, rounds, noise, scenario, fleets)
                # Where nodes have unlike noise, no one number is the truth within them.
                parts = [row.between, row.within] if scenario == SCENARIOS[0] else [None, None]
                told = [row.found, row.false, *parts, row.ratios]
                shares = " | ".join("-" if share is None else f"{100 * share:.1f} %" for share in told)
                failed = "" if row.passed(fleets) else " **fails**"
                print(f"| {nodes} | {rounds} | {100 * noise:g} % | {scenario} | {shares} |{failed}", flush=True)
                passed &= not failed
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 2000))
