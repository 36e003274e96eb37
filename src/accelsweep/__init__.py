"""Measure whether a GPU, a bigger batch or a lower precision pays off for this model, here.

The road is plan -> run -> record -> collect -> analyse -> report; each room of the package is one step of it.
"""

__version__ = "0.1.0"
