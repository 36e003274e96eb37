"""Turns Hydra's error for an invalid override into one message with the key, the closest valid key and the file."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from hydra.types import RunMode
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from accelsweep.errors import InputError, nearest
from accelsweep.trainer_arguments import trainer_argument_hint, trainer_arguments

_CLOSED = ("measure.", "limits.", "analysis.", "block.", "trainer.", "data.batch_size")
"""Prefixes under which the user cannot add keys."""


def explain(
    error: BaseException, lines: Sequence[str], loader: ConfigLoaderImpl, folders: Sequence[Path]
) -> InputError:
    """Return an InputError that explains `error`, which was raised while composing `lines`, to the user."""
    if isinstance(error, OverrideParseException):
        return _parse_error(error)
    if isinstance(error, MissingConfigException):
        return _missing_file(error, folders)
    if isinstance(error, YAMLError):
        mark = getattr(error, "problem_mark", None)
        where = f"{mark.name}, line {mark.line + 1}" if mark else "a config file"
        return InputError(f"{where}: not valid YAML: {getattr(error, 'problem', None) or _one_line(error)}")
    override = _offending_override(error, lines, loader)
    if override is None or override.is_hydra_override():
        what = f"'{lines[0]}'" if len(lines) == 1 else "the config cannot be composed"
        return InputError(f"{what}: {_root_cause(error)}")
    return _wrong_override(error, override, lines, loader, folders)


def dotted_keys(tree: Any, prefix: str = "") -> Iterator[str]:
    """Yield the dotted name of every key in a nested mapping, parents before children."""
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield f"{prefix}{key}"
            yield from dotted_keys(value, f"{prefix}{key}.")


def suggestion(key: str, known: Sequence[str]) -> str:
    """Return ` (did you mean 'x'?)` for the known key closest to `key`, or else for one with a similar last part."""
    if hint := nearest(key, known):
        return hint
    by_last_part = {candidate.rpartition(".")[2]: candidate for candidate in reversed(known)}
    close = difflib.get_close_matches(key.rpartition(".")[2], list(by_last_part), n=1, cutoff=0.8)
    return f" (did you mean '{by_last_part[close[0]]}'?)" if close else ""


def defining_file(key: str, folders: Sequence[Path], choices: Mapping[str, Any]) -> str:
    """Return the config file that sets `key` or its closest parent or, if there is none, the relevant folder.

    The search order is the experiment, the chosen file in the key's group (`model` for `model.width`), and the
    top-level files.
    """
    head = key.partition(".")[0]
    for folder in folders:
        experiment = folder / "experiment" / f"{choices.get('experiment')}.yaml"
        if _mentions(experiment, rf"^\s*\+*({re.escape(key)}|{re.escape(head)})\s*:"):
            return str(experiment)
    chosen = [folder / head / f"{choices.get(head)}.yaml" for folder in folders]
    if file := next((path for path in chosen if path.is_file()), None):
        return str(file)
    for path in (path for folder in folders for path in sorted(folder.glob("*.yaml"))):
        if _mentions(path, rf"^{re.escape(head)}\s*:"):
            return str(path)
    groups = [folder / head for folder in folders if (folder / head).is_dir()]
    return str((groups or list(folders))[0])


def _mentions(path: Path, pattern: str) -> bool:
    if not path.is_file():
        return False
    return re.search(pattern, path.read_text(encoding="utf-8", errors="replace"), re.MULTILINE) is not None


def _parse_error(error: OverrideParseException) -> InputError:
    reason = _one_line(error, skip="Error parsing override")
    if "while evaluating" in reason:
        return InputError(f"{error.override!r}: {reason.partition(': ')[2]}")
    key, equals, _ = error.override.partition("=")
    if not (key and equals):
        return InputError(f"cannot read {error.override!r}: an override is KEY=VALUE")
    if error.override.rstrip().endswith(","):
        return InputError(
            f"cannot read the override {error.override!r}: a space ends the value: write several values without "
            f"spaces, as in {key}=32,64"
        )
    return InputError(
        f"cannot read the override {error.override!r}: {reason}. "
        "Quote a value that contains commas, braces or spaces: key='\"a, b\"'"
    )


def _missing_file(error: MissingConfigException, folders: Sequence[Path]) -> InputError:
    group, _, choice = (error.missing_cfg_file or "").rpartition("/")
    if not group or not error.options:
        return InputError(f"{_one_line(error)} (looked in {' and '.join(map(str, folders))})")
    if group == "hydra/sweeper":
        return InputError(f"{group}={choice}: only Hydra's own sweeper can be planned; remove this override")
    where = " and ".join(str(folder / group) for folder in folders if (folder / group).is_dir())
    return InputError(
        f"{group}={choice}: the config group '{group}' has no '{choice}'{nearest(choice, error.options)}. "
        f"It has: {', '.join(error.options)}. Look in {where}"
    )


def _offending_override(error: BaseException, lines: Sequence[str], loader: ConfigLoaderImpl) -> Override | None:
    """Return the override named by the error, else one that selects a nonexistent file or is quoted by the error."""
    text = " ".join(_lines(error))
    overrides = OverridesParser.create().parse_overrides(list(lines))
    for override in overrides:
        if f"'{override.key_or_group}'" in text or f"'{override.get_key_element()}'" in text:
            return override
    for override in overrides:
        names_file = isinstance(override.value(), str) and not override.is_add()
        if loader.repository.group_exists(override.key_or_group) and not names_file:
            return override
        if override.input_line and override.input_line in text:
            return override
    return None


def _wrong_override(
    error: BaseException, override: Override, lines: Sequence[str], loader: ConfigLoaderImpl, folders: Sequence[Path]
) -> InputError:
    key, line = override.key_or_group, override.input_line or ""
    is_group = loader.repository.group_exists(key)
    known, choices = _known_keys(lines, loader)
    groups = [group for group in loader.get_group_options("", results_filter=ObjectType.GROUP) if group != "hydra"]
    arguments = [f"trainer.{name}" for name in sorted(trainer_arguments())] if key.startswith("trainer.") else []
    hint = suggestion(key, list(dict.fromkeys([*known, *groups, *arguments])))
    near = re.search(r"'(.+)'", hint)
    where = defining_file(near[1] if near else key, folders, choices)
    if "Multiple values for" in str(error) or (override.is_add() and "already at" in str(error)):
        return InputError(f"{line}: '{key}' already exists ({where}); write {line.lstrip('+')} to change it")
    if is_group and "defaults list" in str(error):
        return InputError(f"{line}: the config group '{key}' is not in the defaults list; add it with +{key}=NAME")
    if is_group:
        options = ", ".join(loader.get_group_options(key))
        return InputError(f"{line}: '{key}' is a config group and requires the name of one of its files: {options}")
    if override.is_delete() and key not in known:
        return InputError(f"{line}: there is no '{key}' to delete{hint}; look in {where}")
    if key in known and isinstance(override.value(), dict):
        return InputError(f"{line}: {_root_cause(error)}; add keys to '{key}' with ++{line}; see {where}")
    if key in known:
        return InputError(f"{line}: {_root_cause(error)}; '{key}' is set in {where}")
    trainer_hint = trainer_argument_hint(key.removeprefix("trainer."), line.partition("=")[2])
    if trainer_hint is not None and f"trainer.{key}" not in known:
        return InputError(f"unknown key '{key}' in '{line}'. {trainer_hint}")
    if key.startswith("arg."):
        option = f"--{key.removeprefix('arg.')}"
        return InputError(
            f"{line}: accelsweep has no option {option}. If it is an option of a script of yours, run that script "
            f"with --entry 'python SCRIPT'"
        )
    closed = key.startswith(_CLOSED) or override.is_add() or override.is_force_add()
    remedy = "" if closed else f". Add a key of your own with +{line}"
    return InputError(f"unknown key '{key}' in '{line}'{hint}; look in {where}{remedy}")


def _known_keys(lines: Sequence[str], loader: ConfigLoaderImpl) -> tuple[list[str], dict[str, Any]]:
    """Compose only the group choices in `lines`; return the config's dotted keys and group choices."""
    choices = [line for line in lines if loader.repository.group_exists(line.partition("=")[0].lstrip("+"))]
    for attempt in (choices, []):
        try:
            config = loader.load_configuration("config", attempt, run_mode=RunMode.MULTIRUN, from_shell=False)
        except (HydraException, OmegaConfBaseException, YAMLError, ValueError, AssertionError):
            continue
        keys = [str(key) for key in config if key != "hydra"]
        tree = OmegaConf.to_container(OmegaConf.masked_copy(config, keys), resolve=False)
        return list(dotted_keys(tree)), dict(config.hydra.runtime.choices)
    return [], {}


def _root_cause(error: BaseException) -> str:
    while error.__cause__ is not None:
        error = error.__cause__
    return _one_line(error)


def _one_line(error: BaseException, skip: str = "\0") -> str:
    lines = [line for line in _lines(error) if not line.startswith(skip)]
    return " ".join(lines[:2]) or type(error).__name__


def _lines(error: BaseException) -> list[str]:
    """Return the lines of Hydra's message, with links and context stripped."""
    lines = (line.strip() for line in str(error).splitlines())
    return [line for line in lines if line and not line.startswith(("See https", "full_key", "object_type", "^"))]
