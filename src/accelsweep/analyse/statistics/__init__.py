"""Pure numbers: intervals, verdicts, shares. Nothing here knows of records or cells."""
