"""`python -m accelsweep.publish sweeps/NAME [--follow] [--tracking-uri URI] [--until-pid PID]`: publish one sweep."""

from __future__ import annotations

import argparse
import sys

import typer

from accelsweep.base.entry import answer
from accelsweep.state.entry import planned_sweep, sweep_parser
from accelsweep.state.folders import SweepFolder
from accelsweep.state.stamps import bring_all_back


def main(arguments: list[str] | None = None) -> int:
    """Publish the sweep named on the command line; return the exit code."""
    parser = sweep_parser("publish", "Copy a sweep's records to MLflow.")
    parser.add_argument("--tracking-uri", help="where to (default: MLFLOW_TRACKING_URI, else HOME/mlflow.db)")
    parser.add_argument("--follow", action="store_true", help="go on while the sweep runs")
    parser.add_argument("--until-pid", type=int, help="with --follow: end when this process has ended")
    options = parser.parse_args(arguments)
    return answer(lambda: _publish(options))


def _publish(options: argparse.Namespace) -> None:
    folder = planned_sweep(options.sweep)
    if options.follow:
        from accelsweep.publish.follow import follow

        done = follow(folder, options.tracking_uri, until_pid=options.until_pid, tell=typer.echo)
        typer.echo(done or _nothing_to_do(folder))
        return
    from accelsweep.publish.state import surely_up_to_date

    bring_all_back(folder)
    if surely_up_to_date(folder, options.tracking_uri):
        typer.echo(_nothing_to_do(folder))
        return
    from accelsweep.publish.publisher import publish

    typer.echo(publish(folder, options.tracking_uri, tell=typer.echo))


def _nothing_to_do(folder: SweepFolder) -> str:
    return f"{folder.name}: MLflow has everything already"


if __name__ == "__main__":
    sys.exit(main())
