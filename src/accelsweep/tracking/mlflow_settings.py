"""The settings that mlflow reads when it is imported. Modules of this package that import mlflow import them first.

A process that only asks whether a copy is complete, such as a notebook's, keeps its own.
"""

import os

os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")

os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")

os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")

os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")  # the publisher asks again by itself, ever more rarely

os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "30")

os.environ["MLFLOW_ENABLE_ASYNC_LOGGING"] = "false"  # what is said to be there must be there
