"""Records -> MLflow: one way, one writer, idempotent."""
