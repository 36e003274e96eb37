"""Do the intervals hold the truth, and do equal cells look equal? Simulated sweeps through our own analysis code.

    python benchmarks/coverage.py [SWEEPS] [BLOCKS]

Each scenario simulates SWEEPS sweeps (1000) of 8 cells in BLOCKS blocks (5) and sends each through `analyse`, once
with seven different true ratios and once with all cells equal. Gated scenarios must hold all seven truths in at least
94 % of the sweeps, and give at most 5 % of the sweeps of equal cells any false `faster` or `slower`. The others are
printed only: they break what the t-interval assumes, and show what that costs. Exit code 1 if a gate fails.
"""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "fakes"))

from simulated_sweep import make_manifest, make_records, make_run

from accelsweep.analyse.analyse import analyse
from accelsweep.core.findings import Verdict

NOISE = 0.01
LOUDER = 5.0
"""How much noisier the sweeps of equal cells are, so that the threshold of 2 % alone cannot prevent false verdicts."""

BLOCK_NOISE = 0.02
RATIOS = (1.0, 1.01, 0.99, 1.03, 0.95, 1.2, 2.0, 10.0)
EQUAL = (1.0,) * len(RATIOS)
CELLS = [{"batch_size": 2**power} for power in range(len(RATIOS))]

Scenario = Callable[[random.Random, float], float]
"""From a generator and the run's time within the sweep (0 to 1) to the noise on its log rate."""


def t3(generator: random.Random, _: float) -> float:
    """Student's t with 3 degrees of freedom, scaled to the same standard deviation."""
    chi_squared = math.fsum(generator.gauss(0, 1) ** 2 for _ in range(3))
    return NOISE / math.sqrt(3.0) * generator.gauss(0, 1) / math.sqrt(chi_squared / 3.0)


GATED: dict[str, Scenario] = {
    "normal": lambda generator, _: generator.gauss(0, NOISE),
    "t3": t3,
    "bimodal": lambda generator, _: generator.choice((-NOISE, NOISE)) + generator.gauss(0, NOISE / 2),
    "drift": lambda generator, time: generator.gauss(0, NOISE) - 0.10 * time,
}
PRINTED: dict[str, Scenario] = {
    "skewed": lambda generator, _: -NOISE * (generator.expovariate(1.0) - 1.0),
    "rare stall": lambda generator, _: generator.gauss(0, NOISE) - (0.2 if generator.random() < 0.05 else 0.0),
}


def simulate(
    scenario: Scenario, ratios: tuple[float, ...], blocks: int, seed: int, scale: float = 1.0
) -> tuple[bool, bool]:
    """Return, for one simulated sweep, whether all intervals hold the truth and whether any verdict is a false alarm.

    A false alarm is `faster` or `slower` on a cell whose true ratio is 1. `scale` multiplies the scenario's noise.
    """
    generator = random.Random(seed)
    rows = []
    for block in range(blocks):
        common = generator.gauss(0, BLOCK_NOISE)
        order = generator.sample(range(len(CELLS)), len(CELLS))
        for position, cell in enumerate(order):
            time = (block + position / len(CELLS)) / blocks
            log_rate = math.log(1000.0 * ratios[cell]) + common + scale * scenario(generator, time)
            rows.append(make_run(CELLS[cell], block, math.exp(log_rate), position=position))
    findings = analyse(make_records(rows), make_manifest(CELLS, blocks))
    held, alarm = True, False
    for finding, truth in zip(findings.cells, ratios, strict=True):
        if finding.speedup is not None:
            ratio = finding.speedup.ratio
            held &= ratio.low is not None and ratio.high is not None and ratio.low <= truth / ratios[0] <= ratio.high
            alarm |= truth == ratios[0] and finding.verdict in (Verdict.faster, Verdict.slower)
    return held, alarm


def rates(scenario: Scenario, sweeps: int, blocks: int) -> tuple[float, float]:
    """Return the simultaneous coverage, and the rate of sweeps of equal cells with any false alarm."""
    held = sum(simulate(scenario, RATIOS, blocks, seed)[0] for seed in range(sweeps))
    alarms = sum(simulate(scenario, EQUAL, blocks, seed, LOUDER)[1] for seed in range(sweeps))
    return held / sweeps, alarms / sweeps


def main(arguments: list[str]) -> int:
    """Print the table; return 1 if a gated scenario misses its gate."""
    sweeps, blocks = [*map(int, arguments), *(1000, 5)[len(arguments) :]]
    print(f"{sweeps} sweeps of {len(CELLS)} cells in {blocks} blocks, {len(CELLS) - 1} ratios held together at 95 %")
    print(f"{'scenario':<12} {'all 7 truths held':>18} {'sweeps with a false verdict':>28}")
    failed = False
    for name, scenario in (GATED | PRINTED).items():
        coverage, alarms = rates(scenario, sweeps, blocks)
        missed = name in GATED and (coverage < 0.94 or alarms > 0.05)
        failed |= missed
        note = "" if name in GATED else "  (printed, not gated)"
        print(f"{name:<12} {coverage:>18.1%} {alarms:>28.1%}{'  MISSED' if missed else note}", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
