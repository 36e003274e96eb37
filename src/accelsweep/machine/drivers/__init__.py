"""The readers of devices' state: each maker's library, in the same words."""
