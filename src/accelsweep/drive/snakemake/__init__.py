"""Snakemake as a head drives it: how it is started and followed, what its Snakefile sees, and why it ended."""
