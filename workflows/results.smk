# Collect the records in one table, compute the findings (every number of the report), write the report, and copy all of
# it to MLflow. `snakemake --report` includes the page, which contains the figures. The report's other files are not
# outputs: which there are depends on the findings, and other files in reports/NAME are the user's.

from accelsweep.driver.snakefile_functions import code_digest


rule report:
    input:
        SWEEP.done_files,
        manifest="sweeps/{sweep}/manifest.json",
    output:
        "sweeps/{sweep}/records.parquet",
        "sweeps/{sweep}/findings.json",
        report(
            "reports/{sweep}/index.html",
            category="Reports",
            labels={"sweep": "{sweep}"},
        ),
    log:
        "sweeps/{sweep}/logs/report.log",
    localrule: True
    params:
        python=sys.executable,
        code=code_digest(),
    shell:
        "{params.python:q} -P -m accelsweep.driver.finalize sweeps/{wildcards.sweep:q} > {log:q} 2>&1"


# All results. Intermediate files are listed too: Snakemake does not recreate a missing one while its products exist.
rule results:
    input:
        SWEEP.done_files,
        SWEEP.results,
    localrule: True


rule published:
    input:
        findings="sweeps/{sweep}/findings.json",
        report="reports/{sweep}/index.html",
    output:
        touch("sweeps/{sweep}/published.done"),
    log:
        "sweeps/{sweep}/logs/publish.log",
    localrule: True
    params:
        python=sys.executable,
    shell:
        "{params.python:q} -P -m accelsweep.tracking.live_publishing sweeps/{wildcards.sweep:q} > {log:q} 2>&1"
