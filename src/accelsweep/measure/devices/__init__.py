"""Devices as torch drives them: how to wait, how to mark steps, which counters there are. One file a kind."""
