"""The finished examples: measure them (`make example`), write their reports again, tell whether they are reproduced.

An example is a working directory of accelsweep: `sweeps/NAME` with the plan and every run's record and steps, and
`reports/NAME` with the report that was made from them. `built.json` says what drew it: with the same packages on the
same kind of machine the report comes out the same to the byte, elsewhere its numbers agree to five digits.
"""

from __future__ import annotations

import csv
import io
import json
import math
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
KEPT = (
    "manifest.json",
    "early-decisions.json",
    "blocks/*.json",
    "runs/*/record.json",
    "runs/*/steps.parquet",
    "runs/*/series.parquet",
)
"""What is committed of a sweep: everything that the report is made from. Logs and earlier attempts are not."""

METHOD = "../../../../../docs/method.md"
"""The way from `EXAMPLE/reports/NAME` to the page about the method."""

DIGITS = 1e-5

MEASURED = {
    "quickstart": ("experiment=quickstart",),
    "ladder": ("experiment=ladder",),
}
"""The overrides of each example. The quickstart is what `make sweep` measures."""


def built_with() -> dict[str, str]:
    """Return what decides the bytes of a report beside its records and our own code."""
    from accelsweep.features.archives.pack import drawn_with

    return drawn_with()


def rebuild(home: Path, name: str) -> Path:
    """Write findings and report of the example in `home` from its records; return the report's folder."""
    from accelsweep.analysis.analyse_sweep import analyse
    from accelsweep.analysis.collect import read_runs
    from accelsweep.records.layout import existing_sweep
    from accelsweep.records.plan import Manifest
    from accelsweep.report.report_files import write_files

    folder = existing_sweep(home, name)
    manifest = Manifest.read(folder.manifest)
    analyse(read_runs(folder, manifest), manifest).write(folder.findings)
    write_files(folder, METHOD)
    return folder.report


def keep(measured: Path, home: Path, name: str) -> None:
    """Make `home` the example of the sweep that was measured in `measured`: copy its records, write its report."""
    shutil.rmtree(home, ignore_errors=True)
    source, target = measured / "sweeps" / name, home / "sweeps" / name
    for pattern in KEPT:
        for file in source.glob(pattern):
            if not file.name.endswith(".lock.json"):
                (target / file.relative_to(source)).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, target / file.relative_to(source))
    keep_report(home)


def keep_report(home: Path) -> None:
    """Write the report of every sweep of an example again, and note what drew it."""
    for sweep in (home / "sweeps").iterdir():
        rebuild(home, sweep.name)
    (home / "built.json").write_text(json.dumps(built_with(), indent=2) + "\n", "utf-8")


def differences(old: Path, new: Path, name: str, *, exact: bool) -> Iterator[str]:
    """Yield in what the report in the home `new` differs from that in `old`: bytes if `exact`, else numbers."""
    before, after = ({file.name: file for file in (home / "reports" / name).iterdir()} for home in (old, new))
    yield from (f"{file} is in one report only" for file in sorted(before.keys() ^ after.keys()))
    for file in sorted(before.keys() & after.keys()):
        if exact and before[file].read_bytes() != after[file].read_bytes():
            yield f"{file}: its bytes differ"
        elif not exact and file.endswith(".csv"):
            yield from _unlike(_table(before[file]), _table(after[file]), file)
    findings = (json.loads((home / "sweeps" / name / "findings.json").read_text("utf-8")) for home in (old, new))
    yield from _unlike(*(document["body"] for document in findings), "findings.json")


def _table(file: Path) -> list[list[Any]]:
    return [[_number(text) for text in row] for row in csv.reader(io.StringIO(file.read_text("utf-8")))]


def _number(text: str) -> Any:
    try:
        return float(text)
    except ValueError:
        return text


def _unlike(a: Any, b: Any, where: str) -> Iterator[str]:
    if isinstance(a, dict) and isinstance(b, dict) and a.keys() == b.keys():
        for key in a:
            yield from _unlike(a[key], b[key], f"{where}: {key}")
    elif isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        for index, (one, other) in enumerate(zip(a, b, strict=True)):
            yield from _unlike(one, other, f"{where}: {index}")
    elif isinstance(a, int | float) and isinstance(b, int | float):
        if not math.isclose(a, b, rel_tol=DIGITS, abs_tol=1e-12):
            yield f"{where}: {a} is now {b}"
    elif a != b:
        yield f"{where}: {a!r} is now {b!r}"


def main(arguments: list[str]) -> int:
    """`measure [NAME]` takes the examples anew, or one; `rebuild` writes the reports from the committed records.

    `keep HOME SWEEP AS` makes an example of a sweep that was measured elsewhere, such as on a machine that was lent.
    """
    if arguments[:1] == ["measure"] and set(arguments[1:]) <= set(MEASURED):
        for name in arguments[1:] or MEASURED:
            with tempfile.TemporaryDirectory() as folder:
                command = [sys.executable, "-m", "accelsweep", "run", *MEASURED[name]]
                code = subprocess.run(command, cwd=folder, check=False).returncode
                if code:
                    return code
                keep(Path(folder), HERE / name, name)
    elif arguments[:1] == ["keep"] and len(arguments) == 4:
        keep(Path(arguments[1]), HERE / arguments[3], arguments[2])
    elif arguments == ["rebuild"]:
        for home in sorted(path.parent for path in HERE.glob("*/built.json")):
            keep_report(home)
    else:
        sys.stderr.write("usage: example.py measure [NAME] | keep HOME SWEEP AS | rebuild\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
