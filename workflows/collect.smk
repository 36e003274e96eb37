# Records become one table and the findings: every number that a reader will see.

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


# What a sweep is run for. The files in between are named too, because Snakemake does not make a missing file again as
# long as what was made from it still stands.
rule told:
    input:
        SWEEP.done_files,
        SWEEP.concluded,
        SWEEP.report,
    localrule: True
