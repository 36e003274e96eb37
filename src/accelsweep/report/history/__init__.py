"""The page of a history: a figure for each line, its changes and its points as tables."""
