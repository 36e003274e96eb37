"""Serving under load: MLPerf's load generator, the server that it asks, and the search for the highest load."""
