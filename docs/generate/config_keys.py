"""Generates the page about config keys: defaults and comments from `conf/`, allowed values from the models."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from meanings import FURTHER, OURS, WORDS, of_name
from pydantic import BaseModel
from sources import ROOT
from tables import code, plain, table

from accelsweep import registry
from accelsweep.config.prices import Prices
from accelsweep.config.schema import MODELS
from accelsweep.config.site import Site
from accelsweep.config.sweep_options import Analysis, BlockOptions, Limits, Options
from accelsweep.features.serving.options import Serving
from accelsweep.run_config import Measure, SettingConfig

CONF = ROOT / "conf"
CHECKED: tuple[tuple[str, type[BaseModel]], ...] = (
    ("", MODELS[SettingConfig]),
    ("", Options),
    ("measure", MODELS[Measure]),
    ("serving", Serving),
    ("block", BlockOptions),
    ("limits", Limits),
    ("analysis", Analysis),
    ("site", Site),
    ("prices", Prices),
    *((keys.group, registry.load(keys.model)) for feature in registry.features() for keys in feature.config_keys),
    *((f"site.{scheduler.name}", registry.load(scheduler.options)) for scheduler in registry.schedulers()),
)
"""The config path under which a model's keys are found, and the model that validates them."""

HEAD = """# Config keys

Every key in every file in `conf/`, with its default. `accelsweep run ... --cfg job` prints the config of a sweep.
[Sweeping](../config.md) explains how files and the command line are combined.

"""
WHOLE = ("experiment", "rung", "dlbench", "workload", "small_set")
"""Groups whose files are overlays: only the files are listed, because their keys belong to other groups."""

_KEY = re.compile(r"^(?P<indent> *)(?P<key>\w[\w. -]*):(?P<value>[^#]*?)(?:\s+#\s*(?P<comment>.*))?$")


class Key(NamedTuple):
    """One key in a file: its dotted name, its default as written, and the comment next to it or above it."""

    name: str
    default: str
    comment: str


def page() -> str:
    """Return the page, in Markdown."""
    parts = [HEAD, "## Top level\n\nThese keys are in `conf/base.yaml`.\n\n", _table(CONF / "base.yaml", "")]
    further = [[code(name), plain(_allowed()[name]), plain(said)] for name, said in FURTHER.items()]
    parts.append("\n## Not in any shipped file\n\n" + table(["key", "allowed", "meaning"], further))
    for folder in sorted(path for path in CONF.iterdir() if path.is_dir()):
        parts.append(f"\n## {folder.name}\n")
        if folder.name in WHOLE:
            rows = [
                [code(str(file.relative_to(folder).with_suffix(""))), plain(_head(file))] for file in _files(folder)
            ]
            parts.append("\n" + table([f"`{folder.name}=`", "meaning"], rows))
            continue
        parts += [f"\n### {folder.name}={file.stem}\n\n{_section(file)}" for file in _files(folder)]
    return "".join(parts)


def _files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.yaml"))


def _escaped(text: str) -> str:
    return re.sub(r"([<>*_\[\]{}])", r"\\\1", text)


def _head(file: Path) -> str:
    """Return the comment at the beginning of a file."""
    lines = []
    for line in file.read_text().splitlines():
        if not line.startswith("#"):
            break
        lines.append(line.lstrip("# ") if not line.startswith("# @package") else "")
    return " ".join(filter(None, lines))


def _section(file: Path) -> str:
    return f"{_escaped(_head(file))}\n\n{_table(file, file.parent.name)}"


def _table(file: Path, where: str) -> str:
    allowed = _allowed()
    rows = []
    for key in keys_of(file):
        name = f"{where}.{key.name}".strip(".")
        if key.name != "defaults":
            said = key.comment or _said_beside(file.parent).get(key.name) or of_name(name)
            rows.append([code(name), code(key.default), plain(allowed.get(name, "")), plain(said)])
    return table(["key", "default", "allowed", "meaning"], rows)


@cache
def _said_beside(folder: Path) -> dict[str, str]:
    """Return the comments that apply to all files in a group: those in `default`, and those in several files."""
    found: dict[str, list[str]] = defaultdict(list)
    for file in _files(folder) if folder != CONF else ():
        for key in keys_of(file):
            if key.comment:
                found[key.name].append(key.comment)
    first = folder / "default.yaml"
    own = {key.name: key.comment for key in keys_of(first) if key.comment} if first.exists() else {}
    return {name: said[0] for name, said in found.items() if len(said) > 1 and len(set(said)) == 1} | own


def known() -> set[str]:
    """Return the keys that accelsweep validates itself and that a user may set."""
    groups = {where for where, _ in CHECKED}
    nodes = {"model", "data", "optimizer", "trainer"}
    planned = "entry"  # written by planning
    return {name for name in _allowed() if name not in (*groups, *nodes, *OURS) and name.partition(".")[0] != planned}


def keys_of(file: Path) -> list[Key]:
    """Return a file's keys with their comments. Raises ValueError if this reader and the YAML parser disagree."""
    found = list(_read(file.read_text().splitlines()))
    expected = set(_names(yaml.safe_load(file.read_text()) or {}))
    if {key.name for key in found} != expected:
        raise ValueError(f"{file}: {sorted({key.name for key in found} ^ expected)} are not read alike")
    return found


def _names(values: Mapping[str, Any], above: str = "") -> Iterator[str]:
    for name, value in values.items():
        yield f"{above}{name}"
        if isinstance(value, Mapping):
            yield from _names(value, f"{above}{name}.")


def _read(lines: list[str]) -> Iterator[Key]:
    above: list[str] = []
    comment: list[str] = []
    body = False
    for line in lines:
        match = _KEY.match(line)
        if match is None or line.lstrip().startswith("- "):
            is_comment = body and line.lstrip().startswith("#")
            comment = [*comment, line.strip("# ")] if is_comment else []
            body = body or not line.startswith("#")
            continue
        body = True
        above[len(match["indent"]) // 2 :] = [match["key"]]
        default = match["value"].strip()
        yield Key(".".join(above), default, match["comment"] or " ".join(comment))
        yield from (Key(f"{'.'.join(above)}.{name}", str(value), "") for name, value in _inline(default))
        comment = []


def _inline(default: str) -> Iterator[tuple[str, Any]]:
    """Yield the keys of a mapping written on a single line."""
    if default.startswith("{"):
        value = yaml.safe_load(default)
        yield from ((name, item) for name in _names(value) for item in [_at(value, name)])


def _at(value: Any, name: str) -> Any:
    for part in name.split("."):
        value = value[part]
    return value


@cache
def _allowed() -> dict[str, str]:
    """Return the allowed values by dotted key, for the keys that accelsweep validates itself."""
    found: dict[str, str] = {}
    for where, model in CHECKED:
        schema = model.model_json_schema()
        for name, field in schema["properties"].items():
            found[f"{where}.{name}".strip(".")] = _kind(field, schema.get("$defs", {}))
            inner = _model(field, schema.get("$defs", {}))
            for below, inside in inner.get("properties", {}).items():
                found[f"{where}.{name}.{below}".strip(".")] = _kind(inside, schema.get("$defs", {}))
    return found | {name: f"{found[name]}, or {also}" for name, also in WORDS.items()}


def _model(field: Mapping[str, Any], others: Mapping[str, Any]) -> Mapping[str, Any]:
    reference = str(field.get("$ref", ""))
    found: Mapping[str, Any] = others.get(reference.rsplit("/", 1)[-1], {})
    return found


def _kind(field: Mapping[str, Any], others: Mapping[str, Any]) -> str:
    if "anyOf" in field:
        return " or ".join(dict.fromkeys(_kind(each, others) for each in field["anyOf"]))
    if "enum" in field or "const" in field:
        return ", ".join(map(str, field.get("enum", [field.get("const")])))
    kinds = {"integer": "whole number", "number": "number", "string": "text", "boolean": "true or false"}
    kinds |= {"array": "list", "object": "mapping", "null": "null"}
    kind = kinds.get(str(field.get("type")), "mapping" if "$ref" in field else "")
    bounds = {"minimum": "from", "exclusiveMinimum": "above", "maximum": "up to", "exclusiveMaximum": "below"}
    limits = [f"{word} {field[key]}" for key, word in bounds.items() if key in field]
    return " ".join([kind, *limits])
