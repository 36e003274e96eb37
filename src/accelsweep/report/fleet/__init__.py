"""The nodes of a fleet in the report and on the terminal."""
