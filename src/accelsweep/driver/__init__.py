"""Runs a plan through Snakemake up to the report, and displays the progress."""
