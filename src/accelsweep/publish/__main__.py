"""`python -m accelsweep.publish SWEEP_ROOT [--follow] [--tracking-uri URI] [--until-pid PID]`: publish one sweep."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import typer

from accelsweep.core.errors import AccelsweepError
from accelsweep.state.folders import existing_sweep


def main(arguments: list[str] | None = None) -> int:
    """Publish the sweep named on the command line; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m accelsweep.publish", description="Copy a sweep's records to MLflow."
    )
    parser.add_argument("root", type=Path, help="the sweep's folder: HOME/sweeps/NAME")
    parser.add_argument("--tracking-uri", help="where to (default: MLFLOW_TRACKING_URI, else HOME/mlflow.db)")
    parser.add_argument("--follow", action="store_true", help="go on while the sweep runs")
    parser.add_argument("--until-pid", type=int, help="with --follow: end when this process has ended")
    options = parser.parse_args(arguments)
    root = options.root.resolve()
    try:
        folder = existing_sweep(root.parents[1], root.name)
        if options.follow:
            from accelsweep.publish.follow import follow

            typer.echo(follow(folder, options.tracking_uri, until_pid=options.until_pid, tell=typer.echo))
        else:
            from accelsweep.publish.state import up_to_date

            if up_to_date(folder, options.tracking_uri):
                typer.echo(f"{folder.name}: MLflow has everything already")
                return 0
            from accelsweep.publish.publisher import publish

            typer.echo(publish(folder, options.tracking_uri, tell=typer.echo))
    except AccelsweepError as error:
        typer.echo(f"error: {error}", err=True)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
