"""The tasks that a run can measure: training throughput, time to accuracy, largest batch, inference."""
