"""Tables of settings that belong together: the rungs of a ladder, the laws of scaling series."""
