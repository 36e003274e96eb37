"""One rank of a run: train, measure, and write the result. Only needs torch and the standard library."""
