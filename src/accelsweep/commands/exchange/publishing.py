"""`accelsweep publish`: copy a sweep's records to MLflow now."""

from __future__ import annotations

from pathlib import Path

from accelsweep.state.folders import existing_sweep


def publish_now(home: Path, name: str, tracking_uri: str | None) -> str:
    """Publish missing or changed runs; return a sentence that says what was sent where."""
    from accelsweep.publish.state import surely_up_to_date

    folder = existing_sweep(home, name)
    if surely_up_to_date(folder, tracking_uri):
        return f"{name}: MLflow has everything already"
    from accelsweep.publish.publisher import publish

    return str(publish(folder, tracking_uri))
