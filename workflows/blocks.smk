# Measuring: one job per block. A block of several nodes starts its own launcher on each of them.


rule block:
    input:
        "sweeps/{sweep}/blocks/{block}.json",
    output:
        "sweeps/{sweep}/blocks/{block}.done.json",
    log:
        "sweeps/{sweep}/logs/{block}.log",
    wildcard_constraints:
        block=SWEEP.on_one_node,
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


rule block_on_many_nodes:
    input:
        "sweeps/{sweep}/blocks/{block}.json",
    output:
        "sweeps/{sweep}/blocks/{block}.done.json",
    log:
        "sweeps/{sweep}/logs/{block}.log",
    wildcard_constraints:
        block=SWEEP.on_many_nodes,
    resources:
        **SWEEP.job_on_many_nodes,
        timing=1,
    params:
        python=sys.executable,
        before=SWEEP.before_block,
        software=SWEEP.software,
        wanted=SWEEP.wanted,
    shell:
        "{params.before}{params.python:q} -m accelsweep.execute {input:q} > {log:q} 2>&1"
