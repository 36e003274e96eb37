# Write the report, and copy the records to MLflow. `snakemake --report` includes the same figures. Each is listed by
# name: other files in reports/NAME are the user's.

from accelsweep.driver.snakefile_functions import code_digest
from accelsweep.report.captions import CAPTIONS


rule report:
    input:
        records="sweeps/{sweep}/records.parquet",
        findings="sweeps/{sweep}/findings.json",
    output:
        "reports/{sweep}/index.html",
        [
            report(
                f"reports/{{sweep}}/{name}.svg",
                caption=f"captions/{name}.rst",
                category="Figures",
                labels={"figure": CAPTIONS[name].title},
            )
            for name in CAPTIONS
        ],
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
