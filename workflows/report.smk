# Write the report, and copy the records to MLflow. `snakemake --report` includes the page, which contains the figures.
# Figures and tables are not listed, because which ones there are depends on the findings, and because other files in
# reports/NAME are the user's.

from accelsweep.driver.snakefile_functions import code_digest


rule report:
    input:
        records="sweeps/{sweep}/records.parquet",
        findings="sweeps/{sweep}/findings.json",
    output:
        report("reports/{sweep}/index.html", category="Reports", labels={"sweep": "{sweep}"}),
    log:
        "sweeps/{sweep}/logs/report.log",
    localrule: True
    params:
        python=sys.executable,
        code=code_digest(),
    shell:
        "{params.python:q} -P -m accelsweep.report.report_files sweeps/{wildcards.sweep:q} > {log:q} 2>&1"


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
