# From a planned sweep to its report; all logic is in src/accelsweep.
#   snakemake --profile workflows/profiles/local --config experiment=quickstart overrides='batch_size=32,64'

import sys

from accelsweep.records.plan import BLOCK_NAME
from accelsweep.driver.snakefile_functions import load_sweep

SWEEP = load_sweep(config, is_main=workflow.is_main_process)
SWEEP.apply_limits(workflow)


wildcard_constraints:
    sweep=r"[A-Za-z0-9][A-Za-z0-9._-]*",
    block=BLOCK_NAME,


include: "workflows/blocks.smk"
include: "workflows/results.smk"


rule all:
    default_target: True
    input:
        rules.results.input,
        SWEEP.published,


# Prepare data before any job starts: nodes may lack network access.
onstart:
    SWEEP.check_executor(workflow)
    SWEEP.install_hooks(workflow)
    if SWEEP.needs_preparation():
        shell(
            "{sys.executable:q} -P -m accelsweep.executor --prepare {SWEEP.root:q}"
        )
    SWEEP.remove_secrets()


# Report what there is even if blocks failed; the missing runs become `not_run` rows.
onerror:
    shell(
        "{sys.executable:q} -P -m accelsweep.driver.finalize {SWEEP.root:q} --failed {log:q}"
    )
