"""Energy over the window, read only from hardware counters, without a power model.

NVML's total-energy counter covers a GPU's entire board, in millijoules. It is updated about every 100 ms, so windows
should last several seconds. RAPL's counters (`/sys/class/powercap`,
https://docs.kernel.org/power/powercap/powercap.html) cover a CPU package, in microjoules, and wrap around at
`max_energy_range_uj`. The two scopes are separate metrics and are never added together. The zone `psys` covers the
whole platform, including the packages, and is ignored.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from accelsweep.devices.clock import Clock, monotonic
from accelsweep.devices.device_kind import TelemetryUnavailable
from accelsweep.devices.kinds import kind_of, telemetry_of
from accelsweep.metrics import Metric

BOARD = "GPU boards of all ranks"

PACKAGE = "CPU packages of all nodes"

POWERCAP = Path("/sys/class/powercap")

SHORTEST_SECONDS = 1.0
"""Ten updates of NVML's counter: in a shorter window, its resolution alone causes an error of more than 10 %."""


class GpuEnergy:
    """Joules used by one GPU board between `start` and `stop`; None with a `reason` if unknown."""

    def __init__(self, identity: str, accelerator: str) -> None:
        """`identity` is the device's name in its driver's telemetry."""
        self._identity, self._accelerator = identity, accelerator
        self._before: float | None = None
        self.joules: float | None = None
        self.reason: str | None = "unavailable: the window never closed"

    def start(self) -> None:
        """Read the counter before the window."""
        self._before = self._read()

    def stop(self) -> None:
        """Read the counter after the window."""
        after = self._read()
        if self._before is not None and after is not None:
            self.joules, self.reason = after - self._before, None

    def _read(self) -> float | None:
        try:
            return telemetry_of(self._accelerator).joules(self._identity)
        except TelemetryUnavailable as error:
            self.reason = f"unavailable: {error}"
            return None


class PackageEnergy:
    """Joules used by this host's CPU packages between `start` and `stop`. Only one rank per host reads the counters."""

    def __init__(self, powercap: Path = POWERCAP) -> None:
        """`powercap` is Linux's directory of energy counters."""
        self._zones = [zone for zone in sorted(powercap.glob("intel-rapl:*")) if _is_package(zone)]
        self._before: dict[Path, int] | None = None
        self.joules: float | None = None
        self.reason: str | None = (
            None if self._zones else "unavailable: the operating system reports no RAPL counters of CPU packages"
        )

    def start(self) -> None:
        """Read the counters before the window."""
        self._before = self._microjoules()

    def stop(self) -> None:
        """Read the counters after the window; a counter that decreased has wrapped around once."""
        after = self._microjoules()
        if self._before is None or after is None:
            return
        total = 0
        for zone, earlier in self._before.items():
            used = after[zone] - earlier
            total += used if used >= 0 else used + int((zone / "max_energy_range_uj").read_text())
        self.joules, self.reason = total / 1e6, None

    def _microjoules(self) -> dict[Path, int] | None:
        try:
            return {zone: int((zone / "energy_uj").read_text()) for zone in self._zones} or None
        except OSError as error:
            self.reason = (
                f"unavailable: RAPL counters cannot be read ({error.strerror}); reading them requires root by default"
            )
            return None


def _is_package(zone: Path) -> bool:
    """Return whether a zone is a CPU package rather than a subzone (with a second colon) or the platform (`psys`)."""
    if zone.name.count(":") != 1:
        return False
    try:
        return (zone / "name").read_text().startswith("package")
    except OSError:
        return False


def total_joules(readings: list[tuple[float | None, str | None]], scope: str) -> Metric:
    """Return the total over all ranks, or, if any rank's value is missing, the first reason."""
    reasons = [reason for joules, reason in readings if joules is None]
    if not readings or reasons:
        reason = reasons[0] if reasons else "unavailable: no counter was read"
        return Metric(value=None, unit="J", reason=reason, scope=scope)
    total = sum(joules for joules, _ in readings if joules is not None)
    return Metric(value=total, unit="J", scope=scope, provenance="counter")


def energy_metrics(accelerator: str, ranks: list[dict[str, Any]], window_seconds: float) -> dict[str, Metric]:
    """Return `energy_joules` for the accelerator itself and `host_energy_joules` for the CPU packages.

    Each rank's dictionary may contain `gpu` (ranks on a device with telemetry) and `package` (one rank per host), both
    as `[joules, reason]`. GPU energy is withheld for windows shorter than `SHORTEST_SECONDS`.
    """
    if window_seconds < SHORTEST_SECONDS:
        reason = f"withheld: the counter is updated every 0.1 s, and the window lasted {window_seconds:.2f} s"
        withheld = {"gpu": [None, f"{reason}: raise measure.min_seconds"]}
        ranks = [rank | withheld if "gpu" in rank else rank for rank in ranks]
    boards = [tuple(rank["gpu"]) for rank in ranks if "gpu" in rank]
    host = total_joules([tuple(rank["package"]) for rank in ranks if "package" in rank], PACKAGE)
    if accelerator == "cpu":
        return {"energy_joules": host}
    if kind_of(accelerator).telemetry is not None:
        return {"energy_joules": total_joules(boards, BOARD), "host_energy_joules": host}
    reason = f"unavailable: no energy counter is known for accelerator={accelerator}"
    return {"energy_joules": Metric(value=None, unit="J", reason=reason), "host_energy_joules": host}


class EnergyMeter:
    """Measures the energy that this machine's devices use inside a `with` block; `result` is in joules."""

    def __init__(self, accelerator: str, boards: Sequence[str], clock: Clock = monotonic) -> None:
        """`boards` lists device names in the driver's telemetry; it is empty on a CPU, where the packages are read."""
        self._accelerator, self._clock, self._began = accelerator, clock, 0.0
        self._boards = [GpuEnergy(board, accelerator) for board in boards]
        self._package = PackageEnergy()
        self._probes: list[GpuEnergy | PackageEnergy] = [*self._boards, self._package]
        self.result = Metric(value=None, unit="J", reason="unavailable: the meter was not read")

    def __enter__(self) -> EnergyMeter:
        """Read the counters."""
        for probe in self._probes:
            probe.start()
        self._began = self._clock()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Read the counters again and set `result`."""
        seconds = self._clock() - self._began
        for probe in self._probes:
            probe.stop()
        package = {"package": [self._package.joules, self._package.reason]}
        ranks: list[dict[str, Any]] = [{"gpu": [board.joules, board.reason]} for board in self._boards]
        self.result = energy_metrics(self._accelerator, [*ranks, package], seconds)["energy_joules"]
