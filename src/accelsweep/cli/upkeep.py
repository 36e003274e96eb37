"""Commands about files that come and go, and about the machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from accelsweep.base.errors import InputError
from accelsweep.cli.app import app
from accelsweep.commands.line.arguments import (
    AsJson,
    SweepName,
)


@app.command()
def export(
    name: SweepName,
    to: Annotated[Path | None, typer.Option(help="the file to write (default: NAME.zip)", show_default=False)] = None,
) -> None:
    """Pack a sweep into one file: plan, records, findings, report, versions, checksums. Writes its report again."""
    from accelsweep.commands.exchange.archives import export_sweep

    export_sweep(Path.cwd(), name, to)


@app.command("import")
def import_(
    file: Annotated[Path, typer.Argument(help="the archive that `export` wrote, or with --from a published file")],
    name: Annotated[str | None, typer.Option("--name", help="its name here (default: as exported)")] = None,
    source: Annotated[
        str | None, typer.Option("--from", help="who published it: timm, lambda, mlperf, milabench")
    ] = None,
    device: Annotated[
        str | None, typer.Option("--device", help="with --from: the device, where the file has none")
    ] = None,
) -> None:
    """Bring an exported sweep, or others' published results, into this folder. All is checked before it is written."""
    if source is not None:
        from accelsweep.commands.exchange.external import import_rows

        import_rows(Path.cwd(), file, source, device, name)
        return
    if device is not None:
        raise InputError("--device is for published results: say with --from who published them")
    from accelsweep.commands.exchange.archives import import_archive

    import_archive(Path.cwd(), file, name)


@app.command()
def doctor(
    overrides: Annotated[list[str] | None, typer.Argument(help="site=NAME: try this cluster too")] = None,
    job: Annotated[
        float | None,
        typer.Option(metavar="MINUTES", help="submit a short job to each kind of node; wait so long for it"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check whether this machine, or the cluster of site=NAME, can measure, and list its devices and versions."""
    from accelsweep.commands.doctor import examine

    raise typer.Exit(examine(Path.cwd(), overrides or (), job_minutes=job, as_json=as_json))


@app.command()
def site(
    name: Annotated[str, typer.Argument(help="the site's name: conf/site/NAME.yaml")],
    from_slurm: Annotated[bool, typer.Option("--from-slurm", help="from what sinfo lists on this login node")] = False,
    from_grid_engine: Annotated[
        bool, typer.Option("--from-grid-engine", help="from what qhost and qconf list on this login node")
    ] = False,
) -> None:
    """Draft a site file for this cluster into conf/site, with comments on what its engine does not know."""
    from accelsweep.commands.site import write_draft

    asked = {"slurm": from_slurm, "grid_engine": from_grid_engine}
    write_draft(Path.cwd(), name, [engine for engine, is_asked in asked.items() if is_asked])


@app.command()
def clean(
    name: SweepName,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="do not ask")] = False,
) -> None:
    """Delete sweeps/NAME and reports/NAME, records included. MLflow keeps its copy."""
    from accelsweep.commands.clean import delete_sweep

    delete_sweep(Path.cwd(), name, ask=None if yes else typer.confirm)
