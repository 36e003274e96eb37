"""Cells made of overrides: Hydra's composition, its grid, interpolations."""
