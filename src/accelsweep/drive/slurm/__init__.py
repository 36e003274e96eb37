"""Slurm's own part: accounts of ended jobs, and jobs that it calls failed although their block is done."""
