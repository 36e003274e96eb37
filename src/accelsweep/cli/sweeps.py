"""`accelsweep compare`: two sweeps cell by cell, and a gate for continuous integration."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from accelsweep.config.site import Site
from accelsweep.drive.versions.trees import remove_trees
from accelsweep.driver.console import Listing, Marked, say, show, tone_of
from accelsweep.driver.plan_preview import made_plan, show_plan
from accelsweep.driver.run_sweep import Request, carried_out
from accelsweep.driver.sweep_lock import refuse_while_run
from accelsweep.engines.grid_engine.draft import draft as from_grid_engine
from accelsweep.errors import EXIT_OK, InputError
from accelsweep.files import write_bytes_atomically
from accelsweep.installation import shipped_root
from accelsweep.records.layout import SweepFolder, existing_sweep
from accelsweep.records.plan import Manifest
from accelsweep.report.units import bare_text, ratio_text, unit_word
from accelsweep.schedulers.slurm_site import draft as from_slurm

if TYPE_CHECKING:
    from accelsweep.analysis.compare_sweeps import CellInBoth, Gated, SweepComparison
    from accelsweep.analysis.run_results import RunRow
    from accelsweep.answers.forms.compared import CompareAnswer


def compare_sweeps(home: Path, before: str, after: str, fail_if: str | None, *, as_json: bool = False) -> int:
    """Print the comparison; return 0 without a gate.

    With `fail_if` the code is 3 for a supported regression, 1 where a setting could not be judged, and 0 otherwise.
    """
    from accelsweep.analysis import compare_sweeps
    from accelsweep.analysis.compare_sweeps import gated_rows, words_of_gate, worst

    gate = compare_sweeps.parse_gate(fail_if) if fail_if is not None else None
    comparison = compare_sweeps.compare_sweeps(_collected(home, before), _collected(home, after))
    settings = gated_rows(comparison, gate) if gate else ()
    state = worst(settings)
    if as_json:
        say(_answer(comparison, fail_if, settings).text())
    else:
        _print(comparison)
        if gate:
            say(f"{fail_if}: {words_of_gate(settings, state)}")
    return state.exit_code if gate else EXIT_OK


def _answer(comparison: SweepComparison, fail_if: str | None, settings: Sequence[Gated]) -> CompareAnswer:
    from accelsweep.analysis.compare_sweeps import GateState
    from accelsweep.answers.forms.compared import CompareAnswer

    failing = tuple(one.cell.cell for one in settings if one.state is GateState.regression)
    return CompareAnswer.made_of(comparison, fail_if=fail_if, failing=failing)


def _collected(home: Path, name: str) -> tuple[list[RunRow], Manifest]:
    from accelsweep.analysis.collect import collect

    folder = existing_sweep(home, name)
    return collect(folder), Manifest.read(folder.manifest)


def _print(comparison: SweepComparison) -> None:
    unit = unit_word(comparison.rate_unit)
    headings = ("setting", f"before, {unit}", f"after, {unit}", "ratio", "verdict", "doubts")
    title = f"{comparison.after} against {comparison.before}"
    show(Listing(title, headings, tuple(map(_row, comparison.rows)), numbers=headings[1:4]))
    for row in comparison.rows:
        if row.ratio is None:
            say(f"{row.label}: {row.reason}")
        for doubt in row.doubts:
            say(f"{row.label}: {doubt.code}: {doubt.message}")
    for side, labels in ((comparison.before, comparison.only_before), (comparison.after, comparison.only_after)):
        if labels:
            say(f"only in {side}: {', '.join(labels)}")


def _row(row: CellInBoth) -> tuple[str | Marked, ...]:
    before, after = (bare_text(rate) if rate else "-" for rate in (row.before, row.after))
    ratio = ratio_text(row.ratio) if row.ratio else "-"
    doubts = ", ".join(sorted({doubt.code for doubt in row.doubts})) or "-"
    return row.label, before, after, ratio, Marked(row.verdict, tone_of(row.verdict)), doubts


# `accelsweep clean`: delete one sweep's folders, after asking.


def delete_sweep(home: Path, name: str, ask: Callable[[str], bool] | None) -> None:
    """Delete `sweeps/NAME` and `reports/NAME`; `ask` gets the question, None means do not ask.

    Raises InputError where one of them is a link.
    """
    folder = existing_sweep(home, name)
    refuse_while_run(folder)
    for path in (folder.root, folder.report):
        if path.is_symlink():
            raise InputError(f"{path} is a link to {path.readlink()}: remove the link, and what it leads to, yourself")
    doomed = [path for path in (folder.root, folder.report) if path.exists()]
    records = len(folder.records_on_top())
    question = f"delete {' and '.join(str(path) for path in doomed)} with {records} records?"
    if ask is not None and not ask(question):
        say("nothing was deleted")
        return
    remove_trees(folder)
    for path in doomed:
        shutil.rmtree(path)
        say(f"deleted {path}")


# `accelsweep publish`: copy a sweep's records to MLflow now.


def publish_now(home: Path, name: str, tracking_uri: str | None, *, anew: bool = False) -> str:
    """Publish missing or changed runs; return a sentence that says what was sent where.

    With `anew` the store is emptied first. Where it is a file, the other sweeps that it had are copied again, too.
    """
    from accelsweep.tracking.published_state import verified_up_to_date

    folder = existing_sweep(home, name)
    folders = [folder]
    if anew:
        folders += _emptied(folder, tracking_uri)
    elif verified_up_to_date(folder, tracking_uri):
        return f"{name}: MLflow has everything already"
    from accelsweep.tracking.publisher import publish

    return "\n".join(str(publish(one, tracking_uri)) for one in folders)


def _emptied(folder: SweepFolder, tracking_uri: str | None) -> list[SweepFolder]:
    """Empty the store, and return the other sweeps that went with it. Refused while one of them is being measured."""
    from accelsweep.driver.console import say
    from accelsweep.driver.sweep_lock import refuse_while_run
    from accelsweep.tracking.published_state import published_sweeps
    from accelsweep.tracking.publisher import reset_store
    from accelsweep.tracking.store_uri import resolve_uri, sqlite_path

    uri = resolve_uri(folder.home, tracking_uri)
    in_a_file = sqlite_path(uri) is not None
    others = [
        SweepFolder(folder.home, one) for one in published_sweeps(folder.home, uri) if in_a_file and one != folder.name
    ]
    for one in (folder, *others):
        refuse_while_run(one)
    reset_store(folder, tracking_uri, say)
    return others


# `accelsweep init`: a commented model, its data, an experiment and a test that run at once, there to be changed.

STARTER_FILES = ("conf/experiment/mine.yaml", "my_model.py", "test_my_model.py")


def write_starter(folder: Path) -> None:
    """Write the starter into `folder`, made if need be. Raises InputError, and writes nothing, if a file is there."""
    taken = [name for name in STARTER_FILES if (folder / name).exists()]
    if taken or (folder.exists() and not folder.is_dir()):
        what = f"{', '.join(taken)} in {folder}" if taken else str(folder)
        raise InputError(f"{what} would be overwritten, so nothing was written; try: accelsweep init ANOTHER_FOLDER")
    for name in STARTER_FILES:
        write_bytes_atomically(folder / name, (shipped_root() / "starter" / name).read_bytes())
        say(f"wrote {folder / name}")
    there = "" if folder.resolve() == Path.cwd() else f"cd {shlex.quote(str(folder))} && "
    say(f"now: {there}accelsweep run experiment=mine")


# `--cfg job`: the config of a sweep.


def print_config(home: Path, overrides: Sequence[str], what: str) -> None:
    """Print the composed config, as `--cfg job` does for users of Hydra."""
    if what != "job":
        raise InputError(f"--cfg {what!r} is not known here: the only choice is `--cfg job`")
    from accelsweep.planning.target_check import composed_yaml

    say(composed_yaml(home, overrides), nl=False)


def print_plan(
    home: Path,
    overrides: Sequence[str],
    *,
    name: str | None,
    add_repeats: int,
    profile: str | None = None,
    as_json: bool = False,
    until_decided: bool = False,
) -> None:
    """Make the plan, print it, and write nothing. Raises InputError for a `profile` that does not fit the site."""
    plan = made_plan(home, overrides, name=name, add_repeats=add_repeats, profile=profile, until_decided=until_decided)
    show_plan(home, plan, as_json=as_json)


# `accelsweep run`: a sweep measured to its report.


def run(home: Path, request: Request) -> int:
    """Run the sweep to its report; return the exit code."""
    return carried_out(home, request).code


# `accelsweep site`: draft the file of a cluster, for its user to read and complete.

_DRAFTS: dict[str, Callable[[str], str]] = {"slurm": from_slurm, "grid_engine": from_grid_engine}


def write_draft(home: Path, name: str, engines: Sequence[str]) -> None:
    """Write `conf/site/NAME.yaml` below `home`, drafted from the one engine that `engines` name.

    Raises InputError where it is there, or not one engine is named, AccelsweepError where that does not answer.
    """
    if len(engines) != 1:
        ways = " or ".join(f"--from-{engine.replace('_', '-')}" for engine in _DRAFTS)
        raise InputError(f"say what to draft the site from: accelsweep site NAME {ways}")
    (engine,) = engines
    if re.fullmatch(r"[A-Za-z0-9_-]+", name) is None:
        raise InputError(f"'{name}' is no name of a site: letters, digits, '_' and '-' make one")
    file = home / "conf" / "site" / f"{name}.yaml"
    if file.exists():
        raise InputError(f"{file.relative_to(home)} is there already, and is left alone: choose another name")
    text = _DRAFTS[engine](name)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    say(f"{file.relative_to(home)} is a draft that runs as it is; models, prices and scratch are yours to add. Try it:")
    say(f"accelsweep doctor site={name}")
    command = shlex.join(["experiment=quickstart", f"site={name}", "--profile", engine, *accelerators(text)])
    say(f"accelsweep plan {command}")
    say(f"accelsweep run {command}")


def accelerators(text: str) -> list[str]:
    """Return the overrides by which the quickstart measures each kind of node that this site file has.

    The CPU baseline goes to nodes without GPUs where there are any.
    """
    kinds = Site.model_validate(yaml.safe_load(text)).kinds
    having = [kind.name for kind in kinds if any(device.accelerator == "cuda" for device in kind.inventory)]
    alone = [kind.name for kind in kinds if kind.name not in having]
    cpu = "cpu" if len(alone or kinds) == 1 else f"cpu:{(alone or having)[0]}"
    gpus = ["cuda"] if len(having) == 1 else [f"cuda:{name}" for name in having]
    baseline = [] if cpu == "cpu" else [f"baseline.accelerator={cpu}"]
    return [f"accelerator={','.join([cpu, *gpus])}", *baseline]
