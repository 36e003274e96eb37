"""`accelsweep publish`: copy a sweep's records to MLflow now."""

from __future__ import annotations

from pathlib import Path

from accelsweep.state.folders import SweepFolder, existing_sweep


def publish_now(home: Path, name: str, tracking_uri: str | None, *, anew: bool = False) -> str:
    """Publish missing or changed runs; return a sentence that says what was sent where.

    With `anew` the store is emptied first. Where it is a file, the other sweeps that it had are copied again, too.
    """
    from accelsweep.publish.state import surely_up_to_date

    folder = existing_sweep(home, name)
    folders = [folder]
    if anew:
        folders += _emptied(folder, tracking_uri)
    elif surely_up_to_date(folder, tracking_uri):
        return f"{name}: MLflow has everything already"
    from accelsweep.publish.publisher import publish

    return "\n".join(str(publish(one, tracking_uri)) for one in folders)


def _emptied(folder: SweepFolder, tracking_uri: str | None) -> list[SweepFolder]:
    """Empty the store, and return the other sweeps that went with it. Refused while one of them is being measured."""
    from accelsweep.drive.head import refuse_while_run
    from accelsweep.drive.terminal.console import say
    from accelsweep.publish.publisher import start_anew
    from accelsweep.publish.state import copies
    from accelsweep.publish.store.location import database_file, resolve

    uri = resolve(folder.home, tracking_uri)
    in_a_file = database_file(uri) is not None
    others = [SweepFolder(folder.home, one) for one in copies(folder.home, uri) if in_a_file and one != folder.name]
    for one in (folder, *others):
        refuse_while_run(one)
    start_anew(folder, tracking_uri, say)
    return others
