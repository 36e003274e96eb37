"""The reading of a command line: arguments, their completion, and options of Hydra's that it refuses."""
