"""Boosted trees, for `task: boosting`: three libraries behind one small protocol, and the rows that they learn from."""
