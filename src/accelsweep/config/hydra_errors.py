"""Turn Hydra's error about a wrong override into one message: the key, the nearest right one, the file to look in."""

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
"""Places where each key has its default in a file or is an argument of the Trainer, and no other key is allowed."""


def explain(
    error: BaseException, lines: Sequence[str], loader: ConfigLoaderImpl, folders: Sequence[Path]
) -> InputError:
    """Return the InputError that explains `error`, raised while composing `lines`, to the user."""
    if isinstance(error, OverrideParseException):
        return _unreadable(error)
    if isinstance(error, MissingConfigException):
        return _missing_file(error, folders)
    if isinstance(error, YAMLError):
        mark = getattr(error, "problem_mark", None)
        where = f"{mark.name}, line {mark.line + 1}" if mark else "a config file"
        return InputError(f"{where}: not valid YAML: {getattr(error, 'problem', None) or _one_line(error)}")
    culprit = _culprit(error, lines, loader)
    if culprit is None or culprit.is_hydra_override():
        what = f"'{lines[0]}'" if len(lines) == 1 else "the config cannot be composed"
        return InputError(f"{what}: {_root_cause(error)}")
    return _wrong_override(error, culprit, lines, loader, folders)


def _known(lines: Sequence[str], loader: ConfigLoaderImpl) -> tuple[list[str], dict[str, Any]]:
    """Return the dotted keys and the group choices of the config that the group overrides in `lines` compose."""
    groups = [line for line in lines if loader.repository.group_exists(line.partition("=")[0].lstrip("+"))]
    for attempt in (groups, []):
        try:
            config = loader.load_configuration("config", attempt, run_mode=RunMode.MULTIRUN, from_shell=False)
        except (HydraException, OmegaConfBaseException, YAMLError, ValueError, AssertionError):
            continue
        choices = dict(config.hydra.runtime.choices)
        own = [str(key) for key in config if key != "hydra"]
        tree = OmegaConf.to_container(OmegaConf.masked_copy(config, own), resolve=False)
        return list(dotted_keys(tree)), choices
    return [], {}


def dotted_keys(tree: Any, prefix: str = "") -> Iterator[str]:
    """Yield the dotted name of every key in a nested mapping, parents before their children."""
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield f"{prefix}{key}"
            yield from dotted_keys(value, f"{prefix}{key}.")


def suggestion(key: str, known: Sequence[str]) -> str:
    """Return ` (did you mean 'x'?)` for the known key closest to `key`; a key's last part alone finds it, too."""
    if found := nearest(key, known):
        return found
    ends = {candidate.rpartition(".")[2]: candidate for candidate in reversed(known)}
    close = difflib.get_close_matches(key.rpartition(".")[2], list(ends), n=1, cutoff=0.8)
    return f" (did you mean '{ends[close[0]]}'?)" if close else ""


def defining_file(key: str, folders: Sequence[Path], choices: Mapping[str, Any]) -> str:
    """Return the config file that sets `key` or the nearest parent of it; the folder to look in if no file does.

    The experiment comes first; `model.width` is then looked for in the file that the group `model` has chosen, and
    last in the top-level files.
    """
    head = key.partition(".")[0]
    experiment = [folder / "experiment" / f"{choices.get('experiment')}.yaml" for folder in folders]
    chosen = [folder / head / f"{choices.get(head)}.yaml" for folder in folders]
    top = [path for folder in folders for path in sorted(folder.glob("*.yaml"))]
    for path in experiment:
        if _mentions(path, rf"^\s*\+*({re.escape(key)}|{re.escape(head)})\s*:"):
            return str(path)
    if found := next((path for path in chosen if path.is_file()), None):
        return str(found)
    for path in top:
        if _mentions(path, rf"^{re.escape(head)}\s*:"):
            return str(path)
    groups = [folder / head for folder in folders if (folder / head).is_dir()]
    return str((groups or list(folders))[0])


def _mentions(path: Path, pattern: str) -> bool:
    if not path.is_file():
        return False
    return re.search(pattern, path.read_text(encoding="utf-8", errors="replace"), re.MULTILINE) is not None


def _unreadable(error: OverrideParseException) -> InputError:
    reason = _one_line(error, skip="Error parsing override")
    if "while evaluating" in reason:
        return InputError(f"{error.override!r}: {reason.partition(': ')[2]}")
    key, equals, _ = error.override.partition("=")
    if not (key and equals):
        return InputError(f"cannot read {error.override!r}: an override is KEY=VALUE")
    if error.override.rstrip().endswith(","):
        return InputError(
            f"cannot read the override {error.override!r}: a space ends the value: write several values without any, "
            f"{key}=32,64"
        )
    return InputError(
        f"cannot read the override {error.override!r}: {reason}. "
        "Quote a value that holds commas, braces or spaces: key='\"a, b\"'"
    )


def _missing_file(error: MissingConfigException, folders: Sequence[Path]) -> InputError:
    group, _, choice = (error.missing_cfg_file or "").rpartition("/")
    where = " and ".join(str(folder / group) for folder in folders if (folder / group).is_dir())
    if not group or not error.options:
        return InputError(f"{_one_line(error)} (looked in {' and '.join(map(str, folders))})")
    if group == "hydra/sweeper":
        return InputError(f"{group}={choice}: only Hydra's own sweeper can be planned; remove this override")
    return InputError(
        f"{group}={choice}: the config group '{group}' has no '{choice}'{nearest(choice, error.options)}. "
        f"It has: {', '.join(error.options)}. Look in {where}"
    )


def _culprit(error: BaseException, lines: Sequence[str], loader: ConfigLoaderImpl) -> Override | None:
    text = _one_line(error, whole=True)
    overrides = OverridesParser.create().parse_overrides(list(lines))
    for override in overrides:
        if f"'{override.key_or_group}'" in text or f"'{override.get_key_element()}'" in text:
            return override
    for override in overrides:
        named = isinstance(override.value(), str) and not override.is_add()
        no_choice = loader.repository.group_exists(override.key_or_group) and not named
        if no_choice or (override.input_line and override.input_line in text):
            return override
    return None


def _wrong_override(
    error: BaseException, culprit: Override, lines: Sequence[str], loader: ConfigLoaderImpl, folders: Sequence[Path]
) -> InputError:
    key, line = culprit.key_or_group, culprit.input_line or ""
    known, choices = _known(lines, loader)
    groups = loader.get_group_options("", results_filter=ObjectType.GROUP)
    trainers = [f"trainer.{name}" for name in sorted(trainer_arguments())] if key.startswith("trainer.") else []
    similar = suggestion(
        key, list(dict.fromkeys([*known, *(group for group in groups if group != "hydra"), *trainers]))
    )
    near = re.search(r"'(.+)'", similar)
    where = defining_file(near[1] if near else key, folders, choices)
    if "Multiple values for" in str(error) or (culprit.is_add() and "already at" in str(error)):
        return InputError(f"{line}: '{key}' is there already ({where}); write {line.lstrip('+')} to change it")
    if loader.repository.group_exists(key) and "defaults list" in str(error):
        return InputError(f"{line}: the config group '{key}' is not in the defaults list; add it with +{key}=NAME")
    if loader.repository.group_exists(key):
        options = ", ".join(loader.get_group_options(key))
        return InputError(f"{line}: '{key}' is a config group and takes the name of one of its files: {options}")
    if culprit.is_delete() and key not in known:
        return InputError(f"{line}: there is no '{key}' to delete{similar}; look in {where}")
    if key in known and isinstance(culprit.value(), dict):
        return InputError(f"{line}: {_root_cause(error)}; keys are added to '{key}' with ++{line}, see {where}")
    if key in known:
        return InputError(f"{line}: {_root_cause(error)}; '{key}' is set in {where}")
    place = trainer_argument_hint(key.removeprefix("trainer."), line.partition("=")[2])
    if place is not None and f"trainer.{key}" not in known:
        return InputError(f"unknown key '{key}' in '{line}'. {place}")
    closed = key.startswith(_CLOSED) or culprit.is_add() or culprit.is_force_add()
    own = "" if closed else f". A key of your own is added with +{line}"
    return InputError(f"unknown key '{key}' in '{line}'{similar}; look in {where}{own}")


def _root_cause(error: BaseException) -> str:
    while error.__cause__ is not None:
        error = error.__cause__
    return _one_line(error)


def _one_line(error: BaseException, skip: str = "\0", *, whole: bool = False) -> str:
    text = [part.strip() for part in str(error).splitlines() if part.strip()]
    kept = [part for part in text if not part.startswith((skip, "See https", "full_key", "object_type", "^"))]
    return " ".join(kept if whole else kept[:2]) or type(error).__name__
