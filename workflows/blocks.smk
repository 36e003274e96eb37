# Measuring: what must be on disk before the first run, and one job per block.


rule prepared:
    input:
        manifest=ancient("sweeps/{sweep}/manifest.json"),
    output:
        "sweeps/{sweep}/prepared.json",
    log:
        "sweeps/{sweep}/logs/prepare.log",
    localrule: True
    params:
        python=sys.executable,
        blocks=SWEEP.blocks_digest,
    shell:
        "{params.python:q} -m accelsweep.execute.prepare {input.manifest:q} {output:q} > {log:q} 2>&1"


rule block:
    input:
        block="sweeps/{sweep}/blocks/{block}.json",
        prepared=ancient("sweeps/{sweep}/prepared.json"),
    output:
        "sweeps/{sweep}/blocks/{block}.done.json",
    log:
        "sweeps/{sweep}/logs/{block}.log",
    resources:
        timing=1,
    params:
        python=sys.executable,
        software=SWEEP.software,
        wanted=SWEEP.wanted,
    shell:
        "{params.python:q} -m accelsweep.execute {input.block:q} > {log:q} 2>&1"
