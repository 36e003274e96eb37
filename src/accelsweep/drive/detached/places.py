"""The places that a head can be handed over to, and whether one that was handed over is there."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Sequence
from typing import Protocol

from accelsweep.config.site import Site
from accelsweep.drive.detached.handed import Handed, PlaceKind, Whereabouts, end_of_head, handed_head
from accelsweep.drive.detached.slurm_job import HeadJob
from accelsweep.drive.detached.tmux import Tmux
from accelsweep.drive.detached.user_unit import UserUnit
from accelsweep.errors import InputError
from accelsweep.json_documents import sha256_text
from accelsweep.records.file_lock import living_hold
from accelsweep.records.layout import SweepFolder
from accelsweep.schedulers.protocol import Resources
from accelsweep.schedulers.slurm import sbatch_options


class Place(Protocol):
    """A holder of heads without a terminal. `waits` tells whether it may start one later; `caution` is for the user."""

    kind: PlaceKind
    waits: bool

    @property
    def caution(self) -> str | None:
        """The events that could end the head there without being asked."""

    def check(self, folder: SweepFolder, name: str) -> None:
        """Raise InputError where it would refuse the head of this sweep, or the head would stand in the sweep's way."""

    def start(self, folder: SweepFolder, command: Sequence[str], name: str) -> str:
        """Start `command` under about this `name`, its words in the head's log; return what `state` knows it by."""

    def state(self, name: str) -> Whereabouts | None:
        """Return what holds the head, None where it has ended."""

    def end_with(self, name: str, *, waits: bool = False) -> str:
        """Return the shell command that is Ctrl-C for the head, or that ends it while it `waits`."""


def place_for(site: Site, avoid: Sequence[str] = (), blocks: Iterable[Resources] = ()) -> Place:
    """Return where a head of this site goes: to the cluster, to the user's systemd, or to tmux. Raises InputError.

    On the cluster it goes to none of the nodes to `avoid`, and where it leaves enough whole nodes for these `blocks`.
    """
    if site.scheduler == "slurm":
        return HeadJob(site.slurm, avoid, whole_nodes(site, blocks))
    for place in (UserUnit(), Tmux()):
        if place.here():
            return place
    raise InputError(
        "--detach needs tmux, or a systemd of your own (systemctl --user), and this machine has neither: "
        "install tmux, or leave --detach out"
    )


def ways_to_end(place: Place, name: str, *, waits: bool) -> list[str]:
    """Return how the user ends the head: now, and later where it has not begun."""
    now = [f"end it while it waits: {place.end_with(name, waits=True)}"] if waits else []
    return [*now, f"end it{' once it runs' if waits else ''}, as Ctrl-C would: {place.end_with(name)}"]


def whole_nodes(site: Site, blocks: Iterable[Resources]) -> list[str]:
    """Return sbatch's options for each size of these blocks that takes whole nodes."""
    anywhere = (block for block in blocks if block.node is None)
    sizes = dict.fromkeys(block for block in anywhere if site.of_kind(block.node_kind).slurm.exclusive)
    return [sbatch_options(size, site.of_kind(size.node_kind).slurm) for size in sizes]


def place_of(handed: Handed) -> Place:
    """Return the place that a head was handed over to."""
    places: dict[str, Place] = {"slurm": HeadJob(), "systemd": UserUnit(), "tmux": Tmux()}
    return places[handed.place]


def name_in(place: Place, folder: SweepFolder) -> str:
    """Return a name for the head of this sweep, of this folder alone where a place has one head of a name."""
    if place.waits:
        return f"accelsweep-head-{folder.name}"
    return f"accelsweep-{folder.name}-{sha256_text(str(folder.root.resolve()))[:8]}"


def detached(folder: SweepFolder) -> tuple[Handed, Whereabouts] | None:
    """Return the detached head that waits or works, and what holds it; None where there is none.

    Raises AccelsweepError if Slurm does not answer.
    """
    handed = handed_head(folder)
    if handed is None or end_of_head(folder) is not None:
        return None
    if handed.place != "slurm" and handed.host != socket.gethostname():  # nobody can be asked but its hold
        lives = living_hold(folder.of_head("claim")) is not None
        found = Whereabouts(f"{handed.place} on {handed.host}") if lives else None
    else:
        found = place_of(handed).state(handed.name)
    return (handed, found) if found is not None else None
