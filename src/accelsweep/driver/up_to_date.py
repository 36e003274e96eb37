"""A finished sweep that stands as it is: Snakemake, which takes seconds to find that out, need not be asked.

When Snakemake has made everything, a digest is noted of what it made it from, by which code, and of what it made. The
same digest, and records that are true, tell the next command that nothing is left to make.
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
from accelsweep.report.captions import CAPTIONS
from accelsweep.tracking.published_state import up_to_date


class Standing(Document):
    """The digest of a sweep that Snakemake had nothing left to do for."""

    kind: ClassVar[str] = "standing"

    digest: str


class Drawn(Document):
    """The checksum of each file of the report, by its name."""

    kind: ClassVar[str] = "drawn"

    files: dict[str, str]


def note_standing(folder: SweepFolder) -> None:
    """Note that Snakemake has made everything, if it has."""
    with contextlib.suppress(FileNotFoundError):
        Standing(digest=_digest(Sweep(folder, Manifest.read(folder.manifest)))).write(folder.standing)
        drawn = [path for path in folder.report.iterdir() if path.suffix in REPORT_SUFFIXES and path.is_file()]
        Drawn(files={path.name: sha256_file(path) for path in drawn}).write(folder.drawn)


def forget_altered_report(folder: SweepFolder) -> None:
    """Remove the report's page where a file of the report is missing or altered, so that Snakemake makes all anew.

    Snakemake would keep them: it asks for the page and the pictures alone, and not what is in them.
    """
    with contextlib.suppress(FileNotFoundError, DamagedFile):
        noted = Drawn.read(folder.drawn).files
        if any(_altered(folder.report / name, digest) for name, digest in noted.items()):
            remove(folder.page)


def _altered(path: Path, digest: str) -> bool:
    try:
        return sha256_file(path) != digest
    except (FileNotFoundError, DamagedFile):
        return True


def stands(folder: SweepFolder, tracking_uri: str | None = None) -> bool:
    """Return whether nothing has changed since everything was made, and whether the store of MLflow has it all.

    Each record must be true and still count here.
    """
    try:
        noted = Standing.read(folder.standing).digest
        sweep = Sweep(folder, Manifest.read(folder.manifest))
        if noted != _digest(sweep) or not up_to_date(folder, tracking_uri):
            return False
    except (FileNotFoundError, DamagedFile):
        return False
    found = audit(folder, check_conditions=True)
    return not (found.reopened or found.damaged or found.unsettled)


def _digest(sweep: Sweep) -> str:
    """Return the digest of inputs, outputs and code. Raises FileNotFoundError if one is missing."""
    folder, root = sweep.folder, shipped_root()
    pictures = [folder.report / f"{name}.svg" for name in CAPTIONS]
    rules = sorted([root / "Snakefile", *(root / "workflows").rglob("*.*")])
    made = [*(folder.done(block.name) for block in sweep.manifest.blocks), folder.page, *pictures]
    files = [folder.manifest, folder.records, folder.findings, *made, *rules]
    code = [sweep.software, code_digest()]
    return sha256_text(canonical_json([*code, *map(sha256_file, files)]))
