"""Parts of a record that have a file of their own: the surroundings of its run, the largest batch of a search."""
