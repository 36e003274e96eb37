"""A block: supervisor, launchers, run (config -> Trainer or raw loop -> record), outcomes, leases."""
