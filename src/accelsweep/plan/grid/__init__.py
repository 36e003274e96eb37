"""From overrides to cells: Hydra's composition, its grid, interpolations, ladders, selections."""
