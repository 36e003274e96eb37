"""One rank of a run: trains, measures and writes the result. Requires only torch and the standard library."""
