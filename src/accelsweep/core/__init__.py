"""What things are: cell, run, block, record, outcome, environment, errors. Standard library and pydantic only."""
