"""The executor of tiny_executor.py, in a process that has imported what an executor imports before it forks its runs.

Otherwise each of these executors would import pandas and pyarrow to write its runs' steps: 0.3 s of a core.
"""

import os

os.environ["JE_ARROW_MALLOC_CONF"] = "background_thread:false"  # as `prepare_to_fork` does: no threads before a fork

# isort: split
import pandas  # noqa: F401
import pyarrow.parquet  # noqa: F401
from tiny_executor import main

__all__ = ["main"]
