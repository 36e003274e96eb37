"""The collected runs: rows made of records, their hardware and origin, and their exports."""
