"""The vocabulary: cell, run, block, record, findings, outcome, errors. Standard library and pydantic only."""
