"""The paths of a sweep's files. Every path of a sweep is made here, and none leaves the sweep's folder."""

from __future__ import annotations

import argparse
import contextlib
import re
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Protocol

from accelsweep import registry
from accelsweep.errors import InputError
from accelsweep.records.plan import BLOCK_NAME, MergedName, name_together
from accelsweep.signals import parser_for

# The names of files and folders that more than one module writes, reads or lists.

SWEEPS_FOLDER, REPORTS_FOLDER = "sweeps", "reports"
"""The folders of all sweeps and of all reports, in a working directory."""

MANIFEST_FILE, FINDINGS_FILE = "manifest.json", "findings.json"
"""The plan of a sweep, and the numbers of its report."""

PUBLISHED_FILE = "published.json"
"""The list of a sweep's copies in MLflow stores."""

RUNS_FOLDER, ATTEMPTS_FOLDER = "runs", "attempts"
"""The folder of a sweep's runs, and the one of a run's attempts."""

RECORD_FILE, STEPS_FILE, LOG_FILE = "record.json", "steps.parquet", "run.log"
"""Files of a run: its record, its raw step times, the output of its processes."""

STARTED_FILE = "started.json"
"""The mark of an attempt without an end."""

PAGE, MARKDOWN = "index.html", "report.md"
"""A report as a page, and as Markdown."""


# Names of sweeps, blocks and runs that may name a file: plans and commands come from elsewhere, too.

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")


def check_sweep_name(name: str) -> str:
    """Return `name` if it can name a folder, a Snakemake target and an MLflow experiment; raise InputError if not."""
    if not _NAME.fullmatch(name) or ".." in name:
        cleaned = re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-.")[:80] or "my-sweep"
        raise InputError(
            f"the sweep's name {name!r} is not usable: letters, digits, '.', '_' and '-' only, at most 80, "
            f"beginning with a letter or digit, without '..'. Try --name {cleaned}"
        )
    return name


def inside(name: str) -> str:
    """Return the name of a block or run if it can name a file in its folder; raise InputError if a path could leave it.

    Plans come from elsewhere, too.
    """
    if not name or "/" in name or "\0" in name or name in (".", ".."):
        raise InputError(f"the plan holds the name {name!r}, which no block or run can have; the plan was altered")
    return name


def sweep_name_in(text: str) -> str:
    """Return the sweep's name, given NAME or the path of its folder, sweeps/NAME."""
    return PurePath(text).name


_BLOCK_FILE = re.compile(rf"{BLOCK_NAME}\.json")


@dataclass(frozen=True)
class SweepFolder:
    """The folder `sweeps/NAME` below the working directory `home`, with a method for each file in it."""

    home: Path
    name: str

    def __post_init__(self) -> None:
        """Refuse names that could leave the folder."""
        check_sweep_name(self.name)

    @classmethod
    def of(cls, path: Path) -> SweepFolder:
        """Return the sweep whose folder is `path`, HOME/sweeps/NAME; raise InputError for any other path."""
        root = path.absolute()
        if root.parent.name != SWEEPS_FOLDER:
            raise InputError(f"{path} is not a sweep's folder (sweeps/NAME)")
        return cls(root.parents[1], root.name)

    @classmethod
    def of_block(cls, block_file: Path) -> SweepFolder:
        """Return the sweep that the file of a block belongs to; raise InputError if `block_file` is no such file."""
        path = block_file.absolute()
        with contextlib.suppress(InputError):
            folder = cls.of(path.parent.parent)
            if path == folder.block(path.stem) and path.is_file():
                return folder
        raise InputError(f"{block_file} is not a block's file (sweeps/NAME/blocks/BLOCK.json)")

    @property
    def root(self) -> Path:
        """`sweeps/NAME`."""
        return self.home / SWEEPS_FOLDER / self.name

    @property
    def manifest(self) -> Path:
        """The current revision of the plan."""
        return self.root / MANIFEST_FILE

    def old_manifest(self, revision: int) -> Path:
        """An earlier revision of the plan."""
        return self.root / "revisions" / f"{revision}.json"

    def revisions(self) -> list[int]:
        """The numbers of the earlier revisions that were kept."""
        return sorted(int(path.stem) for path in self.root.glob("revisions/*.json") if path.stem.isdigit())

    def block(self, name: str) -> Path:
        """A block's immutable file."""
        return self.root / "blocks" / f"{inside(name)}.json"

    def blocks(self) -> list[Path]:
        """The files of all blocks, those of earlier plans too."""
        return sorted(path for path in self.root.glob("blocks/*.json") if _BLOCK_FILE.fullmatch(path.name))

    def block_names(self) -> set[str]:
        """The names of all blocks, by any file of theirs: those of earlier plans, and of damaged ones, too."""
        return {path.name.partition(".")[0] for path in self.root.glob("blocks/b*.json*")}

    def done(self, block: str) -> Path:
        """The file that Snakemake waits for: the list of a finished block's records."""
        return self.root / "blocks" / f"{inside(block)}.done.json"

    def hold(self, block: str) -> Path:
        """The present holder of the block."""
        return self.root / "blocks" / f"{inside(block)}.claim.json"

    def holds(self) -> list[Path]:
        """The holds of all blocks, present and old ones."""
        return sorted(self.root.glob("blocks/*.claim.json"))

    def halt(self, block: str) -> Path:
        """The reason why the block's last supervisor ended early; absent where it did not."""
        return self.root / "blocks" / f"{inside(block)}.halt.json"

    def halts(self) -> list[Path]:
        """The halts of all blocks."""
        return sorted(self.root.glob("blocks/*.halt.json"))

    def ceilings(self, block: str) -> Path:
        """The matmul ceilings that a block's runs measured, once for all of them."""
        return self.root / "ceilings" / f"{inside(block)}.json"

    def run(self, name: str) -> Path:
        """A run's folder: record.json, steps.parquet, run.log, and `attempts/` with earlier ones."""
        return self.root / RUNS_FOLDER / inside(name)

    def record(self, run: str) -> Path:
        """A run's record."""
        return self.run(run) / RECORD_FILE

    def damaged_records(self, run: str) -> list[Path]:
        """The run's records that were set aside, oldest name first."""
        return sorted(self.run(run).glob(f"{RECORD_FILE}.damaged-*"))

    def open_attempts(self) -> set[Path]:
        """The marks of the attempts that go on, or that took their supervisor down: `records.run_files` writes them."""
        return set(self.root.glob(f"{RUNS_FOLDER}/*/{ATTEMPTS_FOLDER}/*/{STARTED_FILE}"))

    def records_on_top(self) -> list[Path]:
        """The latest record of every run that left one, wanted by the present plan or not."""
        return sorted(self.root.glob(f"{RUNS_FOLDER}/*/{RECORD_FILE}"))

    def steps(self, run: str) -> Path:
        """A run's raw step times."""
        return self.run(run) / STEPS_FILE

    @property
    def versions(self) -> Path:
        """The trees of the versions that a sweep compares, each beside the file that describes it."""
        return self.root / "versions"

    def version(self, name: str) -> Path:
        """The tree of a version, which is named by its id."""
        return self.versions / inside(name)

    def version_file(self, name: str) -> Path:
        """The facts about a version's tree."""
        return self.versions / f"{inside(name)}.json"

    @property
    def records(self) -> Path:
        """All records as one table."""
        return self.root / "records.parquet"

    @property
    def findings(self) -> Path:
        """All numbers of the report."""
        return self.root / FINDINGS_FILE

    @property
    def published(self) -> Path:
        """The copies of the sweep in MLflow stores, so that no store need be asked when nothing changed."""
        return self.root / PUBLISHED_FILE

    @property
    def copied(self) -> Path:
        """The file that Snakemake waits for: the records were copied to MLflow."""
        return self.root / "published.done"

    @property
    def mark(self) -> Path:
        """The sweep's random mark, by which stores that several people share tell it from others of its name."""
        return self.root / "mark.json"

    def feature_files(self, *, published: bool = False) -> list[Path]:
        """Return the files that features left in the folder, or those that go to MLflow with the report."""
        wanted = (file for file in registry.files() if file.published or not published)
        paths = sorted(path for file in wanted for path in self.root.glob(file.pattern))
        return [path for path in paths if path.is_file() and not path.parent.name.startswith(".")]

    @property
    def prepared(self) -> Path:
        """The data modules that have prepared their data."""
        return self.root / "prepared.json"

    @property
    def stop(self) -> Path:
        """While this file exists, supervisors start no further run (a spent time budget)."""
        return self.root / "stop"

    @property
    def standing(self) -> Path:
        """The digest of a complete sweep, and the checksums of its report's files (`driver.up_to_date`)."""
        return self.root / "standing.json"

    @property
    def snakemake_log(self) -> Path:
        """The output of Snakemake during the last invocation."""
        return self.root / "logs" / "snakemake.log"

    @property
    def jobs_changed(self) -> Path:
        """Touched by the driver whenever its cluster's queue has changed, so that Snakemake asks about its jobs."""
        return self.root / "jobs-changed"

    def log(self, block: str) -> Path:
        """The output of a block's supervisors."""
        return self.root / "logs" / f"{inside(block)}.log"

    def of_head(self, what: str) -> Path:
        """A file of the driver: `claim` is its hold; features have others."""
        return self.root / f"head.{what}.json"

    @property
    def fork_server_log(self) -> Path:
        """The output of the process that supervisors are forked from, during the last invocation."""
        return self.root / "logs" / "fork_server.log"

    @property
    def publish_log(self) -> Path:
        """The output of the publisher during the last invocation."""
        return self.root / "logs" / "publish.log"

    @property
    def report(self) -> Path:
        """`reports/NAME`."""
        return self.home / REPORTS_FOLDER / self.name

    @property
    def page(self) -> Path:
        """The page of the report."""
        return self.report / PAGE


def known_sweeps(home: Path) -> list[str]:
    """Return the names of all planned sweeps below `home`, in alphabetical order."""
    return sorted(path.parent.name for path in (home / SWEEPS_FOLDER).glob(f"*/{MANIFEST_FILE}"))


def existing_sweep(home: Path, name: str) -> SweepFolder:
    """Return the folder of a planned sweep; raise InputError that lists the known ones if there is no such sweep."""
    folder = SweepFolder(home, name)
    if not folder.manifest.exists():
        known = known_sweeps(home)
        listing = f"there are: {', '.join(known)}" if known else "there are none yet; begin with `accelsweep run`"
        raise InputError(f"no sweep {name!r} under {home / SWEEPS_FOLDER}; {listing}")
    return folder


# The place of a report's inputs and outputs: for one sweep, whose folder has them all, or for several merged ones.


class RunsPlace(Protocol):
    """The place of the files of a report's runs; a `SweepFolder` is one."""

    def steps(self, run: str) -> Path:
        """Return the raw step times of the run with this name in the findings."""

    def record(self, run: str) -> Path:
        """Return the record of the run with this name in the findings."""


class ReportPlace(RunsPlace, Protocol):
    """The inputs and the output of a report; a `SweepFolder` is one."""

    @property
    def findings(self) -> Path:
        """All numbers of the report."""

    @property
    def report(self) -> Path:
        """The folder of the report."""


@dataclass(frozen=True)
class MergedPlace:
    """The report of several sweeps in `reports/A+B`; its findings lie beside the page, its runs are named SWEEP/RUN."""

    home: Path
    sweeps: tuple[str, ...]

    @property
    def name(self) -> str:
        """The sweeps' names in their order, joined by `+`."""
        return name_together(self.sweeps)

    @property
    def report(self) -> Path:
        """`reports/A+B`."""
        return self.home / REPORTS_FOLDER / self.name

    @property
    def findings(self) -> Path:
        """`reports/A+B/findings.json`."""
        return self.report / FINDINGS_FILE

    def steps(self, run: str) -> Path:
        """Return the raw step times of a run named SWEEP/RUN."""
        sweep, name = MergedName.of(run)
        return SweepFolder(self.home, sweep).steps(name)

    def record(self, run: str) -> Path:
        """Return the record of a run named SWEEP/RUN."""
        sweep, name = MergedName.of(run)
        return SweepFolder(self.home, sweep).record(name)


# The sweep that a call of `python -m accelsweep.MODULE` names, in one way.


def sweep_parser(module: str, description: str | None) -> argparse.ArgumentParser:
    """Return a parser whose first argument is `sweep`, the path of a sweep's folder."""
    parser = parser_for(module, description)
    parser.add_argument("sweep", type=Path, metavar="sweeps/NAME", help="the sweep's folder")
    return parser


def planned_sweep(path: Path) -> SweepFolder:
    """Return the planned sweep whose folder is `path`; raise InputError where there is none."""
    folder = SweepFolder.of(path)
    return existing_sweep(folder.home, folder.name)
