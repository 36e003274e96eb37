"""What knows nothing of sweeps: documents, errors, printed numbers, secrets."""
