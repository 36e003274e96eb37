"""A head that leaves its terminal: handed over, and carried on elsewhere."""
