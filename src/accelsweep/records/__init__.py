"""The documents of a sweep, and where they are stored."""
