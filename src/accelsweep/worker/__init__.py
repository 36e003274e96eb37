"""One rank of a run: train, measure, and write the result. Needs torch and the standard library only."""
