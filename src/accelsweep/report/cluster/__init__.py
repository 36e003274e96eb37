"""The cluster's account of a sweep, apart from the measurements."""
