"""A block: its supervisor, its runs that still stand, and each attempt from its lease to its record."""
