# Collect the records in one table, and compute the findings: every number of the report.

from accelsweep.driver.snakefile_functions import code_digest


rule findings:
    input:
        SWEEP.done_files,
        manifest="sweeps/{sweep}/manifest.json",
    output:
        records="sweeps/{sweep}/records.parquet",
        findings="sweeps/{sweep}/findings.json",
    log:
        "sweeps/{sweep}/logs/findings.log",
    localrule: True
    params:
        python=sys.executable,
        before=SWEEP.before_findings,
        code=code_digest(),
    shell:
        "{params.before}{params.python:q} -P -m accelsweep.analysis.analyse_sweep sweeps/{wildcards.sweep:q} > {log:q} 2>&1"


# All results. Intermediate files are listed too: Snakemake does not recreate a missing one while its products exist.
rule results:
    input:
        SWEEP.done_files,
        SWEEP.results,
    localrule: True
