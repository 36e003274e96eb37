"""The results, versions and data that stand before a block begins."""
