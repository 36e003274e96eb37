"""A head that leaves its terminal: handed over, carried on elsewhere, and followed from here."""
