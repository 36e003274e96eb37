"""One rank of a run: trains, measures and writes the result. Only requires torch and the standard library."""
