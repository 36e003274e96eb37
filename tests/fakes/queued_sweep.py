"""The example sweep as if a cluster had run it: each block is a job, and the cluster accounts for it."""

from __future__ import annotations

from accelsweep.features.accounting.sacct import Accounting, JobAccount, accounting_file
from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import Manifest
from accelsweep.records.run_files import record_or_none

FIRST_JOB = 21
NO_COUNTER = "no counter"


def on_slurm(folder: SweepFolder) -> SweepFolder:
    """Make the site a Slurm site, and write into each record the job of its block: 21, 22, and so on."""
    manifest = Manifest.read(folder.manifest)
    site = manifest.site.model_copy(update={"scheduler": "slurm", "probe": False})
    manifest.model_copy(update={"site": site}).write(folder.manifest)
    for number, block in enumerate(manifest.blocks, FIRST_JOB):
        for run in block.runs:
            record = record_or_none(folder, run)
            if record is None:
                continue
            before = record.environment["before"] | {"variables": {"SLURM_JOB_ID": str(number)}}
            changed = record.model_copy(update={"environment": record.environment | {"before": before}})
            changed.write(folder.record(run))
    return folder


def account_for(folder: SweepFolder, *queue_seconds: float | None, joules: float | None = None) -> None:
    """Write the sweep's accounts: of each job its wait, None for one of which nothing is known."""
    jobs = {}
    for place, seconds in enumerate(queue_seconds, FIRST_JOB):
        number = str(place)
        if seconds is None:
            jobs[number] = JobAccount(number=number, reason=f"job {number} is not known")
            continue
        jobs[number] = JobAccount(
            number=number,
            queue_seconds=seconds,
            elapsed_seconds=60.0,
            energy_joules=joules,
            energy_reason=NO_COUNTER if joules is None else None,
        )
    Accounting(jobs=jobs).write(accounting_file(folder))
