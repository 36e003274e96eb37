"""The place of a sweep: the devices of its nodes, and the words on its jobs for each engine."""
