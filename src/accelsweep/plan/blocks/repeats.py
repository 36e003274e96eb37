"""The number of blocks of a sweep: as the config says, with added ones, decided by a pilot, or look by look."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from accelsweep.base.errors import InputError
from accelsweep.core.planned.settings import LOOKS, Fleet, Settings


@dataclass(frozen=True)
class BlocksAsked:
    """The number of blocks, the fleet that measures them, and the profile, as `make_plan` takes them."""

    add: int
    decided: int | None
    until_decided: bool
    decided_at: Mapping[str, int] | None
    profile: str | None
    fleet: Fleet | None = None


def with_repeats(settings: Settings, before: Settings | None, asked: BlocksAsked) -> Settings:
    """Return `settings` with the number of blocks that the sweep is to have; a fleet's are those of all its nodes."""
    if asked.fleet is not None:
        blocks = len(asked.fleet.nodes) * asked.fleet.each
        return settings.model_copy(update={"repeats": blocks, "added_repeats": 0, "auto_repeats": False})
    if asked.until_decided:
        return _until_decided(settings, before, asked)
    if not settings.auto_repeats:
        return _with_added(settings, before, asked.add)
    if asked.add:
        raise InputError(
            f"--add-repeats {asked.add} and repeats=auto are two answers to one question: leave one out, or give the "
            "number of repeats, as repeats=N"
        )
    kept = before.repeats if before and before.auto_repeats else settings.repeats
    return settings.model_copy(update={"repeats": asked.decided or kept})


def refuse_too_many(settings: Settings, cells: int) -> None:
    """Raise InputError where a sweep of so many settings is larger than its limits: planning it would take minutes."""
    limits, runs = settings.limits, cells * settings.repeats
    mended = "give fewer, or raise"
    if settings.repeats > limits.max_repeats:
        raise InputError(
            f"{settings.repeats} repeats of each setting are more than limits.max_repeats={limits.max_repeats}: "
            f"{mended} it if you mean it"
        )
    if runs > limits.max_runs:
        raise InputError(
            f"{cells} settings with {settings.repeats} repeats are {runs} runs, more than "
            f"limits.max_runs={limits.max_runs}: {mended} it if you mean it"
        )


def _until_decided(settings: Settings, before: Settings | None, asked: BlocksAsked) -> Settings:
    """Return `settings` with the blocks of the present look: the first one, or that of the earlier plan."""
    if settings.auto_repeats or asked.add:
        other = "repeats=auto" if settings.auto_repeats else f"--add-repeats {asked.add}"
        raise InputError(f"--until-decided and {other} are two answers to one question: leave one out")
    if not settings.looks:
        raise InputError(f"repeats_most={settings.repeats_most}: --until-decided takes {LOOKS[0]} blocks at least")
    kept = before if before is not None and before.until_decided and before.repeats in settings.looks else None
    return settings.model_copy(
        update={
            "until_decided": True,
            "repeats": asked.decided or (kept.repeats if kept else settings.looks[0]),
            "decided_at": dict(asked.decided_at if asked.decided_at is not None else kept.decided_at if kept else {}),
        }
    )


def _with_added(settings: Settings, before: Settings | None, add: int) -> Settings:
    """Return `settings` with the repeats that `--add-repeats` added, now and to the earlier plan.

    Earlier additions stay while the config asks for the same number as it did then. So repeating the command without
    `--add-repeats` resumes the larger sweep. A changed `repeats` states the wanted number anew.
    """
    kept = before.added_repeats if before and before.repeats - before.added_repeats == settings.repeats else 0
    return settings.model_copy(update={"repeats": settings.repeats + kept + add, "added_repeats": kept + add})
