"""What a sweep runs before it can be planned."""
