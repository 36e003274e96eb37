"""How long tests wait for what must happen: a bound on hangs and not on speed, so that a busy machine fails nothing."""

PATIENCE_SECONDS = 600.0
