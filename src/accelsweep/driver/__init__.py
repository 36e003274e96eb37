"""Drives Snakemake from the plan to the report, and shows how far it is."""
