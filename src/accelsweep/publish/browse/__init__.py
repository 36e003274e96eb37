"""MLflow's UI for a person: its server, and a browser that is opened."""
