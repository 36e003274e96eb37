"""A cell's config is typed where it enters, is written back as it was, and is read by attribute from there on."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, get_args

import pytest
from pydantic import BaseModel, ValidationError
from tiny_sweep import CONFIG, config_with

import accelsweep
from accelsweep import __version__
from accelsweep.base.documents import Document, canonical_json
from accelsweep.core.cells.cell import cell_name
from accelsweep.core.cells.config import CellConfig
from accelsweep.core.cells.versions import VERSION
from accelsweep.core.planned.plans import Block, Manifest, Resources
from accelsweep.core.planned.settings import Fleet, Settings
from accelsweep.core.recorded.record import Record
from accelsweep.core.sites.site import Site

SOURCE = Path(accelsweep.__file__).parent
ROOTS = (CellConfig, Settings, Site, Fleet)
"""The models of all that a user writes: a cell, what steers its sweep, the place of it, and its nodes."""


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


OURS = keys_in(ROOTS)

EXAMPLES = Path(__file__).parents[2] / "reports" / "examples"
KINDS: tuple[tuple[type[Document], str], ...] = (
    (Manifest, "manifest.json"),
    (Record, "runs/*/record.json"),
    (Block, "blocks/b????????????.json"),
)

NOT_A_CONFIG = {
    ("analyse/findings/cells/cost.py", "cost"): "costs of a setting, by their names",
    ("analyse/findings/cells/cost.py", "one"): "costs of a setting, by their names",
    ("analyse/advice/versions.py", "cell.axes"): "swept keys with their values",
    ("analyse/collected/hardware.py", "self.details"): "fields of the hardware in a fingerprint",
    ("analyse/history/points.py", "one.planned.axes"): "swept keys with their values",
    ("commands/line/arguments.py", "ctx.params"): "options of the command line",
    ("answers/checks/machine_now.py", "state"): "the state of a device",
    ("core/cells/cell.py", "axes"): "swept keys",
    ("core/planned/plans.py", "cell.axes"): "swept keys with their values",
    ("core/sites/site.py", "found"): "the module that writes: what it leaves out",
    ("core/sites/site.py", "value"): "the module that parses: what kinds of node inherit",
    ("core/cells/versions.py", "config"): "the module that parses: a version's identity",
    ("core/cells/config.py", "self.raw"): "the module that parses: the model behind the accelerator",
    ("core/cells/config.py", "self.data"): "a data set's own key, which is called like one of ours",
    ("drive/snakemake/workflow.py", "config"): "Snakemake's own config",
    ("engines/grid_engine/draft.py", "each"): "an element of Grid Engine's XML",
    ("engines/grid_engine/draft.py", "host"): "an element of Grid Engine's XML",
    ("engines/grid_engine/draft.py", "queue"): "an element of Grid Engine's XML",
    ("engines/grid_engine/queue.py", "row"): "a line of qstat",
    ("engines/slurm/options.py", "asked"): "resources of a job, as Snakemake calls them",
    ("machine/peaks.py", "row"): "a row of the table of boards",
    ("measure/ceiling.py", "known[key]"): "a ceiling in its file",
    ("plan/cells.py", "master"): "what Hydra composed, before it is checked",
    ("plan/cells.py", "steering"): "what Hydra composed, before it is checked",
    ("plan/grid/expand.py", "science"): "what Hydra composed, before it is checked",
    ("plan/grid/expand.py", "values"): "overrides of the grid, before there is a config",
    ("plan/manifest.py", "grid.axes"): "swept keys",
    ("plan/refusals/check.py", "config"): "the module that parses: it looks for keys that nobody knows",
    ("plan/refusals/check.py", "values"): "the module that parses",
    ("plan/refusals/conflicts.py", "config.data"): "keys of a data set, none of which may be called like ours",
    ("plan/versioned.py", "point.axes"): "swept keys",
    ("plan/versioned.py", "point.config.raw"): "keys of the user's own, none of which may be called like the axis",
    ("project/published.py", "row"): "a row of the published models",
    ("project/scaling.py", "row"): "a row of the published scaling",
    ("rank/loops/fully_sharded.py", "settings"): "arguments of Lightning's Trainer",
    ("rank/loops/raw_loop.py", "found"): "what a module's configure_optimizers returned",
    ("rank/loops/raw_loop.py", "settings"): "a schedule as Lightning takes it",
    ("rank/measuring.py", "rank"): "what a rank tells of its device",
    ("rank/own_tree.py", "found"): "a version's folders, in a variable of the environment",
    ("report/figures/drift.py", "row"): "a row of a chart",
    ("report/figures/ladder.py", "row"): "a row of a chart",
    ("report/figures/memory.py", "cell.axes"): "swept keys with their values",
    ("report/figures/rate.py", "cell.axes"): "swept keys with their values",
    ("report/figures/rate.py", "best"): "a row of a chart",
    ("report/figures/rate.py", "row"): "a row of a chart",
    ("report/figures/scaling.py", "row"): "a row of a chart",
    ("report/figures/steps.py", "row"): "a row of a chart",
    ("report/figures/tradeoff.py", "rows[0]"): "a row of a chart",
    ("state/external/lambda_labs.py", "found"): "parts of a system's name in Lambda's table",
    ("state/external/timm.py", "found"): "parts of the name of a file of timm's",
    ("state/external/timm.py", "row"): "a row of timm's table",
    ("workloads/boosting/booster.py", "given"): "arguments of a library's class",
    ("workloads/boosting/booster.py", "named"): "arguments of a library's class",
    (
        "workloads/boosting/xgboost_trees.py",
        "json.loads(booster.save_config())['learner']['generic_param']",
    ): "XGBoost's own config",
    ("workloads/boosting/xgboost_trees.py", "self._parameters"): "XGBoost's parameters",
    ("workloads/building/build.py", "arguments_of(settings)"): "arguments of a user's class",
    ("workloads/building/build.py", "data.hparams"): "hyperparameters of a data module",
    ("workloads/building/build.py", "parameters"): "arguments of a user's class",
    ("workloads/building/build.py", "settings"): "arguments of a user's class",
    ("workloads/building/optimizer.py", "ours"): "keys of the optimizer, one of which is called like that of `measure`",
    ("workloads/image_files.py", "[value for _, value in stated]"): "a pickled batch of CIFAR-10",
}
"""(file, what is read) -> why it is no config, although the word between its brackets is a key of ours."""


METHODS = ("get", "pop", "setdefault")
"""The methods of a mapping that read a key."""


class Read(NamedTuple):
    """A key that is read by its name as text: `RECEIVER["KEY"]`, `RECEIVER.get("KEY")`, or `"KEY" in RECEIVER`."""

    receiver: str
    key: str
    line: int


def string_reads(source: str) -> Iterator[Read]:
    """Yield every read of a key of ours, from subscripts, `in`, `METHODS` and `looked_up`, or through its constant."""
    for node in ast.walk(ast.parse(source)):
        receiver, key = _receiver_and_key(node)
        if receiver is not None and isinstance(key, ast.Name) and key.id == "VERSION":
            yield Read(ast.unparse(receiver), VERSION, node.lineno)
        elif receiver is not None and isinstance(key, ast.Constant) and str(key.value).split(".")[0] in OURS:
            yield Read(ast.unparse(receiver), str(key.value), node.lineno)


def _receiver_and_key(node: ast.AST) -> tuple[ast.expr | None, ast.expr | None]:
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
        return node.value, node.slice
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], ast.In | ast.NotIn):
        return node.comparators[0], node.left
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in METHODS:
        return node.func.value, next(iter(node.args), None)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "looked_up":
        return node.args[0], node.args[1]
    return None, None


def reads_of_the_source() -> list[tuple[str, Read]]:
    return [
        (path.relative_to(SOURCE).as_posix(), read)
        for path in sorted(SOURCE.rglob("*.py"))
        for read in string_reads(path.read_text(encoding="utf-8"))
    ]


def test_no_module_but_the_one_that_parses_reads_a_key_of_ours_by_its_name_as_text() -> None:
    unexpected = [(file, *read) for file, read in reads_of_the_source() if (file, read.receiver) not in NOT_A_CONFIG]
    assert unexpected == [], "read it as an attribute of CellConfig, or say in NOT_A_CONFIG what it is instead"


def test_every_exception_still_stands_for_something() -> None:
    assert set(NOT_A_CONFIG) == {(file, read.receiver) for file, read in reads_of_the_source()}


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
    ],
)
def test_a_read_by_name_is_found_however_it_is_written(source: str, found: tuple[str, str]) -> None:
    assert found in [(read.receiver, read.key) for read in string_reads(source)]


def test_attributes_and_keys_of_the_users_own_are_no_such_read() -> None:
    assert list(string_reads('config.devices; config.model["width"]; found["run"] = 1; x["devices"] = 2')) == []
    assert list(string_reads('"width" in config.model; config.devices in counts; 1 < config.devices < 3')) == []


def test_a_config_is_written_back_as_it_was_with_keys_of_the_users_own_and_of_other_versions() -> None:
    raw = {**CONFIG, "mine": {"a": [1, 2.0, None]}, "threads": None, "env": {"A": 3}}
    raw["measure"] = {**raw["measure"], "gone_since": True, "min_seconds": 1}
    runs, axes, resources = (), {"c": {}}, Resources()
    block = Block(name="b", sweep="s", order_seed=0, runs=runs, configs={"c": raw}, axes=axes, resources=resources)
    assert canonical_json(block.model_dump(mode="json")["configs"]["c"]) == canonical_json(raw)
    config = block.configs["c"]
    assert (config.env, config.measure.min_seconds) == ({"A": "3"}, 1.0)
    assert cell_name(config.raw) == cell_name(raw)


def test_documents_of_finished_sweeps_are_written_back_byte_for_byte(tmp_path: Path) -> None:
    """The seal of a block or a record is that of its bytes. Only its writer may be another version.

    A manifest is written anew by each plan, with the settings that came later at their defaults.
    """
    sweeps = [folder for folder in EXAMPLES.glob("*/sweeps/*") if folder.is_dir()]
    files = [(kind, path) for kind, at in KINDS for folder in sweeps for path in folder.glob(at)]
    assert len(files) > 20
    for kind, path in files:
        again = tmp_path / "again.json"
        kind.read(path).write(again)
        if kind is Manifest:
            assert kind.read(again) == kind.read(path), path
        else:
            writer = f'"version":"{__version__}",'.encode()
            assert again.read_bytes().replace(writer, b"") == path.read_bytes().replace(writer, b""), path


def test_configs_are_equal_where_what_was_written_is() -> None:
    assert config_with() == config_with()
    assert config_with() != config_with(mine=1)


def test_a_config_of_an_older_version_is_read_with_one_default_each() -> None:
    later = ("num_nodes", "launcher", "threads", "env", "task", "optimizer", "trainer")
    config = CellConfig.model_validate({key: value for key, value in CONFIG.items() if key not in later})
    read = (config.num_nodes, config.launcher, config.threads, config.env, config.task, config.optimizer)
    assert read == (1, "fork", None, {}, "train_throughput", None)
    assert (config.measure.concurrency, config.measure.probe_steps, config.measure.fake_loader) == (1, None, False)
    assert set(config.raw).isdisjoint(later), "nothing is filled in where it is written"


@pytest.mark.parametrize("changes", [{"devices": "two"}, {"devices": 0}, {"accelerator": "tpu"}, {"measure": None}])
def test_what_is_no_config_at_all_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        config_with(**changes)


def test_ranks_and_samples_follow_from_devices_and_nodes() -> None:
    config = config_with(devices=4, num_nodes=2, batch_size=16)
    assert (config.world_size, config.samples_per_step) == (8, 128)
