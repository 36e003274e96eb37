"""Runs a plan through Snakemake, from measurement to report, and displays the progress."""
