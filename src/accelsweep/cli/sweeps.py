"""`accelsweep compare`: two sweeps setting by setting, and a gate for continuous integration."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import yaml
from pydantic import Field

from accelsweep import registry
from accelsweep.config.site import Site
from accelsweep.driver.console import Listing, Marked, say, show, tone_of
from accelsweep.driver.json_output import Answer, AnswerPart
from accelsweep.driver.sweep_lock import refuse_while_run
from accelsweep.errors import EXIT_OK, InputError
from accelsweep.files import write_bytes_atomically
from accelsweep.installation import shipped_root
from accelsweep.records.estimates import Estimate, Verdict
from accelsweep.records.layout import SweepFolder, existing_sweep
from accelsweep.records.plan import Manifest
from accelsweep.report.units import bare_text, ratio_text, unit_word
from accelsweep.results import Doubt

if TYPE_CHECKING:
    from accelsweep.analysis.compare_sweeps import GateResult, SweepComparison, SweepComparisonRow
    from accelsweep.analysis.run_results import RunRow


# The answer of `accelsweep compare`.


class ComparedSetting(AnswerPart):
    """A setting that both sweeps have."""

    setting: str = Field(description="the setting's name in files")
    label: str = Field(description="the setting in words")
    axes: dict[str, Any] = Field(description="the swept keys with this setting's values")
    before: Estimate | None = Field(description="the rate in the earlier sweep")
    after: Estimate | None = Field(description="the rate in the later sweep")
    ratio: Estimate | None = Field(description="the later rate divided by the earlier one")
    verdict: Verdict = Field(description="what the whole interval of the ratio supports")
    reason: str = Field(description="why that is the verdict")
    doubts: tuple[Doubt, ...] = Field(description="reasons to distrust either rate")


class CompareAnswer(Answer):
    """`accelsweep compare BEFORE AFTER --json`: two sweeps, setting by setting."""

    kind: ClassVar[str] = "compare"

    before: str = Field(description="the name of the earlier sweep")
    after: str = Field(description="the name of the later sweep")
    family: int = Field(description="the number of ratios whose intervals hold together")
    confidence: float = Field(description="the confidence with which they do")
    threshold: float = Field(description="the relative difference below which a change does not matter")
    rate_unit: str = Field(description="the unit of the rates")
    rows: tuple[ComparedSetting, ...] = Field(description="the settings that both sweeps have")
    only_before: tuple[str, ...] = Field(description="the labels of settings that the later sweep lacks")
    only_after: tuple[str, ...] = Field(description="the labels of settings that the earlier sweep lacks")
    fail_if: str | None = Field(description="the gate that was asked for")
    failing: tuple[str, ...] = Field(description="settings that the gate fails by name; then the exit code is 3")


def compare_sweeps(home: Path, before: str, after: str, fail_if: str | None, *, as_json: bool = False) -> int:
    """Print the comparison; return 0 without a gate.

    With `fail_if` the code is 3 for a supported regression, 1 where a setting could not be judged, and 0 otherwise.
    """
    from accelsweep.analysis import compare_sweeps
    from accelsweep.analysis.compare_sweeps import gate_comparison, gate_message, worst

    gate = compare_sweeps.parse_gate(fail_if) if fail_if is not None else None
    comparison = compare_sweeps.compare_sweeps(_collected(home, before), _collected(home, after))
    settings = gate_comparison(comparison, gate) if gate else ()
    state = worst(settings)
    if as_json:
        say(_answer(comparison, fail_if, settings).text())
    else:
        _print(comparison)
        if gate:
            say(f"{fail_if}: {gate_message(settings, state)}")
    return state.exit_code if gate else EXIT_OK


def _answer(comparison: SweepComparison, fail_if: str | None, settings: Sequence[GateResult]) -> CompareAnswer:
    from accelsweep.analysis.compare_sweeps import GateState

    failing = tuple(one.setting.setting for one in settings if one.state is GateState.regression)
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


def _row(row: SweepComparisonRow) -> tuple[str | Marked, ...]:
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
    for before_deleting in registry.loaded("before_deleting"):
        before_deleting(folder)
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
    from accelsweep.planning.user_targets import composed_yaml

    say(composed_yaml(home, overrides), nl=False)


# `accelsweep site`: draft the file of a cluster, for its user to read and complete.

_DRAFTS = {"slurm": "accelsweep.schedulers.slurm_site:draft"} | {one.name: one.draft for one in registry.schedulers()}
"""Scheduler -> the function that drafts a site file for it."""


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
    text = registry.load(_DRAFTS[engine])(name)
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
