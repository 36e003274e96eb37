"""One rank of a run: trains, measures, and writes its result."""
