"""What a run measures: training throughput, time to accuracy, a memory frontier, or inference."""
