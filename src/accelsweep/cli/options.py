"""Arguments and options of the commands, with what a shell completes for them. `cli` is made of them.

Completing imports what it needs when a shell asks, so that `--help` is quick.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer


def _completing(words: str) -> Callable[[str], Any]:
    """Return the function that completes these `words`, by its name in `cli/completion.py`."""

    def complete(incomplete: str) -> Any:
        from accelsweep.cli import completion

        return getattr(completion, words)(incomplete)

    return complete


def _override(ctx: typer.Context, incomplete: str) -> Any:
    from accelsweep.cli.completion import overrides

    return overrides(ctx.params.get("overrides") or (), incomplete)


def _setting(ctx: typer.Context, incomplete: str) -> Any:
    from accelsweep.cli.completion import settings

    return settings(ctx.params.get("name"), incomplete)


_SWEEPS = _completing("sweeps")

_PROFILES = _completing("profiles")

Overrides = Annotated[
    list[str] | None,
    typer.Argument(
        help="Hydra overrides, e.g. experiment=quickstart batch_size=32,64",
        show_default=False,
        autocompletion=_override,
    ),
]

SweepName = Annotated[str, typer.Argument(help="the sweep's name, as in sweeps/NAME", autocompletion=_SWEEPS)]

AnySweep = Annotated[str | None, typer.Argument(help="the sweep's name (default: all)", autocompletion=_SWEEPS)]

Sweeps = Annotated[list[str], typer.Argument(help="sweeps; several are merged by hardware", autocompletion=_SWEEPS)]

HistorySources = Annotated[
    list[str], typer.Argument(help="sweeps, archives, or a folder of archives", autocompletion=_SWEEPS)
]

Before = Annotated[str, typer.Argument(help="the sweep to compare with", autocompletion=_SWEEPS)]

After = Annotated[str, typer.Argument(help="the sweep that may have changed", autocompletion=_SWEEPS)]

Setting = Annotated[
    str, typer.Argument(help="the setting's name, its beginning, its words, or its values", autocompletion=_setting)
]

OneOrTwoSettings = Annotated[
    list[str],
    typer.Argument(
        help="a setting's name, its beginning, its words, or its values as in batch_size=32; two are compared",
        autocompletion=_setting,
    ),
]

Claims = Annotated[
    list[str] | None,
    typer.Argument(help="of conf/experiment/claims (default: all)", autocompletion=_completing("claims")),
]

Pythons = Annotated[
    list[str] | None,
    typer.Option("--python", help="an environment's interpreter instead of a commit; give two or more"),
]

TwoVersions = Annotated[
    list[str] | None,
    typer.Argument(
        help="two or more commits, the baseline first, or . for the files as they are now; then Hydra overrides",
        show_default=False,
        autocompletion=_override,
    ),
]

Jobs = Annotated[int | None, typer.Option("--jobs", "-j", min=1, help="Snakemake jobs at once")]

DryRun = Annotated[bool, typer.Option("--dry-run", "-n", help="show the plan and write nothing")]

TimeBudget = Annotated[str | None, typer.Option(help="start no run after this time: 90s, 30m, 2h")]

UntilDecided = Annotated[
    bool,
    typer.Option("--until-decided", help="look after 3, 5, 8, 12 and 20 blocks, and go on with what is undecided"),
]

KeepGoing = Annotated[
    bool, typer.Option("--keep-going", help="measure on where the first two settings end with the same exception")
]

CancelOld = Annotated[bool, typer.Option("--cancel-old", help="end the remains of an earlier command on this machine")]

Name = Annotated[str | None, typer.Option("--name", help="name the sweep (default: the experiment's name)")]

Cfg = Annotated[str | None, typer.Option("--cfg", help="print the composed config and stop; the only choice is `job`")]

Profile = Annotated[
    str,
    typer.Option(help="a profile in workflows/profiles/, or a path to one", autocompletion=_PROFILES),
]

ProfileToCheck = Annotated[
    str | None,
    typer.Option("--profile", help="as for `run`: refused if it does not fit the site", autocompletion=_PROFILES),
]

AddRepeats = Annotated[int, typer.Option("--add-repeats", min=0, help="add K whole blocks to the plan")]

NodesAsked = Annotated[str, typer.Option(help="`all` of the partition, or a list such as gpu[1-3],gpu7")]

Each = Annotated[int, typer.Option(min=1, help="blocks of each node, one in a round")]

Tolerance = Annotated[
    float,
    typer.Option(min=0.001, max=1, help="a node is sick if it is slower than the others by more than this share"),
]

FailIf = Annotated[str | None, typer.Option(help="exit 3 on a supported regression, 1 if unjudged, e.g. slower:2%")]

AsJson = Annotated[bool, typer.Option("--json", help="answer with one JSON object, for scripts")]

TrackingUri = Annotated[str | None, typer.Option("--tracking-uri", help="MLflow store (default: sqlite:///mlflow.db)")]

ListedOutcome = Annotated[
    str | None,
    typer.Option("--outcome", help="only these, e.g. crashed or not_run", autocompletion=_completing("outcomes")),
]

RetriedOutcome = Annotated[
    str,
    typer.Option(
        "--outcome",
        help="re-open the runs that ended so: out_of_memory, disturbed, ...",
        autocompletion=_completing("retried"),
    ),
]

Sort = Annotated[
    str,
    typer.Option(help="plan, rate, seconds, doubts, outcome, setting or start", autocompletion=_completing("sorts")),
]
