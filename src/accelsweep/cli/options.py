"""Arguments and options shared by several commands, with lazily imported shell completions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer


def completing(name: str) -> Callable[[str], Any]:
    """Return a completion that calls the function of this name in `cli.completion`."""

    def complete(incomplete: str) -> Any:
        from accelsweep.cli import completion

        return getattr(completion, name)(incomplete)

    return complete


def complete_override(ctx: typer.Context, incomplete: str) -> Any:
    """Complete a Hydra override."""
    from accelsweep.cli.completion import overrides

    return overrides(ctx.params.get("overrides") or (), incomplete)


def complete_setting(ctx: typer.Context, incomplete: str) -> Any:
    """Complete a setting of the sweep passed as the argument `name`."""
    from accelsweep.cli.completion import settings

    return settings(ctx.params.get("name"), incomplete)


SWEEP_NAMES = completing("sweeps")

PROFILES = completing("profiles")

Overrides = Annotated[
    list[str] | None,
    typer.Argument(
        help="Hydra overrides, e.g. experiment=quickstart batch_size=32,64",
        show_default=False,
        autocompletion=complete_override,
    ),
]

SweepName = Annotated[str, typer.Argument(help="the sweep's name, as in sweeps/NAME", autocompletion=SWEEP_NAMES)]

AnySweep = Annotated[str | None, typer.Argument(help="the sweep's name (default: all)", autocompletion=SWEEP_NAMES)]

Sweeps = Annotated[
    list[str],
    typer.Argument(
        help="the sweep to report on; several are merged into one report, by kind of hardware",
        autocompletion=SWEEP_NAMES,
    ),
]

Summary = Annotated[
    bool, typer.Option("--summary", help="also write a card for a slide, an issue or a chat: summary.png and .svg")
]

Before = Annotated[str, typer.Argument(help="the sweep to compare with", autocompletion=SWEEP_NAMES)]

After = Annotated[str, typer.Argument(help="the sweep to check for changes", autocompletion=SWEEP_NAMES)]

DryRun = Annotated[bool, typer.Option("--dry-run", "-n", help="show the plan and write nothing")]

Entry = Annotated[
    str | None,
    typer.Option(
        "--entry",
        help="measure your own training script as it is: 'python src/train.py' (default: search)",
    ),
]

Minutes = Annotated[
    float | None,
    typer.Option("--minutes", min=1, help="target duration of a sweep of your own script if no axis is given (10)"),
]

Name = Annotated[str | None, typer.Option("--name", help="name the sweep (default: the experiment's name)")]

Cfg = Annotated[str | None, typer.Option("--cfg", help="print the composed config and stop; the only choice is `job`")]

ProfileToCheck = Annotated[
    str | None,
    typer.Option("--profile", help="as for `run`; rejected if it does not match the site", autocompletion=PROFILES),
]

AddRepeats = Annotated[
    int,
    typer.Option("--add-repeats", min=0, help="add this many blocks of all settings to the plan"),
]

FailIf = Annotated[
    str | None,
    typer.Option(help="a gate, e.g. slower:2%: exit 3 on a supported regression, 1 if inconclusive"),
]

AsJson = Annotated[bool, typer.Option("--json", help="print one JSON object, for scripts")]

TrackingUri = Annotated[str | None, typer.Option("--tracking-uri", help="MLflow store (default: sqlite:///mlflow.db)")]

ListedOutcome = Annotated[
    str | None,
    typer.Option("--outcome", help="only this outcome, e.g. crashed or not_run", autocompletion=completing("outcomes")),
]

RetriedOutcome = Annotated[
    str,
    typer.Option(
        "--outcome",
        help="the outcome of the runs to re-open: out_of_memory, disturbed, ...",
        autocompletion=completing("retried"),
    ),
]

Sort = Annotated[
    str,
    typer.Option(
        help="order by plan, rate, seconds, doubts, outcome, setting or start", autocompletion=completing("sorts")
    ),
]
