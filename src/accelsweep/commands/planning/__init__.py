"""The plan of a sweep before it is measured: made, shown, and the searches for automatic batches that come first."""
