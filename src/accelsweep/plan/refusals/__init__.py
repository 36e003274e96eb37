"""Which configs and cells are refused, and in which words, while nothing has been written yet."""
