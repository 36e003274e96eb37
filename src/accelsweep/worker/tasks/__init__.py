"""What a run measures: training throughput, time to accuracy, a largest batch, or inference."""
