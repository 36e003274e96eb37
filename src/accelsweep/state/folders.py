"""The paths of a sweep's files. Every path of a sweep is made here, and none leaves the sweep's folder."""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from accelsweep.base.errors import InputError
from accelsweep.core.planned.names import BLOCK_NAME
from accelsweep.state import file_names as files
from accelsweep.state.names import check_sweep_name, inside

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
        if root.parent.name != files.SWEEPS_FOLDER:
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
        return self.home / files.SWEEPS_FOLDER / self.name

    @property
    def manifest(self) -> Path:
        """The current revision of the plan."""
        return self.root / files.MANIFEST_FILE

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
        return self.root / files.RUNS_FOLDER / inside(name)

    def record(self, run: str) -> Path:
        """A run's record."""
        return self.run(run) / files.RECORD_FILE

    def damaged_records(self, run: str) -> list[Path]:
        """The run's records that were set aside, oldest name first."""
        return sorted(self.run(run).glob(f"{files.RECORD_FILE}.damaged-*"))

    def open_attempts(self) -> set[Path]:
        """The marks of the attempts that go on, or that took their supervisor down: `state.attempts` writes them."""
        return set(self.root.glob(f"{files.RUNS_FOLDER}/*/{files.ATTEMPTS_FOLDER}/*/{files.STARTED_FILE}"))

    def records_on_top(self) -> list[Path]:
        """The latest record of every run that left one, wanted by the present plan or not."""
        return sorted(self.root.glob(f"{files.RUNS_FOLDER}/*/{files.RECORD_FILE}"))

    def steps(self, run: str) -> Path:
        """A run's raw step times."""
        return self.run(run) / files.STEPS_FILE

    @property
    def profiles(self) -> Path:
        """The profiles of settings, each in a folder of its own."""
        return self.root / "profiles"

    def profile(self, cell: str) -> Path:
        """The folder of a setting's profile: profile.json, trace.json.gz, run.log."""
        return self.profiles / inside(cell)

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
        return self.root / files.FINDINGS_FILE

    @property
    def published(self) -> Path:
        """The copies of the sweep in MLflow stores, so that no store need be asked when nothing changed."""
        return self.root / files.PUBLISHED_FILE

    @property
    def copied(self) -> Path:
        """The file that Snakemake waits for: the records were copied to MLflow."""
        return self.root / "published.done"

    @property
    def mark(self) -> Path:
        """The sweep's random mark, by which stores that several people share tell it from others of its name."""
        return self.root / "mark.json"

    @property
    def accounting(self) -> Path:
        """The cluster's account of the jobs that the runs were measured in; absent where no cluster is asked."""
        return self.root / files.ACCOUNTING_FILE

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
        """The digest of what Snakemake made, when it had made everything (`drive.standing`)."""
        return self.root / "standing.json"

    @property
    def drawn(self) -> Path:
        """The checksums of the report's files, when all had been made (`drive.standing`)."""
        return self.root / "drawn.json"

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

    def of_head(self, what: Literal["claim", "order", "handed", "ended"]) -> Path:
        """A file of the head: its hold, and what a detached one is to do, where it went, how it ended."""
        return self.root / f"head.{what}.json"

    @property
    def head_log(self) -> Path:
        """The output of the last detached head."""
        return self.root / "logs" / "head.log"

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
        return self.home / files.REPORTS_FOLDER / self.name

    @property
    def page(self) -> Path:
        """The page of the report."""
        return self.report / files.PAGE


def known_sweeps(home: Path) -> list[str]:
    """Return the names of all planned sweeps below `home`, in alphabetical order."""
    return sorted(path.parent.name for path in (home / files.SWEEPS_FOLDER).glob(f"*/{files.MANIFEST_FILE}"))


def unplanned_heads(home: Path) -> list[str]:
    """Return the names under which heads without a plan were handed over: of claims, and of sweeps not planned yet."""
    handed = (path.parent for path in (home / files.SWEEPS_FOLDER).glob("*/head.handed.json"))
    return sorted(root.name for root in handed if not (root / files.MANIFEST_FILE).exists())


def existing_sweep(home: Path, name: str) -> SweepFolder:
    """Return the folder of a planned sweep; raise InputError that lists the known ones if there is no such sweep."""
    folder = SweepFolder(home, name)
    if not folder.manifest.exists():
        known = known_sweeps(home)
        listing = f"there are: {', '.join(known)}" if known else "there are none yet; begin with `accelsweep run`"
        raise InputError(f"no sweep {name!r} under {home / files.SWEEPS_FOLDER}; {listing}")
    return folder
