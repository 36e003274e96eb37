"""Blocks made of cells: how runs are cut, and each allocation's resources, length and smallest visible effect."""
