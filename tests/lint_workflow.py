"""`snakemake --lint` on a planned sweep, as `make check` runs it: any finding fails, but for one that is answered here.

Snakemake wants a conda environment or container for each rule, so that its software is documented and portable. Ours is
documented by constraints.txt and by every record, and each job runs under the interpreter that started Snakemake, so
that one pinned environment measures, analyses and reports; a second one per rule would only be able to differ.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

from accelsweep.planning.plan import make_plan, write_plan

SNAKEFILE = Path(__file__).resolve().parents[1] / "Snakefile"
ANSWERED = "Specify a conda environment or container for each rule."


def findings(home: Path) -> list[str]:
    """Return the titles of Snakemake's findings about the workflow, with the sweep planned in `home` at hand."""
    command = [
        sys.executable,
        "-m",
        "snakemake",
        "--snakefile",
        str(SNAKEFILE),
        "--config",
        "sweep=quickstart",
        "--lint",
    ]
    result = subprocess.run(command, cwd=home, capture_output=True, text=True, check=False)
    output = result.stdout + result.stderr  # `--lint json` prints text too in this version, so the text is what we read
    titles = re.findall(r"^    \* (.*):$", output, re.MULTILINE)
    if not titles and "Congratulations" not in output:
        return [f"snakemake --lint did not work: {output}"]
    return [title for title in titles if title != ANSWERED]


def main() -> int:
    """Print what Snakemake finds; return 1 if there is anything."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        write_plan(home, make_plan(home, ["experiment=quickstart"]))
        found = findings(home)
    for finding in found:
        print(finding)  # noqa: T201 - this is a script
    print(f"snakemake --lint: {len(found)} findings")  # noqa: T201
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
