"""The searches for automatic batches, which a sweep runs before it can be planned."""
