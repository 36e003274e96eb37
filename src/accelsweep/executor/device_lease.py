"""Leases of this machine and its devices: `flock` on a node-local path, held while any process of a run is alive.

A run's processes inherit the locked descriptors, so an orphan keeps its devices locked even after its executor has been
killed. The whole machine has a single lock, because timed runs disturb each other regardless of their devices. Settings
with `measure.concurrency` above 1 share the lock; the analysis flags runs that overlapped. Nothing is locked on the
sweep's own file system, which may be a network file system.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from accelsweep.devices import kinds
from accelsweep.devices.datasheets import matches_model
from accelsweep.errors import AccelsweepError
from accelsweep.files import lease_folder, lock
from accelsweep.ipc import Interrupted, Pause
from accelsweep.run_config import SettingConfig

_RETRY_SECONDS = 0.05


class NotEnoughDevices(AccelsweepError):
    """A setting needs more devices than this machine has."""


@dataclass(frozen=True)
class Lease:
    """Leased devices, keyed by name (empty if this device kind is not leased individually), and lock descriptors."""

    accelerator: str
    names: tuple[str, ...]
    descriptors: tuple[int, ...]

    @property
    def environment(self) -> dict[str, str]:
        """The variables that make only these devices visible to the run; none for a CPU run."""
        return kinds.visibility_variables(self.accelerator, self.names)


NO_LEASE = Lease("cpu", (), ())
"""The lease of an executor that starts no ranks on its own node."""


@contextmanager
def leased(
    config: SettingConfig, holder: str, pause: Pause, say: Callable[[str], None], models: Sequence[str] = ()
) -> Iterator[Lease]:
    """Hold the machine and the devices that `config` requests inside the with-block.

    `holder` is shown to waiting processes; `say` is called once with the reason for waiting. `models` restricts the
    device models (empty means any). Raises NotEnoughDevices, and Interrupted if `pause` returns True.
    """
    candidates = _candidates(config.accelerator, config.devices, models)
    waiting = False
    with ExitStack() as stack:
        while (lease := _try_lease(stack, config, candidates, holder)) is None:
            if not waiting:
                other = (lease_folder() / "machine").read_text("utf-8", "replace") or "another process"
                say(f"waiting for the machine: {other} is timing a run on it")
                waiting = True
            if pause(_RETRY_SECONDS):
                raise Interrupted
        yield lease


def _candidates(accelerator: str, count: int, models: Sequence[str]) -> Mapping[str, str] | None:
    """Return the candidate devices' identities, keyed by name; None if this kind is not leased individually."""
    gpus = kinds.kind_of(accelerator).gpus()
    if gpus is None:
        return None
    candidates = {
        gpu.name: gpu.identity for gpu in gpus if not models or any(matches_model(one, gpu.model) for one in models)
    }
    if count > len(candidates):
        wanted = f" of the model {' or '.join(models)}" if models else ""
        others = f" ({', '.join(sorted({gpu.model for gpu in gpus}))})" if models and gpus else ""
        raise NotEnoughDevices(
            f"the run needs {count} {accelerator.upper()} devices{wanted}, but this machine shows only "
            f"{len(candidates)}{others}, fewer than its site's inventory lists"
        )
    return candidates


def _try_lease(
    stack: ExitStack, config: SettingConfig, candidates: Mapping[str, str] | None, holder: str
) -> Lease | None:
    # All or nothing: two runs that each hold some devices while waiting for more would deadlock.
    wanted = 0 if candidates is None else config.devices
    with ExitStack() as trial:
        machine = _try_lock(trial, "machine", holder, shared=config.measure.shared)
        if machine is None:
            return None
        locked: dict[str, int] = {}
        for name, identity in (candidates or {}).items():
            if len(locked) == wanted:
                break
            if (descriptor := _try_lock(trial, f"{config.accelerator}-{identity}", holder)) is not None:
                locked[name] = descriptor
        if len(locked) < wanted:
            return None
        stack.enter_context(trial.pop_all())
        return Lease(config.accelerator, tuple(locked), (machine, *locked.values()))


def _try_lock(stack: ExitStack, name: str, holder: str, *, shared: bool = False) -> int | None:
    descriptor = os.open(lease_folder() / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        lock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    stack.callback(os.close, descriptor)  # closed, not unlocked: a child that inherited the descriptor holds the lock
    os.truncate(descriptor, 0)
    os.pwrite(descriptor, holder.encode("utf-8", "replace"), 0)
    return descriptor
