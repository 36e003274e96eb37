"""Time limits of tests that wait. They bound hangs, not speed, so that a busy machine fails nothing."""

PATIENCE_SECONDS = 600.0
