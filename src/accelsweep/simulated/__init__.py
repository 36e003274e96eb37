"""A simulated asynchronous device: results of a CPU, a queue of its own, and costs that are programmed."""
