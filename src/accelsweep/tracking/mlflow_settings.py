"""Environment variables that mlflow reads when it is imported.

Every module in this package that imports mlflow imports this one first. Processes that never import mlflow, such as a
notebook that only checks whether a copy is complete, keep their environment unchanged.
"""

import os

os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")
os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")  # the publisher has its own retries, with backoff
os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "30")
os.environ["MLFLOW_ENABLE_ASYNC_LOGGING"] = "false"  # a run is tagged as complete only after its data is stored
