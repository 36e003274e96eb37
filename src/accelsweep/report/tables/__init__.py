"""The tables of the report: cells with their readings, claims, and those beside them."""
