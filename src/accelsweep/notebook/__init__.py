"""The public names for notebooks and scripts: sweeps and archives as frames and charts, and commands as functions."""
