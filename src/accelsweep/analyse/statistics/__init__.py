"""Pure numbers: intervals, verdicts, shares. Nothing here uses records or cells."""
