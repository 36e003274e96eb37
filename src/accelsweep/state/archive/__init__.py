"""A sweep in one file: which files it holds, how it is packed, and how somebody else's is checked before it is used."""
