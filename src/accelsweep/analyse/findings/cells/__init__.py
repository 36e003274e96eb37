"""The finding of one cell, and its parts: costs, memory, the bottleneck, the command that measures it again."""
