"""Engines: what takes a site's blocks as jobs. How each does that is in its folder here, behind one interface.

`engine.Engine` is the head's and the plan's side of it, made for a site by `known.engine_of`. `this_job.ThisJob` is
the side of a process inside a job, found in its environment. Two things that Slurm alone can do stand where they are
used: accounts and finished blocks in `drive.slurm`, the job of a head in `drive.detached`.
"""
