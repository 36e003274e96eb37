# Measuring: one job per block.


rule block:
    input:
        "sweeps/{sweep}/blocks/{block}.json",
    output:
        "sweeps/{sweep}/blocks/{block}.done.json",
    log:
        "sweeps/{sweep}/logs/{block}.log",
    wildcard_constraints:
        block=SWEEP.block_pattern(multi_node=False),
    resources:
        **SWEEP.job_resources,
        timing=1,
    params:
        python=SWEEP.python,
        before=SWEEP.before_block,
        software=SWEEP.software_digest,
        runs=SWEEP.runs_digest,
        persistent_log="sweeps/{sweep}/logs/.{block}.log",
    shell:
        # Snakemake deletes the log before each job, so it is a hard link to a file that persists.
        "(touch {params.persistent_log:q} && ln -f {params.persistent_log:q} {log:q}) || true; "
        "{{ {params.before}{params.python} -P -m accelsweep.executor {input:q}; }} >> {log:q} 2>&1"


# Slurm only. The executor runs on the first node and starts one process per node with srun; the resource `mpi` keeps
# Snakemake's plugin from wrapping it in a step of one task.
use rule block as block_across_nodes with:
    wildcard_constraints:
        block=SWEEP.block_pattern(multi_node=True),
    resources:
        **SWEEP.multi_node_resources,
        timing=1,
