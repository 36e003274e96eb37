"""Grid Engine, through Snakemake's cluster-generic executor plugin. It needs qsub, qstat, qdel, and qacct if it can."""
