"""Claims that an experiment puts to the test: figures that others state, with their source."""
