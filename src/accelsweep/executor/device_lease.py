"""The right to time a run on this machine: locks on a node-local path, held while any process of a run lives.

A lock belongs to the open file, and a run's processes inherit it. When the supervisor is killed, an orphan still holds
its devices. The whole machine is one slot, because two timed runs on one machine disturb each other, whatever devices
they use. A cell that sets `measure.concurrency` above 1 shares the slot with cells of the same kind; the analysis marks
runs that overlapped. Nothing is ever locked on the sweep's own file system, which may be a shared one.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from accelsweep.config.schema import CellConfig
from accelsweep.devices import inventory
from accelsweep.devices.datasheets import meant
from accelsweep.errors import AccelsweepError
from accelsweep.executor.ipc import Interrupted, Pause
from accelsweep.json_documents import lease_folder, lock

_LOOK_SECONDS = 0.05


class NotEnoughDevices(AccelsweepError):
    """A setting asks for more devices than this machine shows."""


@dataclass(frozen=True)
class Lease:
    """The resources of a run: devices by name, if those of its kind are handed out, and the lock descriptors."""

    accelerator: str
    names: tuple[str, ...]
    descriptors: tuple[int, ...]

    @property
    def environment(self) -> dict[str, str]:
        """The variables that show the run only its own devices, and none to a run that asked for none."""
        return inventory.variables(self.accelerator, self.names)


NOTHING = Lease("cpu", (), ())
"""The lease of a process that starts no rank here."""


@contextmanager
def leased(
    config: CellConfig, holder: str, pause: Pause, say: Callable[[str], None], models: Sequence[str] = ()
) -> Iterator[Lease]:
    """Hold the machine, and the devices that the cell `config` asks for, for the length of the block.

    `holder` is shown to others that wait; `say` gets the reason for waiting once. `models` are those that the devices
    may be of; empty for any. Raises NotEnoughDevices, and Interrupted if `pause` says that the supervisor is to stop.
    """
    wanted = _wanted_devices(config.accelerator, config.devices, models)
    told = False
    with ExitStack() as stack:
        while (lease := _try_all(stack, wanted, holder, shared=config.measure.shared)) is None:
            if not told:
                say(f"waiting for the machine: {_other_holder()} is timing a run on it")
                told = True
            if pause(_LOOK_SECONDS):
                raise Interrupted
        yield lease


@dataclass(frozen=True)
class _Wanted:
    """`count` of the `candidates` (name -> identity)."""

    accelerator: str
    candidates: Mapping[str, str]
    count: int


def _try_all(stack: ExitStack, wanted: _Wanted, holder: str, *, shared: bool) -> Lease | None:
    # All or nothing: two runs that each keep some devices and wait for more could wait for each other for ever.
    with ExitStack() as trial:
        machine = _try_lock(trial, "machine", holder, shared=shared)
        if machine is None:
            return None
        held: dict[str, int] = {}
        for name, identity in wanted.candidates.items():
            lock = f"{wanted.accelerator}-{identity}"
            if len(held) < wanted.count and (descriptor := _try_lock(trial, lock, holder)) is not None:
                held[name] = descriptor
        if len(held) < wanted.count:
            return None
        stack.enter_context(trial.pop_all())
        return Lease(wanted.accelerator, tuple(held), (machine, *held.values()))


def _wanted_devices(accelerator: str, count: int, models: Sequence[str]) -> _Wanted:
    """Return the devices that a run of `count` devices leases: none by name if those of its kind are not handed out."""
    kind = inventory.kind_of(accelerator)
    shown = kind.named()
    if shown is None:
        return _Wanted(accelerator, {}, 0)
    found = kind.models()
    fitting = {name for name, model in found.items() if not models or any(meant(one, model) for one in models)}
    candidates = {name: identity for name, identity in shown.items() if name in fitting}
    if count > len(candidates):
        of = f" of the model {' or '.join(models)}" if models else ""
        others = f" ({', '.join(sorted(set(found.values())))})" if models and found else ""
        raise NotEnoughDevices(
            f"the run needs {count} {accelerator.upper()} devices{of}; this machine shows {len(candidates)}{others}, "
            "fewer than its site's inventory states"
        )
    return _Wanted(accelerator, candidates, count)


def _try_lock(stack: ExitStack, name: str, holder: str, *, shared: bool = False) -> int | None:
    descriptor = os.open(lease_folder() / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        lock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    stack.callback(os.close, descriptor)  # closed, not unlocked: a child that inherited the descriptor keeps the lock
    os.truncate(descriptor, 0)
    os.pwrite(descriptor, holder.encode("utf-8", "replace"), 0)
    return descriptor


def _other_holder() -> str:
    return (lease_folder() / "machine").read_text("utf-8", "replace") or "another process"
