"""The head's side of Slurm: jobs in the queue, and what became of them. It needs squeue, which every site has."""
