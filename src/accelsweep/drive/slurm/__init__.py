"""What only Slurm knows or does: accounts of ended jobs, and jobs that it calls failed although their block is done."""
