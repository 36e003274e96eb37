"""The patterns of names that a plan gives."""

BLOCK_NAME = "b[0-9a-f]{12}"
"""Every block's name, which a digest of its contents follows."""
