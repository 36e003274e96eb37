"""The nodes of a fleet, from the runs that each of them measured."""
