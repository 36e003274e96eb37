"""The search for the largest batch that fits: which batches are tried, how each is, and what the tries say."""
