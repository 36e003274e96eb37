"""Generates the page about JSON output: the keys that each command prints, from the models that define them."""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from enum import Enum
from typing import Annotated, Any, Literal, TypeGuard, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from tables import cell, code, plain, table

from accelsweep.driver.json_output import all_answers
from accelsweep.records.estimates import Estimate
from accelsweep.results import Doubt
from accelsweep.schedulers.protocol import Job, Resources

HEAD = """# JSON output

For scripts and dashboards, these commands take `--json`: COMMANDS.

* Standard output contains one JSON object and nothing else. It is written completely or, after Ctrl-C, not at all.
* Messages are written to standard error. An error is a single line there, and standard output is then empty.
* [Exit codes](errors.md#exit-codes) are the same as without `--json`.
* Each object begins with `accelsweep` (its kind), `format` and `version`. Within a format, keys are only added.
* Keys have the same names as in records and in `findings.json`. Times are UTC in ISO 8601. Unknown values are `null`.

```sh
accelsweep status --json | jq -r '.sweeps[] | [.sweep, .remaining, .report] | @tsv'
accelsweep runs quickstart --json | jq '[.runs[] | select(.doubts == []).rate | numbers] | add / length'
```

"""
ELSEWHERE = {
    Doubt: "A reason to distrust a number. `code` is stable, and `remedy` suggests what to do.",
    Job: "One of the sweep's jobs in a cluster's queue. `reason` is why it waits; `nodes` is empty until it runs.",
    Estimate: "A value with its interval. Without one, `low` and `high` are null, and `reason` explains why.",
    Resources: "The resources that a block needs on a machine or a cluster.",
}
"""Descriptions of parts whose own docstrings are written for readers of the code."""

_KINDS = {str: "text", int: "whole number", float: "number", bool: "true or false", Any: "anything", type(None): "null"}


def page() -> str:
    """Return the page, in Markdown."""
    parts = [HEAD.replace("COMMANDS", ", ".join(code(answer.kind) for answer in all_answers()))]
    for answer in all_answers():
        said = (answer.__doc__ or "").replace("\n", " ")
        parts.append(f"## {answer.kind}\n\n{said} Format {answer.format}.\n\n{_keys(answer)}\n")
    parts.append("## Parts\n\n")
    for part in dict.fromkeys(inner for answer in all_answers() for inner in _parts(answer)):
        said = ELSEWHERE.get(part, (part.__doc__ or "").replace("\n", " "))
        parts.append(f"### {part.__name__}\n\n{said}\n\n{_keys(part)}\n")
    return "".join(parts)


def _keys(part: type) -> str:
    rows = [[code(name), cell(_kind(kind)), plain(description)] for name, kind, description in _fields(part)]
    return table(["key", "value", "meaning"], rows)


def _fields(part: type) -> Iterator[tuple[str, Any, str]]:
    """Yield the name, the type and the description of each field of a model or a dataclass."""
    if issubclass(part, BaseModel):
        for name, field in part.model_fields.items():
            yield name, field.annotation, field.description or ""
    else:
        for name, kind in get_type_hints(part, include_extras=True).items():
            annotated, *metadata = get_args(kind) if get_origin(kind) is Annotated else (kind,)
            yield name, annotated, "".join(each.description or "" for each in metadata if isinstance(each, FieldInfo))


def _kind(kind: Any) -> str:
    """Return the type of a value in words, with links to parts."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return " or ".join(map(_kind, inner))
    if origin is Literal:
        return ", ".join(code(str(one)) for one in inner)
    if origin is tuple:
        return f"list of {_kind(inner[0])}"
    if origin in (dict, Mapping):
        return f"object: {_kind(inner[0])} to {_kind(inner[1])}"
    if isinstance(kind, type) and issubclass(kind, Enum):
        return ", ".join(code(str(one.value)) for one in kind)
    if _is_part(kind):
        return f"[{kind.__name__}](#{kind.__name__.lower()})"
    return _KINDS[kind]


def _is_part(kind: Any) -> TypeGuard[type]:
    return isinstance(kind, type) and (issubclass(kind, BaseModel) or is_dataclass(kind))


def _parts(whole: type) -> Iterator[type]:
    """Yield the models and dataclasses that `whole` contains, at any depth."""
    for _, kind, _ in _fields(whole):
        for part in _parts_in(kind):
            yield part
            yield from _parts(part)


def _parts_in(kind: Any) -> Iterator[type]:
    if _is_part(kind):
        yield kind
    for inner in get_args(kind):
        yield from _parts_in(inner)
