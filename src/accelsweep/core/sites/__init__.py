"""What a site says of its jobs, in the words of its engine."""
