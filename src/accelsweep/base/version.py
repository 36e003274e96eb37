"""The version of this package, where every room can read it without importing the public names above all rooms."""

__version__ = "0.1.0"
