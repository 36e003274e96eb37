"""The record that a run leaves behind, with its outcome, metrics, traits and surroundings."""
