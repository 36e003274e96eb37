"""Queue time, energy and time to result for a sweep's jobs, from Slurm accounting (sacct)."""

from accelsweep.registry import Feature, SweepFile, Tables

FEATURE = Feature(
    name="accounting",
    before_collect="accelsweep.features.accounting.sacct:note_accounts",
    metrics="accelsweep.features.accounting.metrics:METRICS",
    run_metrics="accelsweep.features.accounting.sacct:accounted",
    files=(SweepFile("accounting.json", "accelsweep.features.accounting.sacct:Accounting"),),
    tables=Tables("accelsweep.features.accounting.report:tables"),
    last_lines="accelsweep.features.accounting.report:last_lines",
)
