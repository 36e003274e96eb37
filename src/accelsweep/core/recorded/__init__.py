"""The record that a run leaves behind, with its hardware, outcome, metrics, traits and surroundings."""
