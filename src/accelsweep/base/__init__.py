"""The parts that know nothing of sweeps: documents, errors, printed numbers, secrets."""
