"""The checks of `accelsweep doctor`: this machine now, and a cluster's site that is tried."""
