"""Files of ours as somebody hostile, or a bad disk, may leave them: a seeded change of bytes, of JSON, or of YAML."""

from __future__ import annotations

import contextlib
import copy
import csv
import io
import json
import random
from collections.abc import Callable
from typing import Any

import pyarrow
from pyarrow import parquet

from accelsweep.plain_json import canonical_json, sha256_text

VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 2**31, 2**63, 10**30, -0.0, 1e308, 5e-324, float("nan"), float("inf"), "", " ", "nan",
    "\0", "\ud800", "\u202egnp.exe", "\x1b[31mred\x1b[0m", "[bold]x[/bold]", "<script>canary()</script>", "]]>",
    "${oc.env:HOME}", "${now:%Y}", "{{ 7*7 }}", "{% include '/etc/passwd' %}", "../../../etc/passwd", "/etc/passwd",
    "C:\\x", "a/b", "..", "-r0", "x-r99999999999999999999", "os.system", "2026-13-45T99:99:99", "9" * 400,
    "a" * 100_000,
    "é" * 200, [], {}, [[]], {"": None}, {"_target_": "os.system"}, {"a": {"b": {"c": "d"}}}, [0] * 10_000, "not_run",
    "measured", "crashed", "cpu", "cuda", "32-true", 10**4000, {"__class__": "x"}, ["a", 1, None, {"b": []}],
)  # fmt: skip
"""What may stand in the place of any value of a document."""

YAML = (
    "a: &a [x,x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b,*b]\n"
    "d: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c,*c]\n"
    "e: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: [*e,*e,*e,*e,*e,*e,*e,*e,*e,*e]\n",
    "note: &n {again: *n}\n", "note: &n [*n]\n", "note: " + "[" * 400 + "]" * 400 + "\n",
    "note: " + "[" * 20_000 + "]" * 20_000 + "\n", "note: " + "{a: " * 400 + "1" + "}" * 400 + "\n",
    "note: " + "9" * 5000 + "\n", "note: 1e999999\n", "note: .nan\n", "note: -.inf\n", "batch_size: .inf\n",
    "batch_size: 99999999999999999999\n", "batch_size: 1\nbatch_size: 2\n", "note: !!python/object:os.system {}\n",
    "note: !!python/object/apply:os.system ['touch canary']\n", "note: !!python/name:os.system\n",
    "note: !!python/module:canary\n", "note: !!binary aGVsbG8=\n", "note: !!timestamp 2001-12-14\n",
    "note: 2001-12-14\n",
    "note: !!set {a, b}\n", "note: !!omap [a: 1]\n", "note: !unknown x\n", "? [a, b]\n: c\n", "1: 2\n", "null: x\n",
    "true: x\n", "1.5: x\n", "'': x\n", "note: '${note}'\n", "note: '${note.again}'\n", "a: '${b}'\nb: '${a}'\n",
    "note: '${oc.env:HOME}'\n", "note: '${oc.create:{a: 1}}'\n", "note: '${oc.decode:x}'\n",
    "note: '${hydra:runtime}'\n",
    "note: '${" + "a" * 50_000 + "}'\n", "note: '" + "${" * 3000 + "x" + "}" * 3000 + "'\n",
    "model: {_target_: os.system}\n",
    "model:\n  _target_: canary.Model\n", "data: {_target_: subprocess.Popen, args: [touch, canary]}\n",
    "optimizer: {_target_: builtins.exec}\n", "trainer: {callbacks: [{_target_: canary.Callback}]}\n",
    "trainer: {strategy: [x]}\n", "defaults: [x]\n", "defaults: {a: b}\n", "defaults: 7\n",
    "defaults:\n  - experiment: mine\n",
    "defaults:\n  - override /model: ../../../../etc/passwd\n", "defaults:\n  - /model@x: mlp\n", "hydra: 7\n",
    "hydra: {sweeper: {params: 7}}\n", "hydra: {sweeper: {params: {batch_size: 'range(1,10000000000)'}}}\n",
    "hydra: {sweeper: {params: {'': 1}}}\n", "hydra: {sweeper: {params: {batch_size: '1,,2'}}}\n",
    "hydra: {sweeper: {params: {batch_size: {a: 1}}}}\n", "hydra: {job: {env_set: {PATH: x}}}\n",
    "hydra: {searchpath: ['file:///etc', 'pkg://os']}\n", "hydra: {callbacks: {x: {_target_: canary.Callback}}}\n",
    "exclude: 7\n", "exclude: [{when: {batch_size: [[]]}, because: x}]\n", "exclude: [{when: [], because: ''}]\n",
    "baseline: [1]\n", "baseline: {batch_size: {a: b}}\n", "repeats: 1e9\n", "repeats: [1]\n", "limits: x\n",
    "limits: {run_seconds: .nan}\n", "site: {inventory: [{accelerator: cpu, count: -1}]}\n", "site: x\n",
    "prices: {devices: {cuda: .inf}}\n", "report: {claims: [7]}\n", "report: {ladder: 7}\n", "env: {'A=B': x}\n",
    "env: {A: \"\\0\"}\n", "env: [a]\n", "measure: x\n", "measure: {min_steps: true}\n", "seed: -1\n",
    "seed: 2147483648\n",
    "task: [inference]\n", "\u0000", "\ufeffbatch_size: 1\n", "batch_size: \u0661\u0662\n", "b\u0430tch_size: 8\n",
    "%YAML 9.9\n---\na: 1\n", "--- a\n--- b\n", "- a\n- b\n", "just text\n", "\t x: 1\n", "a: b: c\n", "'",
    "a: [1, 2\n",
    "<<: *x\n", "<<: {a: 1}\n", "name: ../../x\n", "name: [x]\n", "model: null\n", "data: []\n", "accelerator: []\n",
    "precision: 16\n", "devices: 1.0\n", "loop: no\n", "name: no\n", "note: 0o17\n", "note: 1_000\n",
    "note: 12:30:45\n",
)  # fmt: skip
"""What a user's config file may hold besides the rest of it."""

SVG = (
    "<script>canary()</script>", "<image href='file:///etc/passwd'/>", "<a href='javascript:canary()'><path/></a>",
    "<foreignObject><iframe src='http://127.0.0.1/canary'/></foreignObject>", "<rect onload='canary()'/>",
    "<style>@import url(http://127.0.0.1/canary)</style>", "<use href='http://127.0.0.1/canary#a'/>", "</svg>",
    "<!DOCTYPE svg [<!ENTITY a SYSTEM 'file:///etc/passwd'>]>&a;", "<?xml-stylesheet href='http://127.0.0.1/'?>", "\0",
    "<!DOCTYPE svg [<!ENTITY a 'aaaaaaaaaa'><!ENTITY b '&a;&a;&a;&a;&a;'><!ENTITY c '&b;&b;&b;&b;'>]>&c;",
    "<g>" * 20_000, "<animate attributeName='href' to='javascript:canary()'/>", "x" * 3_000_000,
)  # fmt: skip
"""What may stand in a picture besides its lines."""


def damaged(content: bytes, chance: random.Random) -> bytes:
    """Return `content` with some bytes cut off, flipped, put in, doubled or replaced."""
    at, until = sorted((chance.randrange(len(content) + 1), chance.randrange(len(content) + 1)))
    flipped = bytearray(content)
    for _ in range(chance.choice((1, 1, 4, 64))):
        if flipped:
            flipped[chance.randrange(len(flipped))] ^= 1 << chance.randrange(8)
    return chance.choice(
        (
            content[:at],
            content[at:],
            content[:at] + content[until:],
            content[:until] + content[at:],
            content[:at] + chance.randbytes(chance.choice((1, 8, 512))) + content[at:],
            bytes(flipped),
            bytes(flipped),
            b"",
            b"\0" * len(content),
            content * 3,
        )
    )


def odd_integers(table: bytes) -> bytes:
    """Return a parquet file with the bit flipped that makes its schema name integers of a size that nobody has."""
    for at in range(len(table) // 2, len(table)):
        found = table[:at] + bytes([table[at] ^ 16]) + table[at + 1 :]
        try:
            parquet.read_schema(io.BytesIO(found))
        except pyarrow.ArrowNotImplementedError:
            return found
        except (OSError, pyarrow.ArrowException, KeyError):
            continue
    raise ValueError("no bit of the table does so")


def changed_json(content: bytes, chance: random.Random) -> bytes:
    """Return a sealed document with one to three of its values changed; its seal fits, or does not.

    Half the documents are sealed anew, so that what they hold gets past the checksum.
    """
    envelope = json.loads(content)
    for _ in range(chance.choice((1, 1, 2, 3))):
        tree = envelope.get("body") if chance.random() < 0.95 else envelope
        chance.choice(_CHANGES)(chance.choice(_containers(tree) or [envelope]), chance)
    if chance.random() < 0.8:
        with contextlib.suppress(ValueError, KeyError, TypeError):
            envelope["sha256"] = sha256_text(canonical_json(envelope["body"]))
    text = json.dumps(envelope)
    if chance.random() < 0.03:
        text = text.replace('"body": {', '"body": {"sweep": "twice", ' + '"deep": ' + "[" * 5000 + "]" * 5000 + ",", 1)
    return text.encode()


def changed_log(content: bytes, chance: random.Random) -> bytes:
    """Return text whose lines end in JSON with one to three of its values changed."""
    lines = [line.partition("{") for line in content.decode().splitlines()]
    for _ in range(chance.choice((1, 1, 2, 3))):
        at = chance.randrange(len(lines))
        before, brace, after = lines[at]
        if brace:
            tree = json.loads(brace + after)
            chance.choice(_CHANGES)(chance.choice(_containers(tree)), chance)
            lines[at] = (before, "", json.dumps(tree)) if chance.random() < 0.2 else (before, "{", json.dumps(tree)[1:])
    return "\n".join("".join(parts) for parts in lines).encode("utf-8", "surrogatepass")


def changed_csv(content: bytes, chance: random.Random) -> bytes:
    """Return a table with one to three of its values replaced, in its head too."""
    rows = list(csv.reader(io.StringIO(content.decode())))
    for _ in range(chance.choice((1, 1, 2, 3))):
        row = chance.choice(rows)
        row[chance.randrange(len(row))] = str(chance.choice(VALUES))
    written = io.StringIO()
    csv.writer(written).writerows(rows)
    return written.getvalue().encode("utf-8", "surrogatepass")


def changed_svg(content: bytes, chance: random.Random) -> bytes:
    """Return a picture with something harmful behind one of its tags, or damaged."""
    ends = [at + 1 for at, byte in enumerate(content) if byte == ord(">")]
    at = chance.choice(ends)
    changed = content[:at] + chance.choice(SVG).encode() + content[at:]
    return damaged(changed, chance) + b"<!-- -->" if chance.random() < 0.3 else changed


def _containers(tree: Any) -> list[Any]:
    found = [tree] if isinstance(tree, dict | list) else []
    children = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ()
    return found + [each for child in children for each in _containers(child)]


def _value(chance: random.Random) -> Any:
    """Return one of the values, of its own: another change may go on inside it."""
    return copy.deepcopy(chance.choice(VALUES))


def _replaced(node: Any, chance: random.Random) -> None:
    if node:
        key = chance.choice(list(node)) if isinstance(node, dict) else chance.randrange(len(node))
        node[key] = _value(chance)


def _removed(node: Any, chance: random.Random) -> None:
    if node:
        node.pop(chance.choice(list(node)) if isinstance(node, dict) else chance.randrange(len(node)))


def _added(node: Any, chance: random.Random) -> None:
    value, word = _value(chance), chance.choice([value for value in VALUES if isinstance(value, str)])
    if isinstance(node, dict):
        node[word] = value
    else:
        node.insert(chance.randrange(len(node) + 1), value)


def _mixed(node: Any, chance: random.Random) -> None:
    if len(node) > 1:
        keys = list(node) if isinstance(node, dict) else list(range(len(node)))
        one, other = chance.sample(keys, 2)
        node[one], node[other] = node[other], node[one]


def _scaled(node: Any, chance: random.Random) -> None:
    keys = list(node) if isinstance(node, dict) else list(range(len(node)))
    numbers = [key for key in keys if isinstance(node[key], int | float) and not isinstance(node[key], bool)]
    if numbers:
        key = chance.choice(numbers)
        node[key] *= chance.choice((-1, 0, 1000, 10**9, 1e-300))


_CHANGES: tuple[Callable[[Any, random.Random], None], ...] = (_replaced, _replaced, _removed, _added, _mixed, _scaled)


def changed_yaml(content: str, chance: random.Random) -> bytes:
    """Return a config file with hostile lines in it, or damaged."""
    lines = content.splitlines(keepends=True)
    for _ in range(chance.choice((1, 1, 1, 2))):
        lines.insert(chance.randrange(len(lines) + 1), chance.choice(YAML))
    text = "".join(lines).encode("utf-8", "surrogatepass")
    return damaged(text, chance) if chance.random() < 0.15 else text
