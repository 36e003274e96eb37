"""Runs the runs of one block one after the other, in processes of their own."""
