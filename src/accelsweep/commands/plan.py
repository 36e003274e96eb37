"""`accelsweep plan` and the plan that `run` shows first: cells, what cannot run and why, blocks, an estimate."""
