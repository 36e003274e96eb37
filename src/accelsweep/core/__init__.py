"""What things are: cell, run, block, record, findings, outcome, errors. Standard library and pydantic only."""
