# The road from a planned sweep to its report; every decision stands in src/accelsweep.
#   snakemake --profile workflows/profiles/local --config experiment=quickstart overrides='batch_size=32,64'

import sys

from accelsweep.records.plan import BLOCK_NAME
from accelsweep.driver.snakefile_functions import sweep_of_config

SWEEP = sweep_of_config(config, plan_if_asked=workflow.is_main_process)
SWEEP.hold_limits(workflow)


wildcard_constraints:
    sweep=r"[A-Za-z0-9][A-Za-z0-9._-]*",
    block=BLOCK_NAME,


include: "workflows/blocks.smk"
include: "workflows/collect.smk"
include: "workflows/report.smk"


rule all:
    default_target: True
    input:
        rules.told.input,
        SWEEP.published,


# Data is prepared where there is a network, before any job starts.
onstart:
    SWEEP.check_executor(workflow)
    SWEEP.follow_jobs(workflow)
    shell("{sys.executable:q} -P -m accelsweep.executor --prepare {SWEEP.root:q}")
    SWEEP.leave_secrets_behind()


# A block that failed must never cost the report: what there is gets collected, the rest becomes `not_run` rows.
onerror:
    shell(
        "{sys.executable:q} -P -m accelsweep.driver.finalize {SWEEP.root:q} --log {log:q}"
    )
