"""The files of a sweep below `sweeps/NAME`: their paths, their holders, how they are read and written."""
