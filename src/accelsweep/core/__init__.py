"""The vocabulary: cell, run, block, settings, record, findings, outcome. Standard library and pydantic only."""
