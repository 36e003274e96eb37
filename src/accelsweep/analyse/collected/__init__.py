"""The collected runs: rows made of records, their origin, and their exports."""
