"""The paths of a sweep's files. All are built here; only those of the report are outside the sweep's folder."""

from __future__ import annotations

import argparse
import contextlib
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePath
from typing import Protocol

from accelsweep import registry
from accelsweep.errors import InputError
from accelsweep.records.plan import BLOCK_NAME, MergedName, joined_name
from accelsweep.signals import parser_for

SWEEPS_FOLDER, REPORTS_FOLDER = "sweeps", "reports"
"""The folders of all sweeps and of all reports in a working directory."""

MANIFEST_FILE, FINDINGS_FILE = "manifest.json", "findings.json"
"""The plan of a sweep, and the numbers in its report."""

EARLY_DECISIONS_FILE = "early-decisions.json"
"""The settings that a sweep leaves out."""

PUBLISHED_FILE = "published.json"
"""The list of the sweep's copies in MLflow stores."""

RUNS_FOLDER, ATTEMPTS_FOLDER = "runs", "attempts"
"""The folders of a sweep's runs and of a run's attempts."""

RECORD_FILE, STEPS_FILE, SERIES_FILE, LOG_FILE = "record.json", "steps.parquet", "series.parquet", "run.log"
"""A run's record, raw step times, what the machine did meanwhile, and output."""

STARTED_FILE = "started.json"
"""Marks an attempt that has not ended."""

PAGE, MARKDOWN = "index.html", "report.md"
"""A report as an HTML page, and as Markdown."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")


def check_sweep_name(name: str) -> str:
    """Return `name` if it is valid for a folder, a Snakemake target and an MLflow experiment, else raise InputError."""
    if not _NAME.fullmatch(name) or ".." in name:
        cleaned = re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-.")[:80] or "my-sweep"
        raise InputError(
            f"the sweep name {name!r} is not usable: use at most 80 letters, digits, '.', '_' and '-', "
            f"starting with a letter or digit, without '..'. Try --name {cleaned}"
        )
    return name


def check_file_name(name: str) -> str:
    """Return the name of a block or run; raise InputError if it could make a path escape its folder.

    Plans may come from untrusted sources.
    """
    if not name or "/" in name or "\0" in name or name in (".", ".."):
        raise InputError(
            f"the plan contains {name!r}, which is not a valid name for a block or run: the plan was altered"
        )
    return name


def sweep_name_in(text: str) -> str:
    """Return the sweep's name, given NAME or the path sweeps/NAME."""
    return PurePath(text).name


_BLOCK_FILE = re.compile(rf"{BLOCK_NAME}\.json")


@dataclass(frozen=True)
class SweepFolder:
    """The folder `sweeps/NAME` in the working directory `home`, with a method for each file in it."""

    home: Path
    name: str

    def __post_init__(self) -> None:
        """Reject names that could escape the folder."""
        check_sweep_name(self.name)

    @classmethod
    def of(cls, path: Path) -> SweepFolder:
        """Return the sweep whose folder is `path` (HOME/sweeps/NAME); raise InputError for any other path."""
        root = path.absolute()
        if root.parent.name != SWEEPS_FOLDER:
            raise InputError(f"{path} is not a sweep's folder (sweeps/NAME)")
        return cls(root.parents[1], root.name)

    @classmethod
    def of_block(cls, block_file: Path) -> SweepFolder:
        """Return the sweep to which a block's file belongs; raise InputError if `block_file` is not a block's file."""
        path = block_file.absolute()
        with contextlib.suppress(InputError):
            folder = cls.of(path.parent.parent)
            if path == folder.block(path.stem) and path.is_file():
                return folder
        raise InputError(f"{block_file} is not a block's file (sweeps/NAME/blocks/BLOCK.json)")

    @cached_property
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
        """The numbers of earlier revisions."""
        return sorted(int(path.stem) for path in self.root.glob("revisions/*.json") if path.stem.isdigit())

    def block(self, name: str) -> Path:
        """A block's immutable file."""
        return self.root / "blocks" / f"{check_file_name(name)}.json"

    def blocks(self) -> list[Path]:
        """The files of all blocks, including those of earlier plans."""
        return sorted(path for path in self.root.glob("blocks/*.json") if _BLOCK_FILE.fullmatch(path.name))

    def block_names(self) -> set[str]:
        """The names of all blocks for which any file exists, including damaged blocks and those of earlier plans."""
        return {path.name.partition(".")[0] for path in self.root.glob("blocks/b*.json*")}

    def done(self, block: str) -> Path:
        """The done file that Snakemake waits for, which lists a finished block's records."""
        return self.root / "blocks" / f"{check_file_name(block)}.done.json"

    def lock(self, block: str) -> Path:
        """The lock on the block."""
        return self.root / "blocks" / f"{check_file_name(block)}.lock.json"

    def locks(self) -> list[Path]:
        """The locks on all blocks, including stale ones."""
        return sorted(self.root.glob("blocks/*.lock.json"))

    def halt(self, block: str) -> Path:
        """The halt file, which explains why the block's last executor ended early, if it did."""
        return self.root / "blocks" / f"{check_file_name(block)}.halt.json"

    def halts(self) -> list[Path]:
        """The halt files of all blocks."""
        return sorted(self.root.glob("blocks/*.halt.json"))

    def ceilings(self, block: str) -> Path:
        """The matmul ceilings, measured once for all of the block's runs."""
        return self.root / "ceilings" / f"{check_file_name(block)}.json"

    def run(self, name: str) -> Path:
        """A run's folder; contains record.json, steps.parquet, run.log, and the earlier attempts in `attempts/`."""
        return self.root / RUNS_FOLDER / check_file_name(name)

    def begun_runs(self) -> set[str]:
        """The names of the runs that have a folder."""
        folder = self.root / RUNS_FOLDER
        return {path.name for path in folder.iterdir()} if folder.is_dir() else set()

    def record(self, run: str) -> Path:
        """A run's record."""
        return self.run(run) / RECORD_FILE

    def damaged_records(self, run: str) -> list[Path]:
        """The run's damaged records that were set aside, oldest first."""
        return sorted(self.run(run).glob(f"{RECORD_FILE}.damaged-*"))

    def open_attempts(self) -> set[Path]:
        """The markers of attempts that are running or killed their executor (`run_files.Started`)."""
        return set(self.root.glob(f"{RUNS_FOLDER}/*/{ATTEMPTS_FOLDER}/*/{STARTED_FILE}"))

    def latest_records(self) -> list[Path]:
        """The latest record of every run, whether or not the current plan includes the run."""
        return sorted(self.root.glob(f"{RUNS_FOLDER}/*/{RECORD_FILE}"))

    def steps(self, run: str) -> Path:
        """A run's raw step times."""
        return self.run(run) / STEPS_FILE

    def series(self, run: str) -> Path:
        """What the devices, the ranks and the machine did during a run."""
        return self.run(run) / SERIES_FILE

    @property
    def versions(self) -> Path:
        """The folder that contains the source trees of the versions that a sweep compares, and their descriptions."""
        return self.root / "versions"

    def version(self, name: str) -> Path:
        """The source tree of the version with the ID `name`."""
        return self.versions / check_file_name(name)

    def version_file(self, name: str) -> Path:
        """The description of a version's source tree."""
        return self.versions / f"{check_file_name(name)}.json"

    @property
    def early_decisions(self) -> Path:
        """The settings that later blocks leave out (`records.early_decisions`)."""
        return self.root / EARLY_DECISIONS_FILE

    @property
    def records(self) -> Path:
        """All records as one table."""
        return self.root / "records.parquet"

    @property
    def findings(self) -> Path:
        """All numbers in the report."""
        return self.root / FINDINGS_FILE

    @property
    def published(self) -> Path:
        """The list of the sweep's copies in MLflow stores, kept so that no store is queried if nothing has changed."""
        return self.root / PUBLISHED_FILE

    @property
    def copied(self) -> Path:
        """The file that Snakemake waits for, created once the records have been published to MLflow."""
        return self.root / "published.done"

    @property
    def mark(self) -> Path:
        """The sweep's random ID, which distinguishes it from sweeps of the same name in shared stores."""
        return self.root / "mark.json"

    def feature_files(self, *, published: bool = False) -> list[Path]:
        """Return the files that features wrote to the folder, optionally only those published with the report."""
        wanted = (file for file in registry.files() if file.published or not published)
        paths = sorted(path for file in wanted for path in self.root.glob(file.pattern))
        return [path for path in paths if path.is_file() and not path.parent.name.startswith(".")]

    @property
    def prepared(self) -> Path:
        """The digests of the data modules whose data has been prepared."""
        return self.root / "prepared.json"

    @property
    def stop(self) -> Path:
        """While this file exists, executors start no further runs (the time budget is used up)."""
        return self.root / "stop"

    @property
    def completed_state(self) -> Path:
        """The digest of a complete sweep, and the checksums of its report's files (`driver.up_to_date`)."""
        return self.root / "completed.json"

    @property
    def snakemake_log(self) -> Path:
        """The output of Snakemake during the last invocation."""
        return self.root / "logs" / "snakemake.log"

    @property
    def jobs_changed(self) -> Path:
        """The file that the driver touches when the cluster's queue changes, so that Snakemake checks its jobs."""
        return self.root / "jobs-changed"

    def log(self, block: str) -> Path:
        """The output of a block's executors."""
        return self.root / "logs" / f"{check_file_name(block)}.log"

    def driver_file(self, what: str) -> Path:
        """A file that belongs to the driver; `lock` is the driver's lock, and features use other names."""
        return self.root / f"driver.{what}.json"

    @property
    def fork_server_log(self) -> Path:
        """The fork server's output during the last invocation, if there was any."""
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
        """The report's HTML page."""
        return self.report / PAGE


def known_sweeps(home: Path) -> list[str]:
    """Return the names of all planned sweeps in `home`, sorted."""
    return sorted(path.parent.name for path in (home / SWEEPS_FOLDER).glob(f"*/{MANIFEST_FILE}"))


def existing_sweep(home: Path, name: str) -> SweepFolder:
    """Return the folder of a planned sweep; raise InputError, listing the known sweeps, if there is no such sweep."""
    folder = SweepFolder(home, name)
    if not folder.manifest.exists():
        known = known_sweeps(home)
        listing = f"there are: {', '.join(known)}" if known else "there are none yet; start one with `accelsweep run`"
        raise InputError(f"no sweep {name!r} under {home / SWEEPS_FOLDER}; {listing}")
    return folder


# The locations of a report's inputs and outputs: one sweep's folder, or several for a merged report.


class RunsPlace(Protocol):
    """Locates the files of a report's runs; implemented by `SweepFolder`."""

    def steps(self, run: str) -> Path:
        """Return the path of the raw step times of the run with this name in the findings."""

    def series(self, run: str) -> Path:
        """Return the path of what the machine did during the run with this name in the findings."""

    def record(self, run: str) -> Path:
        """Return the path of the record of the run with this name in the findings."""


class ReportPlace(RunsPlace, Protocol):
    """Locates a report's inputs and output; implemented by `SweepFolder`."""

    @property
    def findings(self) -> Path:
        """All numbers in the report."""

    @property
    def report(self) -> Path:
        """The folder of the report."""


@dataclass(frozen=True)
class MergedPlace:
    """A merged report in `reports/A+B`, with its findings next to the page. Its runs are named SWEEP/RUN."""

    home: Path
    sweeps: tuple[str, ...]

    @property
    def name(self) -> str:
        """The sweeps' names, in order, joined by `+`."""
        return joined_name(self.sweeps)

    @property
    def report(self) -> Path:
        """`reports/A+B`."""
        return self.home / REPORTS_FOLDER / self.name

    @property
    def findings(self) -> Path:
        """`reports/A+B/findings.json`."""
        return self.report / FINDINGS_FILE

    def steps(self, run: str) -> Path:
        """Return the path of the raw step times of a run named SWEEP/RUN."""
        sweep, name = MergedName.of(run)
        return SweepFolder(self.home, sweep).steps(name)

    def series(self, run: str) -> Path:
        """Return the path of what the machine did during a run named SWEEP/RUN."""
        sweep, name = MergedName.of(run)
        return SweepFolder(self.home, sweep).series(name)

    def record(self, run: str) -> Path:
        """Return the path of the record of a run named SWEEP/RUN."""
        sweep, name = MergedName.of(run)
        return SweepFolder(self.home, sweep).record(name)


# The argument of `python -m accelsweep.MODULE` that specifies the sweep.


def sweep_parser(module: str, description: str | None) -> argparse.ArgumentParser:
    """Return a parser whose first argument is `sweep`, the path of a sweep's folder."""
    parser = parser_for(module, description)
    parser.add_argument("sweep", type=Path, metavar="sweeps/NAME", help="the sweep's folder")
    return parser


def planned_sweep(path: Path) -> SweepFolder:
    """Return the planned sweep whose folder is `path`; raise InputError if there is none."""
    folder = SweepFolder.of(path)
    return existing_sweep(folder.home, folder.name)
