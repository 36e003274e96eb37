"""Commands for sweeps and project files: `compare`, `clean`, `publish`, `init`, `site`, and the option `--cfg`."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import yaml
from pydantic import Field

from accelsweep import registry
from accelsweep.config.site import Site
from accelsweep.driver.console import Listing, Styled, say, show, tone_of
from accelsweep.driver.json_output import Answer
from accelsweep.driver.sweep_lock import refuse_if_running
from accelsweep.errors import EXIT_OK, InputError
from accelsweep.files import write_bytes_atomically
from accelsweep.installation import shipped_root
from accelsweep.records.findings import ComparedSetting, Findings, SweepComparison
from accelsweep.records.layout import SweepFolder, existing_sweep
from accelsweep.records.plan import Manifest
from accelsweep.report.formatting import bare_text, ratio_text, unit_word

if TYPE_CHECKING:
    from accelsweep.analysis.run_results import RunRow

# `accelsweep compare`: compares two sweeps setting by setting, with a gate for continuous integration.


class CompareAnswer(SweepComparison, Answer):
    """`accelsweep compare BEFORE AFTER --json`: two sweeps, setting by setting."""

    kind: ClassVar[str] = "compare"

    fail_if: str | None = Field(description="the requested gate")
    failing: tuple[str, ...] = Field(description="settings that fail the gate, by name; if any, the exit code is 3")


def compare_sweeps(home: Path, before: str, after: str, fail_if: str | None, *, as_json: bool = False) -> int:
    """Print the comparison and return the exit code, which is 0 if no gate is set.

    If `fail_if` is set, the exit code is 3 for a supported regression, 1 if a setting could not be judged, and 0
    otherwise.
    """
    from accelsweep.analysis import compare_sweeps as analysis

    gate = analysis.parse_gate(fail_if) if fail_if is not None else None
    comparison = analysis.compare_sweeps(_collect(home, before), _collect(home, after))
    results = analysis.gate_comparison(comparison, gate) if gate else ()
    state = analysis.worst(results)
    if as_json:
        failing = tuple(result.setting.setting for result in results if result.state is analysis.GateState.regression)
        say(CompareAnswer(**dict(comparison), fail_if=fail_if, failing=failing).text())
    else:
        _print_comparison(comparison)
        for name in dict.fromkeys((before, after)):
            if (folder := SweepFolder(home, name)).findings.is_file():
                say(f"{name}: {Findings.read(folder.findings).recommendation.headline}")
        if gate:
            say(f"{fail_if}: {analysis.gate_message(results, state)}")
    return state.exit_code if gate else EXIT_OK


def _collect(home: Path, name: str) -> tuple[list[RunRow], Manifest]:
    from accelsweep.analysis.collect import collect

    folder = existing_sweep(home, name)
    return collect(folder), Manifest.read(folder.manifest)


def _print_comparison(comparison: SweepComparison) -> None:
    unit = unit_word(comparison.rate_unit)
    headings = ("setting", f"before, {unit}", f"after, {unit}", "ratio", "verdict", "doubts")
    title = f"{comparison.after} against {comparison.before}"
    show(Listing(title, headings, tuple(map(_comparison_row, comparison.rows)), numbers=headings[1:4]))
    for row in comparison.rows:
        if row.ratio is None:
            say(f"{row.label}: {row.reason}")
        for doubt in row.doubts:
            say(f"{row.label}: {doubt.code}: {doubt.message}")
    for side, labels in ((comparison.before, comparison.only_before), (comparison.after, comparison.only_after)):
        if labels:
            say(f"only in {side}: {', '.join(labels)}")


def _comparison_row(row: ComparedSetting) -> tuple[str | Styled, ...]:
    before, after = (bare_text(rate) if rate else "-" for rate in (row.before, row.after))
    ratio = ratio_text(row.ratio) if row.ratio else "-"
    doubts = ", ".join(sorted({doubt.code for doubt in row.doubts})) or "-"
    return row.label, before, after, ratio, Styled(row.verdict, tone_of(row.verdict)), doubts


def delete_sweep(home: Path, name: str, ask: Callable[[str], bool] | None) -> None:
    """Delete `sweeps/NAME` and `reports/NAME`, after confirmation through `ask`, if given.

    Raises InputError if either is a symbolic link.
    """
    folder = existing_sweep(home, name)
    refuse_if_running(folder)
    for path in (folder.root, folder.report):
        if path.is_symlink():
            raise InputError(f"{path} is a link to {path.readlink()}: remove the link and its target yourself")
    doomed = [path for path in (folder.root, folder.report) if path.exists()]
    records = len(folder.latest_records())
    question = f"delete {' and '.join(str(path) for path in doomed)} with {records} records?"
    if ask is not None and not ask(question):
        say("nothing was deleted")
        return
    for before_deleting in registry.loaded("before_deleting"):
        before_deleting(folder)
    for path in doomed:
        shutil.rmtree(path)
        say(f"deleted {path}")


# `accelsweep publish`: copy a sweep's records to MLflow now.


def publish_now(home: Path, name: str, tracking_uri: str | None, *, reset: bool = False) -> str:
    """Publish missing or changed runs, and return a one-sentence summary.

    `reset` empties the store first. If the store is a file, the other sweeps in it are then republished.
    """
    from accelsweep.tracking.published_state import verified_up_to_date

    folder = existing_sweep(home, name)
    folders = [folder]
    if reset:
        folders += _empty_store(folder, tracking_uri)
    elif verified_up_to_date(folder, tracking_uri):
        return f"{name}: MLflow has everything already"
    from accelsweep.tracking.publisher import publish

    return "\n".join(str(publish(sweep, tracking_uri)) for sweep in folders)


def _empty_store(folder: SweepFolder, tracking_uri: str | None) -> list[SweepFolder]:
    """Empty the store and return the other sweeps that it contained. Fails if any of them is being measured."""
    from accelsweep.tracking.published_state import published_sweeps
    from accelsweep.tracking.publisher import reset_store
    from accelsweep.tracking.store_uri import resolve_uri, sqlite_path

    uri = resolve_uri(folder.home, tracking_uri)
    names = published_sweeps(folder.home, uri) if sqlite_path(uri) is not None else []
    others = [SweepFolder(folder.home, name) for name in names if name != folder.name]
    for sweep in (folder, *others):
        refuse_if_running(sweep)
    reset_store(folder, tracking_uri, say)
    return others


# `accelsweep init`: writes a commented model, its data, an experiment and a test, all ready to run.

STARTER_FILES = ("conf/experiment/mine.yaml", "my_model.py", "test_my_model.py")


def write_starter(folder: Path) -> None:
    """Write the starter into `folder`, created if needed. Raises InputError and writes nothing if a file exists."""
    taken = [name for name in STARTER_FILES if (folder / name).exists()]
    if taken or (folder.exists() and not folder.is_dir()):
        what = f"{', '.join(taken)} in {folder}" if taken else str(folder)
        raise InputError(f"{what} would be overwritten, so nothing was written; try: accelsweep init ANOTHER_FOLDER")
    for name in STARTER_FILES:
        write_bytes_atomically(folder / name, (shipped_root() / "starter" / name).read_bytes())
        say(f"wrote {folder / name}")
    change_folder = "" if folder.resolve() == Path.cwd() else f"cd {shlex.quote(str(folder))} && "
    say(f"now: {change_folder}accelsweep run experiment=mine")


def print_config(home: Path, overrides: Sequence[str], what: str) -> None:
    """Print the composed config, as Hydra's `--cfg job` does."""
    if what != "job":
        raise InputError(f"--cfg {what!r} is not supported: the only choice is `--cfg job`")
    from accelsweep.planning.user_class_overrides import composed_yaml

    say(composed_yaml(home, overrides), nl=False)


# `accelsweep site`: drafts a cluster's site file for the user to check and complete.

_DRAFTS = {"slurm": "accelsweep.schedulers.slurm_site:draft"} | {
    each.name: each.draft for each in registry.schedulers()
}
"""Scheduler -> the function that drafts its site file."""


def write_draft(home: Path, name: str, schedulers: Sequence[str]) -> None:
    """Write `conf/site/NAME.yaml` in `home`, drafted from the single scheduler in `schedulers`.

    Raises InputError unless exactly one scheduler is given, or if the file exists; AccelsweepError if the scheduler
    does not answer.
    """
    if len(schedulers) != 1:
        options = " or ".join(f"--from-{scheduler.replace('_', '-')}" for scheduler in _DRAFTS)
        raise InputError(f"choose what to draft the site from: accelsweep site NAME {options}")
    (scheduler,) = schedulers
    if re.fullmatch(r"[A-Za-z0-9_-]+", name) is None:
        raise InputError(f"'{name}' is not a site name: use letters, digits, '_' and '-'")
    file = home / "conf" / "site" / f"{name}.yaml"
    if file.exists():
        raise InputError(f"{file.relative_to(home)} already exists and was left unchanged: choose another name")
    text = registry.load(_DRAFTS[scheduler])(name)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    say(f"{file.relative_to(home)} is a draft that works as is; add models, prices and scratch yourself. Try it:")
    say(f"accelsweep doctor site={name}")
    command = shlex.join(["experiment=quickstart", f"site={name}", "--profile", scheduler, *quickstart_overrides(text)])
    say(f"accelsweep plan {command}")
    say(f"accelsweep run {command}")


def quickstart_overrides(text: str) -> list[str]:
    """Return the overrides that make the quickstart measure every node kind in this site file.

    The CPU baseline runs on nodes without GPUs if the site has any.
    """
    kinds = Site.model_validate(yaml.safe_load(text)).kinds
    with_gpus = [kind.name for kind in kinds if any(device.accelerator == "cuda" for device in kind.inventory)]
    without = [kind.name for kind in kinds if kind.name not in with_gpus]
    cpu = "cpu" if len(without or kinds) == 1 else f"cpu:{(without or with_gpus)[0]}"
    gpus = ["cuda"] if len(with_gpus) == 1 else [f"cuda:{name}" for name in with_gpus]
    baseline = [] if cpu == "cpu" else [f"baseline.accelerator={cpu}"]
    return [f"accelerator={','.join([cpu, *gpus])}", *baseline]
