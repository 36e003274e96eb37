"""Optional features: each folder contains one complete feature, described by `FEATURE` in its `__init__.py`."""
