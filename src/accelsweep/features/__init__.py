"""Optional features: each folder holds all parts of one, and is described by the `FEATURE` in its `__init__.py`."""
