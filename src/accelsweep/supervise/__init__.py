"""A block: who works on it, which of its runs still stand, each attempt from its lease to its record."""
