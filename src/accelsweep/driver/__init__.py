"""Runs a plan with Snakemake, from measurement to report, and displays its progress."""
