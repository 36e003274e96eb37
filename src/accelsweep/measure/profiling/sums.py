"""The events of a profile by operator and by module: the time that each took itself, in a mean step.

A backward operator belongs to the module whose forward operator made it. autograd numbers its nodes, and the profiler
notes the number with both: https://docs.pytorch.org/docs/stable/autograd.html, under `emit_nvtx`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

from accelsweep.core.recorded.profiles import PYTHON, ModuleTime, OperatorTime, StepPart
from accelsweep.measure.profiling.marks import MODULE_MARK

_STEP = "ProfilerStep"
_BACKWARD = "autograd::engine::evaluate_function: "
_BACKWARD_SCOPE = 1
_BY_NAME: dict[str, StepPart] = {"Optimizer.": "optimizer", "enumerate(DataLoader)": "data"}
"""The beginnings of the marks that torch itself puts around an optimiser's work and around fetching a batch."""

Key = TypeVar("Key", bound=Hashable)


class _Place(NamedTuple):
    """The module, by its path, and the part of the step that an event belongs to."""

    module: str
    part: StepPart


_OUTSIDE = _Place("", "outside")


class _Sum:
    """Calls, and microseconds on host and device."""

    def __init__(self) -> None:
        self.calls, self.host, self.device = 0, 0.0, 0.0

    def add(self, event: Any, *, calls: int) -> None:
        self.calls += calls
        self.host += event.self_cpu_time_total
        self.device += 0.0 if event.is_user_annotation else event.self_device_time_total

    def over(self, steps: int, *, has_device: bool) -> dict[str, Any]:
        """Return the means over so many steps, in seconds."""
        device = self.device * 1e-6 / steps if has_device else None
        return {"calls": self.calls / steps, "host_seconds": self.host * 1e-6 / steps, "device_seconds": device}


def host_events(events: Iterable[Any]) -> list[Any]:
    """Return the events of the host that lie inside each other, in the order of their starts."""
    found = [event for event in events if event.device_type.name == "CPU" and not event.is_async]
    return sorted(found, key=lambda event: (event.time_range.start, -event.time_range.end))


def operators(events: Iterable[Any], steps: int, *, has_device: bool) -> tuple[OperatorTime, ...]:
    """Return the operators of a mean step, the longest first; marks and steps themselves are the interpreter's."""
    sums = _summed(host_events(events), lambda event: PYTHON if _is_mark(event) else event.name, lambda _: 1)
    rows = [OperatorTime(name=name, **one.over(steps, has_device=has_device)) for name, one in sums.items()]
    return tuple(sorted(rows, key=lambda row: (-row.seconds, row.name)))


def modules(
    events: Iterable[Any], steps: int, classes: Mapping[str, str], *, has_device: bool
) -> tuple[ModuleTime, ...]:
    """Return the modules of a mean step, the longest first, given the classes of those that were marked."""
    ordered = host_events(events)
    places = _places(ordered)
    sums = _summed(ordered, lambda event: places[id(event)], _calls_of_module)
    rows = [
        ModuleTime(
            name=place.module,
            form=classes.get(place.module, "") if place.part in ("forward", "backward") else "",
            part=place.part,
            **one.over(steps, has_device=has_device),
        )
        for place, one in sums.items()
    ]
    return tuple(sorted(rows, key=lambda row: (-row.seconds, row.name, row.part)))


def _calls_of_module(event: Any) -> int:
    return int(event.name.startswith(MODULE_MARK))


def _summed(events: Iterable[Any], key_of: Callable[[Any], Key], calls_of: Callable[[Any], int]) -> dict[Key, _Sum]:
    sums: dict[Key, _Sum] = {}
    for event in events:
        sums.setdefault(key_of(event), _Sum()).add(event, calls=calls_of(event))
    return sums


def _is_mark(event: Any) -> bool:
    return bool(event.name.startswith((_STEP, MODULE_MARK)))


def _places(ordered: Iterable[Any]) -> dict[int, _Place]:
    """Return the place of each event by its identity: that of the event around it, unless it has one of its own."""
    places: dict[int, _Place] = {}
    made_by: dict[tuple[int, int], _Place] = {}
    for event in ordered:
        around = places.get(id(event.cpu_parent), _OUTSIDE)
        place = places[id(event)] = _own_place(event, around, made_by)
        if place.part != "backward" and event.sequence_nr >= 0:
            made_by[event.thread, event.sequence_nr] = place  # the last one before the number goes on made the node
    return places


def _own_place(event: Any, around: _Place, made_by: Mapping[tuple[int, int], _Place]) -> _Place:
    backward = around.part == "backward"
    if event.name.startswith(MODULE_MARK):
        return _Place(event.name.removeprefix(MODULE_MARK), "backward" if backward else "forward")
    if event.scope == _BACKWARD_SCOPE or event.name.startswith(_BACKWARD):
        made = made_by.get((event.fwd_thread, event.sequence_nr))
        module = around.module if made is None and backward else made.module if made is not None else ""
        return _Place(module, "backward")
    for beginning, part in _BY_NAME.items():
        if event.name.startswith(beginning):
            return _Place("", part)
    return around
