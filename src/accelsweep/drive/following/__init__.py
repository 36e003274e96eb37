"""The following of a sweep while it is measured: its progress, the time that is left, and notices of it."""
