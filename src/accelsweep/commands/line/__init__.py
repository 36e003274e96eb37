"""How the command line reads what is typed: arguments, their completion, and options of Hydra's that it refuses."""
