"""Copy records into MLflow: one way, idempotent, by a writer that no run waits for. MLflow is never read back as data.

A sweep becomes an experiment, a cell a parent run, a repeat a child run, a revision of the plan a `report` run. Every
publisher computes the same target (`wanted`), looks at the content of the store (`store`) and writes the difference
(`writer`). If one is killed at any instant, the next one continues from the store's content. This file makes the
settings that mlflow reads when it is imported. So no module of the room can import it without them.
"""

import os

os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")
os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")  # the publisher asks again by itself, ever more rarely
os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "30")
