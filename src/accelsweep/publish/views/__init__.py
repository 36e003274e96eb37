"""The views that a sweep's experiment opens with in MLflow's UI."""
