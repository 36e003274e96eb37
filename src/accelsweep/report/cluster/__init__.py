"""What the cluster tells of a sweep, apart from what was measured."""
