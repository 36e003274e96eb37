"""Drives Snakemake from the plan to the report, and shows the progress."""
