"""Why a training may be slower than its setting was in a sweep: what else the machine did, and what is different."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from accelsweep.devices.cpu import cpu_model
from accelsweep.devices.kinds import hardware_fingerprint
from accelsweep.features.watch.measured_rate import MeasuredRate
from accelsweep.measure import run_doubts
from accelsweep.measure.machine_state import CpuUse, DeviceWatch
from accelsweep.results import Doubt
from accelsweep.run_environment import MachineState
from accelsweep.significant_digits import count_of
from accelsweep.worker.rank_measurement import cpu_doubts, telemetry_identities

WAITING_SHARE = 0.1
"""The share of the time spent waiting for data from which it is stated."""


class SlowdownCauses:
    """Compares machine and software with those of the sweep, and reads counters between two comparisons."""

    def __init__(self, rate: MeasuredRate, device: torch.device, local_ranks: int) -> None:
        """`rate` is what the training is compared with; `local_ranks` is the number of its ranks on this machine."""
        self._local_ranks, self._different = local_ranks, list(_differences(rate))
        self._cpu = CpuUse()
        self._devices = [DeviceWatch(identity, device.type) for identity in telemetry_identities(device)]
        self._cpu.start()
        for watch in self._devices:
            watch.start()

    def since_last_call(self, waiting_share: float) -> list[str]:
        """Return what may have slowed the training down since the last call, the likeliest first.

        `waiting_share` is the share of the time that it waited for data.
        """
        self._cpu.stop()
        doubts: list[Doubt | None] = []
        for watch in self._devices:
            watch.stop()
            doubts += run_doubts.device_doubts(*(MachineState.of(watch.states[at]) for at in ("opened", "closed")))
            watch.states["opened"] = watch.states["closed"]
        doubts += cpu_doubts([self._cpu.reading] * self._local_ranks, self._local_ranks)
        return [*self._different, *_waiting(waiting_share), *(doubt.message for doubt in doubts if doubt)]


def _differences(rate: MeasuredRate) -> Iterator[str]:
    hardware = {"host": cpu_model(), **hardware_fingerprint(rate.accelerator)}
    for part, name in rate.hardware.items():
        if hardware.get(part) not in (None, name):
            yield f"the {part} was {name} in the sweep and is {hardware[part]} now"
    measured, version = rate.software.get("torch"), torch.__version__.partition("+")[0]
    if measured not in (None, version):
        yield f"torch was {measured} in the sweep and is {version} now"
    if (threads := torch.get_num_threads()) != rate.threads_per_rank:
        yield f"each rank uses {count_of(threads, 'thread')}; it used {rate.threads_per_rank} in the sweep"


def _waiting(share: float) -> Iterator[str]:
    if share >= WAITING_SHARE:
        yield f"the training waits for its data loaders for {100 * share:.0f} % of the time"
