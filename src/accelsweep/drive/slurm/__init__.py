"""A site tried on its Slurm, before a sweep goes there."""
