"""The files of a sweep below `sweeps/NAME`: where they lie, who holds what, how they are read and written."""
