"""What tells the state of devices: each maker's library, in the same words."""
