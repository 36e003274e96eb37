"""The rate of each setting over several sweeps: which runs make a point, and which points make a line."""
