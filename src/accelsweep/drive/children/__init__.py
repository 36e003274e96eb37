"""Processes that the head starts beside Snakemake: publisher and fork server, with their temporary files."""
