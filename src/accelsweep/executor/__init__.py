"""Execute one block: launch its runs one after another, monitor them, and record how each run ended."""
