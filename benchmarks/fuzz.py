"""Read sweeps, archives and configs that somebody made to harm, for some minutes, and count what becomes of them.

Each try is made of its number alone (tests/fakes/fuzzing.py). What is neither read, nor set aside or refused by name,
is a crash, and is printed with its number, which `--only` repeats. Returns 1 if there is one.

    python benchmarks/fuzz.py [--minutes 10] [--first 0] [--only NUMBER]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "fakes"))

from fuzzed import KINDS
from fuzzing import Bench, kind_of, one_try
from side_effect_guard import Forbidden


def work(numbers: range, until: float, state: Path) -> None:
    """Try one number after another until the clock says `until`; note each in `state` before and after it."""
    found: dict[str, Counter[str]] = {kind: Counter() for kind in KINDS}
    with tempfile.TemporaryDirectory() as folder:
        below = Path(folder).resolve()
        (below / "bench").mkdir()
        bench = Bench.made(below / "bench")
        (below / "tries").mkdir()
        for number in numbers:
            if time.monotonic() > until:
                break
            state.write_text(json.dumps({"at": number, "found": found}))
            try:
                became = one_try(bench, number, below / "tries")
            except (Exception, Forbidden) as error:  # noqa: BLE001 - whatever it is, it is what is looked for
                became = "crashed"
                print(f"try {number} ({kind_of(number)}): {type(error).__name__}: {str(error)[:300]}")
                print("".join(traceback.format_tb(error.__traceback__)[-3:]))
            found[kind_of(number)][became] += 1
            state.write_text(json.dumps({"at": number + 1, "found": found}))


def main() -> int:
    """Work in processes of their own, so that one that dies is a crash like any other; print the counts."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--only", type=int)
    parser.add_argument("--state", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    until = time.monotonic() + 60 * given.minutes
    last = given.first + 10**9 if given.only is None else given.only + 1
    first = given.first if given.only is None else given.only
    if given.state is not None:
        work(range(first, last), until, given.state)
        return 0
    total: dict[str, Counter[str]] = {kind: Counter() for kind in KINDS}
    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder) / "state.json"
        while time.monotonic() < until:
            minutes = (until - time.monotonic()) / 60
            only = [] if given.only is None else ["--only", str(given.only)]
            command = [sys.executable, __file__, "--minutes", str(minutes), "--first", str(first), *only]
            state.write_text(json.dumps({"at": first, "found": {}}))
            code = subprocess.call([*command, "--state", str(state)], env={**os.environ, "COLUMNS": "100"})
            noted = json.loads(state.read_text())
            for kind, counts in noted["found"].items():
                total[kind].update(counts)
            if code == 0:
                break
            total[kind_of(noted["at"])]["crashed"] += 1
            print(f"try {noted['at']} ({kind_of(noted['at'])}): the process ended with {code}")
            first = noted["at"] + 1
    return _print(total)


def _print(total: dict[str, Counter[str]]) -> int:
    ways = ("read", "set aside", "refused", "crashed")
    print(f"{'file':<11}{'tries':>8}" + "".join(f"{way:>11}" for way in ways))
    for kind, counts in {**total, "all": sum(total.values(), Counter[str]())}.items():
        print(f"{kind:<11}{counts.total():>8}" + "".join(f"{counts[way]:>11}" for way in ways))
    return min(1, sum(counts["crashed"] for counts in total.values()))


if __name__ == "__main__":
    sys.exit(main())
