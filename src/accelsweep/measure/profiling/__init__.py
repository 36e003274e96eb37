"""torch's profiler around some steps: marks around modules, and what its events say by operator and by module."""
