# Findings become the page that people forward, and the records are copied to MLflow.


rule report:
    input:
        records="sweeps/{sweep}/records.parquet",
        findings="sweeps/{sweep}/findings.json",
    output:
        "reports/{sweep}/index.html",
    log:
        "sweeps/{sweep}/logs/report.log",
    localrule: True
    params:
        python=sys.executable,
        code=SWEEP.code_of("report"),
    shell:
        "{params.python:q} -m accelsweep.report sweeps/{wildcards.sweep:q} > {log:q} 2>&1"


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
        "{params.python:q} -m accelsweep.publish sweeps/{wildcards.sweep:q} > {log:q} 2>&1"
