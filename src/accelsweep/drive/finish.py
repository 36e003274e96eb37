"""The last steps of a sweep: collect, analyse, report. Missing runs become `not_run` rows."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from accelsweep.base.entry import answer
from accelsweep.core.planned.plans import Manifest
from accelsweep.drive.jobs.failures import note_failed_jobs
from accelsweep.drive.results import not_run_lines
from accelsweep.drive.slurm.accounting import note_accounts
from accelsweep.engines.known import engine_of
from accelsweep.state.entry import planned_sweep, sweep_parser
from accelsweep.state.external.files import all_kept
from accelsweep.state.folders import SweepFolder, existing_sweep


def finish(folder: SweepFolder) -> Path:
    """Write the sweep's records.parquet, findings.json and report; return the path of the page."""
    finished_files(folder)
    return folder.page


def finished_files(folder: SweepFolder) -> list[str]:
    """Do as `finish` does; return the names of the report's files."""
    from accelsweep.analyse.whole import findings_of
    from accelsweep.report.write import write_files

    note_accounts(folder)
    findings_of(folder).write(folder.findings)
    return write_files(folder)


def report(home: Path, names: Sequence[str]) -> Path:
    """Write the report of one sweep, or one report of several merged ones; return the path of the page.

    Imported rows of the same models stand in a merged report, in a table of their own.
    """
    folders = [existing_sweep(home, name) for name in dict.fromkeys(names)]
    return finish(folders[0]) if len(folders) == 1 else _merged(home, folders)


def _merged(home: Path, folders: Sequence[SweepFolder]) -> Path:
    from accelsweep.analyse.beside.external import rows_beside
    from accelsweep.analyse.collected.collect import collect
    from accelsweep.analyse.merge import Part, analyse_together
    from accelsweep.report.place import MergedPlace
    from accelsweep.report.write import write_report

    parts = [Part(folder.name, collect(folder), Manifest.read(folder.manifest)) for folder in folders]
    place = MergedPlace(home, tuple(folder.name for folder in folders))
    beside = rows_beside((run for part in parts for run in part.runs), all_kept(home))
    analyse_together(place.name, parts).model_copy(update={"external": beside}).write(place.findings)
    return write_report(place)


def main(arguments: list[str] | None = None) -> int:
    """Finish the sweep named on the command line, print the page's path and return the exit code."""
    parser = sweep_parser("drive.finish", __doc__)
    parser.add_argument("--log", type=Path, help="Snakemake's log, where it failed")
    given = parser.parse_args(arguments)
    return answer(lambda: _tell(planned_sweep(given.sweep), given.log))


def _tell(folder: SweepFolder, log: Path | None) -> None:
    engine = engine_of(Manifest.read(folder.manifest).site)
    if log is not None and engine is not None:
        note_failed_jobs(folder, engine, log)
    print(finish(folder), *not_run_lines(folder), sep="\n")  # noqa: T201 - a command's answer


if __name__ == "__main__":
    sys.exit(main())
