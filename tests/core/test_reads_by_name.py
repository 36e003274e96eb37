"""No module but the one that parses reads a key of ours by its name as text: keys are attributes of typed models."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, get_args

import pytest
from pydantic import BaseModel

import accelsweep
from accelsweep import registry
from accelsweep.config.schema import MODELS
from accelsweep.config.site import Site
from accelsweep.config.sweep_options import Options
from accelsweep.features.fleet.planning import Fleet
from accelsweep.run_config import VERSION, LearningRate, Measure, SettingConfig

SOURCE = Path(accelsweep.__file__).parent
OF_FEATURES = (
    *(registry.load(keys.model) for feature in registry.features() for keys in feature.config_keys),
    *(registry.load(scheduler.options) for scheduler in registry.schedulers()),
)
ROOTS = (MODELS[SettingConfig], MODELS[Measure], MODELS[LearningRate], Options, Site, Fleet, *OF_FEATURES)
"""The models of all that a user writes: a setting, its optimiser, the options and site of its sweep, and its nodes."""


def keys_in(annotations: Iterable[Any]) -> frozenset[str]:
    """Return the keys of the models that these annotations name, and of those that their fields name in turn."""
    waiting, keys, seen = list(annotations), set[str](), []
    while waiting:
        annotation = waiting.pop()
        waiting += get_args(annotation)
        if annotation not in seen and isinstance(annotation, type) and issubclass(annotation, BaseModel):
            seen.append(annotation)
            keys |= set(annotation.model_fields)
            waiting += [field.annotation for field in annotation.model_fields.values()]
    return frozenset(keys)


OURS = keys_in(ROOTS) | {VERSION} | {scheduler.name for scheduler in registry.schedulers()}

NOT_A_CONFIG: dict[tuple[str, str], tuple[str, str]] = {
    ("features/ab/recommendation.py", "setting.axes"): ("version", "swept keys with their values"),
    ("run_environment.py", "self.details"): ("device", "fields of the hardware in a fingerprint"),
    ("analysis/costs.py", "one"): ("usd_per_hour", "costs of a setting, by their names"),
    ("features/history/lines.py", "setting.planned.axes"): ("version", "swept keys with their values"),
    ("cli/doctor.py", "state"): ("name", "the state of a device"),
    ("json_documents.py", "envelope"): ("version", "the version that wrote a document"),
    ("cli/options.py", "ctx.params"): ("name", "options of the command line"),
    ("config/setting.py", "axes"): ("accelerator devices", "swept keys"),
    ("run_config.py", "self.data"): ("batch_size target", "a data set's own key, which is called like one of ours"),
    ("run_config.py", "self.raw"): ("accelerator", "the module that types configs: the model behind the accelerator"),
    ("run_config.py", "config"): ("version", "the module that types configs: a version's identity"),
    ("records/plan.py", "setting.axes"): ("version", "swept keys with their values"),
    ("features/claims/command.py", "Literal"): ("claims", "the type of a word"),
    ("config/site.py", "value"): ("kinds", "the module that parses: what kinds of node inherit"),
    ("driver/snakemake_process.py", "found"): ("name", "a group of a pattern"),
    ("driver/snakefile_functions.py", "config"): ("name", "Snakemake's own config"),
    ("features/grid_engine/site.py", "value"): ("name", "an element of Grid Engine's XML"),
    ("features/grid_engine/site.py", "host"): ("name", "an element of Grid Engine's XML"),
    ("features/grid_engine/site.py", "queue"): ("name", "an element of Grid Engine's XML"),
    ("features/grid_engine/scheduler.py", "row"): ("name queue", "a line of qstat"),
    ("schedulers/slurm.py", "asked"): (
        "constraint nodes qos",
        "resources of a job, as Snakemake calls them",
    ),
    ("devices/datasheets.py", "row"): ("devices name source", "a row of the table of boards"),
    ("measure/flops.py", "known[key]"): ("size", "a ceiling in its file"),
    ("measure/batch_size.py", "source"): ("batch_size", "an attribute of a user's loader"),
    ("planning/checked_grid.py", "master"): ("accelerator name", "what Hydra composed, before it is checked"),
    ("planning/checked_grid.py", "steering"): ("name", "what Hydra composed, before it is checked"),
    ("config/hydra.py", "master"): ("limits.max_settings", "what Hydra composed, before it is checked"),
    ("config/grid.py", "config"): ("accelerator", "what Hydra composed, before it is checked"),
    ("config/grid.py", "science"): ("batch_size", "what Hydra composed, before it is checked"),
    ("config/grid.py", "values"): ("accelerator", "overrides of the grid, before there is a config"),
    ("driver/progress_display.py", "composer.compose([*kept, f'{MEASURE_GROUP}={name}'])"): (
        "measure",
        "what Hydra composed, before it is checked",
    ),
    ("planning/plan.py", "grid.axes"): ("version", "swept keys"),
    ("planning/config_validation.py", "config"): (
        "measure",
        "the module that parses: it looks for keys that nobody knows",
    ),
    ("planning/config_validation.py", "site"): ("kinds", "the module that parses: a place before it is checked"),
    ("planning/config_validation.py", "values"): (
        "analysis block limits prices repeats repeats_most report",
        "the module that parses",
    ),
    ("planning/config_validation.py", "config.data"): (
        "batch_size",
        "keys of a data set, none of which may be called like ours",
    ),
    ("features/ab/planning.py", "point.axes"): ("version", "swept keys"),
    ("features/ab/planning.py", "point.config.raw"): (
        "version",
        "keys of the user's own, none of which may be called like the axis",
    ),
    ("features/projection/fit.py", "row"): ("model", "a row of the published models"),
    ("features/projection/scaling.py", "row"): ("devices", "a row of the published scaling"),
    ("worker/loops/strategies.py", "settings"): ("accelerator precision", "arguments of Lightning's Trainer"),
    ("worker/loops/raw.py", "found"): ("optimizer", "what a module's configure_optimizers returned"),
    ("worker/loops/raw.py", "settings"): ("scheduler", "a schedule as Lightning takes it"),
    ("worker/measurement.py", "rank"): ("device", "what a rank tells of its device"),
    ("worker/rank_setup.py", "found"): ("name", "a version's folders, in a variable of the environment"),
    ("report/figures/drift.py", "row"): ("block rate", "a row of a chart"),
    ("features/ladder/report.py", "row"): ("name", "a row of a chart"),
    ("report/figures/memory.py", "setting.axes"): ("batch_size", "swept keys with their values"),
    ("report/figures/rate.py", "best"): ("batch_size", "a row of a chart"),
    ("report/figures/rate.py", "setting.axes"): ("batch_size", "swept keys with their values"),
    ("report/figures/rate.py", "row"): ("rate", "a row of a chart"),
    ("report/figures/scaling.py", "row"): ("devices kinds", "a row of a chart"),
    ("report/figures/steps.py", "row"): ("setting", "a row of a chart"),
    ("report/figures/tradeoff.py", "rows[0]"): ("unit", "a row of a chart"),
    ("features/imports/readers.py", "match"): (
        "device devices precision task",
        "parts of names in the tables of others",
    ),
    ("features/imports/readers.py", "row"): ("model", "a row of timm's table"),
    ("features/boosting/boosters.py", "given"): ("device", "arguments of a library's class"),
    ("features/boosting/boosters.py", "named"): ("device", "arguments of a library's class"),
    ("features/boosting/boosters.py", "json.loads(booster.save_config())['learner']['generic_param']"): (
        "device",
        "XGBoost's own config",
    ),
    ("features/boosting/boosters.py", "self._parameters"): ("device", "XGBoost's parameters"),
    ("workloads/instantiate.py", "target_parameters(node)"): ("batch_size", "arguments of a user's class"),
    ("workloads/instantiate.py", "data.hparams"): ("batch_size", "hyperparameters of a data module"),
    ("workloads/instantiate.py", "parameters"): ("batch_size", "arguments of a user's class"),
    ("workloads/instantiate.py", "node"): ("batch_size", "arguments of a user's class"),
    ("workloads/datasets.py", "strings"): ("data", "a pickled batch of CIFAR-10"),
}
"""(file, what is read) -> the keys that are read there by name, and why it is no config, or why it reads one so."""

METHODS = ("get", "pop", "setdefault")
"""The methods of a mapping that read the key that is their first argument."""

FUNCTIONS = ("looked_up", "getattr", "select")
"""The functions that read the key that is their second argument from their first; `select` is OmegaConf's."""


class Read(NamedTuple):
    """A key that is read by its name as text: `RECEIVER["KEY"]`, `RECEIVER.get("KEY")`, or `"KEY" in RECEIVER`."""

    receiver: str
    key: str
    line: int


def constants_in(tree: ast.Module) -> dict[str, str]:
    """Return the text of each constant that a module assigns."""
    found = {}
    for node in tree.body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            found |= {target.id: value.value for target in targets if isinstance(target, ast.Name)}
    return found


def string_reads(tree: ast.Module, shared: Mapping[str, str]) -> Iterator[Read]:
    """Yield every read of a key of ours by its text, or by a constant: one of this module, or a `shared` one."""
    constants = {**shared, **constants_in(tree)}
    for node in ast.walk(tree):
        for receiver, written in _receivers_and_keys(node):
            name = written.attr if isinstance(written, ast.Attribute) else getattr(written, "id", "")
            key = str(written.value) if isinstance(written, ast.Constant) else constants.get(name, "")
            if key.split(".")[0] in OURS:
                yield Read(ast.unparse(receiver), key, written.lineno)


def _receivers_and_keys(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    match node:
        case ast.Subscript(value=receiver, slice=key, ctx=ast.Load()):
            yield receiver, key
        case ast.Compare(left=key, ops=[ast.In() | ast.NotIn()], comparators=[receiver]):
            yield receiver, key
        case ast.Call(func=ast.Attribute(value=receiver, attr=name), args=[key, *_]) if name in METHODS:
            yield receiver, key
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=[receiver, key, *_]) if name in FUNCTIONS:
            yield receiver, key
        case ast.Match(subject=subject):
            patterns = (each for case in node.cases for each in ast.walk(case.pattern))
            yield from ((subject, key) for each in patterns if isinstance(each, ast.MatchMapping) for key in each.keys)


def reads_of_the_source() -> list[tuple[str, Read]]:
    trees = {path.relative_to(SOURCE).as_posix(): ast.parse(path.read_bytes()) for path in sorted(SOURCE.rglob("*.py"))}
    every = [constants_in(tree) for tree in trees.values()]
    shared = {name: text for found in every for name, text in found.items() if not name.startswith("_")}
    return [(file, read) for file, tree in trees.items() for read in string_reads(tree, shared)]


EXPECTED = {(*where, key) for where, (keys, _) in NOT_A_CONFIG.items() for key in keys.split()}


def test_no_module_but_the_one_that_parses_reads_a_key_of_ours_by_its_name_as_text() -> None:
    unexpected = [(file, *read) for file, read in reads_of_the_source() if (file, *read[:2]) not in EXPECTED]
    assert unexpected == [], "read it as an attribute of SettingConfig, or say in NOT_A_CONFIG what it is instead"


def test_every_exception_still_stands_for_something() -> None:
    assert {(file, *read[:2]) for file, read in reads_of_the_source()} >= EXPECTED


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ('config["devices"] * 2', ("config", "devices")),
        ('spec.config["measure"].get("scenario")', ("spec.config['measure']", "scenario")),
        ('cfg.get("num_nodes", 1)', ("cfg", "num_nodes")),
        ('looked_up(config.raw, "measure.max_steps")', ("config.raw", "measure.max_steps")),
        ('settings["repeats"]', ("settings", "repeats")),
        ("config.raw.get(VERSION)", ("config.raw", "version")),
        ('"fake_loader" in config["measure"]', ("config['measure']", "fake_loader")),
        ('"num_nodes" not in cfg', ("cfg", "num_nodes")),
        ("VERSION in config.raw", ("config.raw", "version")),
        ('config.setdefault("threads", 1)', ("config", "threads")),
        ('site.get("inventory")', ("site", "inventory")),
        ('site["slurm"]["max_jobs"]', ("site['slurm']", "max_jobs")),
        ('kind["grid_engine"]["gpu_resource"]', ("kind['grid_engine']", "gpu_resource")),
        ('steering["block"]["size"]', ("steering['block']", "size")),
        ('prices["purchase"][name]["lifetime_years"]', ("prices['purchase'][name]", "lifetime_years")),
        ('fleet.get("tolerance")', ("fleet", "tolerance")),
        ('getattr(config, "devices")', ("config", "devices")),
        ('lookup.looked_up(config.raw, "measure.target")', ("config.raw", "measure.target")),
        ('OmegaConf.select(config, "accelerator")', ("config", "accelerator")),
        ('_GROUP = "measure"\nraw[_GROUP]', ("raw", "measure")),
        ('_GROUP: Final = "measure"\nraw[_GROUP]', ("raw", "measure")),
        ("raw[versions.VERSION]", ("raw", "version")),
        ('match raw:\n    case {"measure": {"target": found}}: pass', ("raw", "target")),
        ('config.optimizer.get("lr_scaling")', ("config.optimizer", "lr_scaling")),
    ],
)
def test_a_read_by_name_is_found_however_it_is_written(source: str, found: tuple[str, str]) -> None:
    assert found in [(read.receiver, read.key) for read in string_reads(ast.parse(source), {"VERSION": "version"})]


def test_attributes_and_keys_of_the_users_own_are_no_such_read() -> None:
    assert (
        list(string_reads(ast.parse('config.devices; config.model["width"]; found["run"] = 1; x["devices"] = 2'), {}))
        == []
    )
    assert (
        list(string_reads(ast.parse('"width" in config.model; config.devices in counts; 1 < config.devices < 3'), {}))
        == []
    )
