"""Who may time something on this machine now: locks on a node-local path, held while any process of a run lives.

A lock belongs to the open file, and a run's processes inherit it: when the supervisor is killed, an orphan still holds
what it uses. The whole machine is one slot, because two timed runs on one machine disturb each other whatever devices
they use; a cell that sets `measure.concurrency` above 1 shares the slot with its like (the analysis marks runs that
overlapped). Nothing is ever locked on the sweep's own file system, which may be a shared one.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from accelsweep.core.config import CellConfig
from accelsweep.core.errors import AccelsweepError
from accelsweep.machine.locks import lease_folder
from accelsweep.machine.nvml import NoNvml, ask, nvml, text
from accelsweep.supervise.processes.signals import Interrupted, Pause

_LOOK_SECONDS = 0.05


class NotEnoughDevices(AccelsweepError):
    """A cell asks for more devices than this machine shows."""


@dataclass(frozen=True)
class Lease:
    """What a run may use: the CUDA devices by the names that CUDA_VISIBLE_DEVICES takes, and the lock descriptors."""

    cuda: tuple[str, ...]
    descriptors: tuple[int, ...]

    @property
    def environment(self) -> dict[str, str]:
        """CUDA_VISIBLE_DEVICES for the run: only its own devices, and none for a run that asked for none."""
        return {"CUDA_VISIBLE_DEVICES": ",".join(self.cuda)}


NOTHING = Lease((), ())
"""The lease of who starts no rank here."""


@contextmanager
def leased(config: CellConfig, holder: str, pause: Pause, say: Callable[[str], None]) -> Iterator[Lease]:
    """Hold the machine, and the devices that the cell `config` asks for, for the length of the block.

    `holder` is shown to others that wait; `say` is told once why one waits. Raises NotEnoughDevices, and Interrupted if
    `pause` says that the supervisor is to stop.
    """
    candidates = visible_cuda() if config.accelerator == "cuda" else {}
    wanted = _wanted_devices(config, candidates)
    told = False
    with ExitStack() as stack:
        while (lease := _try_all(stack, candidates, wanted, holder, shared=config.measure.shared)) is None:
            if not told:
                say(f"waiting for the machine: {_other_holder()} is timing a run on it")
                told = True
            if pause(_LOOK_SECONDS):
                raise Interrupted
        yield lease


def _try_all(
    stack: ExitStack, candidates: Mapping[str, str], wanted: int, holder: str, *, shared: bool
) -> Lease | None:
    # All or nothing: who kept some devices while waiting for more could wait for ever on one who does the same.
    with ExitStack() as trial:
        machine = _try_lock(trial, "machine", holder, shared=shared)
        if machine is None:
            return None
        devices: dict[str, int] = {}
        for name, identity in candidates.items():
            if len(devices) < wanted and (descriptor := _try_lock(trial, f"cuda-{identity}", holder)) is not None:
                devices[name] = descriptor
        if len(devices) < wanted:
            return None
        stack.enter_context(trial.pop_all())
        return Lease(tuple(devices), (machine, *devices.values()))


def _wanted_devices(config: CellConfig, candidates: Mapping[str, str]) -> int:
    if config.accelerator == "cuda" and config.devices > len(candidates):
        raise NotEnoughDevices(f"it asks for {config.devices} CUDA devices; this machine shows {len(candidates)}")
    return min(config.devices, len(candidates))


def visible_cuda() -> dict[str, str]:
    """Return the CUDA devices that this process may use: name for CUDA_VISIBLE_DEVICES -> UUID.

    Asked through NVML, which makes no context on a device. A scheduler's CUDA_VISIBLE_DEVICES is obeyed.
    """
    try:
        with nvml() as library:
            handles = [
                ask(library.nvmlDeviceGetHandleByIndex, index) for index in range(ask(library.nvmlDeviceGetCount))
            ]
            uuids = [text(ask(library.nvmlDeviceGetUUID, handle)) for handle in handles]
    except NoNvml:
        return {}
    granted = os.environ.get("CUDA_VISIBLE_DEVICES")
    if granted is None:
        return {str(index): uuid for index, uuid in enumerate(uuids)}
    names = [name.strip() for name in granted.split(",") if name.strip()]
    return {name: uuids[int(name)] if name.isdigit() and int(name) < len(uuids) else name for name in names}


def _try_lock(stack: ExitStack, name: str, holder: str, *, shared: bool = False) -> int | None:
    descriptor = os.open(lease_folder() / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    stack.callback(os.close, descriptor)  # closed, not unlocked: whoever inherited the descriptor keeps the lock
    os.truncate(descriptor, 0)
    os.pwrite(descriptor, holder.encode("utf-8", "replace"), 0)
    return descriptor


def _other_holder() -> str:
    return (lease_folder() / "machine").read_text("utf-8", "replace") or "another process"
