"""Engines: what takes a site's blocks as jobs. All that is an engine's own is in its folder here, behind one interface.

`engine.Engine` is the head's and the plan's side of it, made for a site by `known.engine_of`. `this_job.ThisJob` is
the side of a process inside a job, found in its environment.
"""
