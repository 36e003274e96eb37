"""The owner of an experiment: several people publish sweeps of one name to a store, each into one of their own.

A sweep has a random mark beside its records, and the experiment that it makes carries the mark as a tag. Of two
publishers that begin together, one makes the experiment. The other finds a mark that is not its own, and takes the next
name. Experiments without a mark are those of earlier versions, or made by hand: there the records tell.
"""

from __future__ import annotations

import accelsweep.publish.store.mlflow_settings  # noqa: F401 - before mlflow

# isort: split
import contextlib
import getpass
import tempfile
import uuid
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar
from urllib.parse import urlsplit

from pydantic import Field

from accelsweep.base.documents import Document, put_in_place
from accelsweep.base.errors import InputError
from accelsweep.base.secrets import masked
from accelsweep.publish.runs.wanted import NOTE, SOURCE
from accelsweep.publish.store.location import artifact_location, database_file, is_server
from accelsweep.state.folders import SweepFolder

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Experiment, Run

SWEEP = "accelsweep.sweep"
"""The experiment's tag for the mark of the sweep that it belongs to."""

FIRST_NOTE = (
    "A sweep of accelsweep: every run is a setting, its children are the setting's repeats, and "
    "`report (revision N)` holds the report."
)
_TAGS = {
    "mlflow.experimentKind": "custom_model_development",  # the UI then shows runs first, not traces
    NOTE: FIRST_NOTE,
}
_PAGE = 1000
_MOST_NAMES = 50


class SweepMark(Document):
    """The random mark of a sweep's folder, which tells it from others of the same name in a store."""

    kind: ClassVar[str] = "mark"

    mark: Annotated[str, Field(pattern="^[0-9a-f]{32}$")]


def experiment_of(client: MlflowClient, folder: SweepFolder, uri: str, records: Collection[str]) -> Experiment:
    """Return the sweep's experiment in the store at `uri`, made where there is none, restored where it was deleted.

    `records` are the SHA-256 sums of the sweep's records. Raises InputError if other sweeps have all its names.
    """
    if database_file(uri) is not None:  # it belongs to its folder, and so does every experiment in it
        experiment = _named(client, folder.name) or _made(client, folder, folder.name, uri, {})
    else:
        experiment = _own(client, folder, uri, frozenset(records))
    if experiment.lifecycle_stage == "deleted":
        client.restore_experiment(experiment.experiment_id)
    return experiment


def all_runs(client: MlflowClient, experiment_id: str, *, deleted: bool = False) -> Iterator[Run]:
    """Yield the active runs of an experiment, with `deleted` those too that were deleted."""
    from mlflow.entities import ViewType

    token, view = None, ViewType.ALL if deleted else ViewType.ACTIVE_ONLY
    while True:
        page = client.search_runs([experiment_id], "", view, max_results=_PAGE, page_token=token)
        yield from page
        token = page.token
        if not token:
            return


def mark_of(folder: SweepFolder) -> str:
    """Return the sweep's mark, made at its first use; publishers that begin together get the same one.

    It holds the sweep's name, because the folder of a sweep may be copied under another name.
    """
    if not folder.mark.exists():
        with tempfile.TemporaryDirectory(dir=folder.root, prefix=".mark.") as own:
            made = Path(own) / folder.mark.name
            SweepMark(mark=uuid.uuid4().hex).write(made)
            with contextlib.suppress(FileExistsError):
                put_in_place(made, folder.mark)
    return f"{folder.name} {SweepMark.read(folder.mark).mark}"


def _own(client: MlflowClient, folder: SweepFolder, uri: str, records: frozenset[str]) -> Experiment:
    from mlflow.entities import ViewType
    from mlflow.exceptions import MlflowException

    mark = mark_of(folder)
    marked = client.search_experiments(view_type=ViewType.ALL, filter_string=f"tags.`{SWEEP}` = '{mark}'")
    if marked:  # under whatever name, since an experiment can be renamed
        return marked[0]
    names = list(_names(folder.name, uri))
    for name in names:
        try:
            found = _named(client, name)
        except MlflowException as error:
            if error.error_code != "PERMISSION_DENIED":
                raise
            continue  # it is there, and we may not even see it
        experiment = found or _made(client, folder, name, uri, {SWEEP: mark})
        if experiment.tags.get(SWEEP) == mark or _holds(client, experiment, records):
            return experiment
        if _is_new(client, experiment):
            client.set_experiment_tag(experiment.experiment_id, SWEEP, mark)
            return client.get_experiment(experiment.experiment_id)
    raise InputError(
        f"the experiments {names[0]!r} to {names[-1]!r} at {masked(uri)} belong to other sweeps. "
        "Give the sweep another name (name=...)"
    )


def _names(name: str, uri: str) -> Iterator[str]:
    """Yield the names that a sweep's experiment may have: the sweep's, with the user's beside it, with numbers."""
    yield name
    user = user_at(uri)
    own = f"{name}-{user}" if user else name
    if user:
        yield own
    yield from (f"{own}-{number}" for number in range(2, _MOST_NAMES))


def user_at(uri: str) -> str | None:
    """Return who publishes to `uri`: the user that a server is told, else the one of this machine, where known."""
    from mlflow.utils.credentials import read_mlflow_creds

    told = (urlsplit(uri).username or read_mlflow_creds().username) if is_server(uri) else None
    with contextlib.suppress(KeyError, OSError):  # a container's user may have no name
        return told or getpass.getuser()
    return None


def _holds(client: MlflowClient, experiment: Experiment, records: frozenset[str]) -> bool:
    """Return whether one of our records stands there: so it is a copy of this sweep, made from another folder."""
    runs = all_runs(client, experiment.experiment_id, deleted=True)
    return any(run.data.tags.get(SOURCE) in records for run in runs)


def _is_new(client: MlflowClient, experiment: Experiment) -> bool:
    """Return whether nobody has the experiment: somebody made it by hand, as for a user who may not make any."""
    if SWEEP in experiment.tags or experiment.lifecycle_stage == "deleted":
        return False
    return next(all_runs(client, experiment.experiment_id, deleted=True), None) is None


def _named(client: MlflowClient, name: str) -> Experiment | None:
    return client.get_experiment_by_name(name)


def _made(client: MlflowClient, folder: SweepFolder, name: str, uri: str, tags: dict[str, str]) -> Experiment:
    """Make the experiment, and return it, or the one of this name that another publisher made before."""
    from mlflow.exceptions import MlflowException

    try:
        client.create_experiment(name, artifact_location(folder, uri), tags=_TAGS | tags)
    except MlflowException:
        if _named(client, name) is None:  # else another publisher was faster
            raise
    experiment = _named(client, name)
    assert experiment is not None
    return experiment
