"""Files of results that others publish, read into rows with their source: one module per format."""
