"""Checks whether a sweep is up to date without starting Snakemake, which takes seconds.

Once Snakemake has built everything, a digest of its inputs, its outputs and our code is stored. If the next command
computes the same digest and the records are still valid, there is nothing to do.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import ClassVar

from accelsweep.driver.snakefile_functions import Sweep, code_digest
from accelsweep.errors import DamagedFile
from accelsweep.executor.result_reuse import audit
from accelsweep.files import remove, sha256_file
from accelsweep.installation import shipped_root
from accelsweep.json_documents import Document
from accelsweep.plain_json import canonical_json, sha256_text
from accelsweep.records.cleanup import REPORT_SUFFIXES
from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import Manifest
from accelsweep.tracking.published_state import up_to_date


class CompletedState(Document):
    """The digest of a complete sweep, and the checksums of its report's files, keyed by name."""

    kind: ClassVar[str] = "completed"

    digest: str
    report: dict[str, str]


def mark_up_to_date(folder: SweepFolder) -> None:
    """Store the state of the sweep, if Snakemake has built everything."""
    with contextlib.suppress(FileNotFoundError):
        digest = _digest(folder)
        files = [path for path in folder.report.iterdir() if path.suffix in REPORT_SUFFIXES and path.is_file()]
        CompletedState(digest=digest, report={path.name: sha256_file(path) for path in files}).write(
            folder.completed_state
        )


def remove_altered_report(folder: SweepFolder) -> None:
    """Remove the report's page if any report file is missing or altered, so that Snakemake rebuilds the report.

    Snakemake itself only compares the page's modification time.
    """
    with contextlib.suppress(FileNotFoundError, DamagedFile):
        if _is_report_altered(folder, CompletedState.read(folder.completed_state)):
            remove(folder.page)


def _is_report_altered(folder: SweepFolder, completed: CompletedState) -> bool:
    def altered(path: Path, checksum: str) -> bool:
        try:
            return sha256_file(path) != checksum
        except (FileNotFoundError, DamagedFile):
            return True

    return any(altered(folder.report / name, checksum) for name, checksum in completed.report.items())


def is_up_to_date(folder: SweepFolder, tracking_uri: str | None = None) -> bool:
    """Return whether nothing has changed since the sweep was completed, and the MLflow store contains all results.

    Each record must be valid and reusable under the current conditions.
    """
    try:
        completed = CompletedState.read(folder.completed_state)
        if completed.digest != _digest(folder) or _is_report_altered(folder, completed):
            return False
        if not up_to_date(folder, tracking_uri):
            return False
    except (FileNotFoundError, DamagedFile):
        return False
    result = audit(folder, check_conditions=True)
    return not (result.reopened or result.damaged or result.unsettled)


def _digest(folder: SweepFolder) -> str:
    """Return the digest of inputs, outputs and code. Raises FileNotFoundError if a file is missing."""
    sweep, root = Sweep(folder, Manifest.read(folder.manifest)), shipped_root()
    rules = sorted([root / "Snakefile", *(root / "workflows").rglob("*.*")])
    done = [folder.done(block.name) for block in sweep.manifest.blocks]
    files = [folder.manifest, folder.records, folder.findings, *done, folder.page, *rules]
    return sha256_text(canonical_json([sweep.software_digest, code_digest(), *map(sha256_file, files)]))
