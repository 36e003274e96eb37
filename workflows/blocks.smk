# Measuring: one job per block.


rule block:
    input:
        "sweeps/{sweep}/blocks/{block}.json",
    output:
        "sweeps/{sweep}/blocks/{block}.done.json",
    log:
        "sweeps/{sweep}/logs/{block}.log",
    resources:
        **SWEEP.job,
        timing=1,
    params:
        python=sys.executable,
        before=SWEEP.before_block,
        software=SWEEP.software,
        wanted=SWEEP.wanted,
    shell:
        "{params.before}{params.python:q} -m accelsweep.execute {input:q} > {log:q} 2>&1"
