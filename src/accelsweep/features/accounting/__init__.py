"""What a cluster's accounting (sacct) says of the jobs that measured a sweep: waits, energy, time to a result."""

from accelsweep.registry import Feature, SweepFile, Tables

FEATURE = Feature(
    name="accounting",
    before_collect="accelsweep.features.accounting.sacct:note_accounts",
    after_blocks="accelsweep.features.accounting.sacct",
    run_metrics="accelsweep.features.accounting.sacct:accounted",
    files=(SweepFile("accounting.json", "accelsweep.features.accounting.sacct:Accounting"),),
    tables=Tables("accelsweep.features.accounting.report:tables"),
    last_lines="accelsweep.features.accounting.report:last_lines",
)
