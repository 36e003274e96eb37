# Measuring: one job per block.


rule block:
    input:
        "sweeps/{sweep}/blocks/{block}.json",
    output:
        "sweeps/{sweep}/blocks/{block}.done.json",
    log:
        "sweeps/{sweep}/logs/{block}.log",
    wildcard_constraints:
        block=SWEEP.blocks(across_nodes=False),
    resources:
        **SWEEP.job,
        timing=1,
    params:
        python=SWEEP.python,
        before=SWEEP.before_block,
        software=SWEEP.software,
        wanted=SWEEP.wanted,
        kept="sweeps/{sweep}/logs/.{block}.log",
    shell:
        # Snakemake deletes a log before each job. So the log is a second name of a file that grows from command to command.
        "(touch {params.kept:q} && ln -f {params.kept:q} {log:q}) || true; "
        "{{ {params.before}{params.python} -P -m accelsweep.executor {input:q}; }} >> {log:q} 2>&1"


# Slurm alone. The supervisor runs on the first node and starts one process per node with srun; `mpi` among the resources
# keeps the executor plugin from wrapping it in a step of one task.
use rule block as block_across_nodes with:
    wildcard_constraints:
        block=SWEEP.blocks(across_nodes=True),
    resources:
        **SWEEP.job_across_nodes,
        timing=1,
