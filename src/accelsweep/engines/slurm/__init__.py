"""Slurm, through Snakemake's slurm executor plugin. It needs squeue, which every site has, and not sacct."""
