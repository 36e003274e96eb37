"""Composes the config of the user's project, with the project's own Hydra or LightningCLI, plugins and resolvers.

`python -m accelsweep.worker.project_config KIND COMMAND...` runs the script up to the point where it would compose its
config. It then reads requests from stdin, one JSON list per line of arguments and of values that resolvers shall return
(`kept_values`), and answers each with one line of JSON: `{"config": ...}` with the composed config, the choices of its
config groups and what its resolvers return today, or `{"error": ...}`. Before any request, it writes one line: `{}`
once it is ready, or the error that the script raised.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import traceback
from collections.abc import Callable
from contextlib import redirect_stdout, suppress
from pathlib import Path
from typing import Any, NoReturn, TextIO

from accelsweep.run_config import PER_RUN
from accelsweep.worker.kept_values import KeptValues
from accelsweep.worker.script import ErrorOutput, run_script

_STANDARD_LIBRARY = str(Path(os.__file__).parent)

Compose = Callable[[list[str], dict[str, Any]], Any]


class _Ready(BaseException):
    """Stops the script at the point where it would compose its config."""

    def __init__(self, compose: Compose) -> None:
        super().__init__()
        self.compose = compose


def main() -> None:
    """Serve requests until stdin ends."""
    kind, *command = sys.argv[1:]
    answers = _claim_stdout()
    gc.disable()  # looking for garbage takes a sixth of the time of the script's imports, and finds none
    sys.stderr = errors = ErrorOutput(sys.stderr)
    try:
        compose = {"hydra": _hydra, "lightning_cli": _lightning_cli}[kind](command)
    except BaseException as error:  # noqa: BLE001  whatever the user's script raises is the answer
        _answer(answers, {"error": _message(error, errors), "where": _location(error)})
        traceback.print_exception(error)
        sys.exit(1)
    gc.freeze()
    gc.enable()
    _answer(answers, {})
    for line in sys.stdin:
        _answer(answers, _composed(compose, errors, *json.loads(line)))


def _composed(compose: Compose, errors: ErrorOutput, arguments: list[str], kept: dict[str, Any]) -> dict[str, Any]:
    try:
        return {"config": compose(arguments, kept)}
    except BaseException as error:  # noqa: BLE001  resolvers and plugins are the user's code
        answer = {"error": _message(error, errors), "where": None}
        traceback.print_exception(error)
        return answer


def _claim_stdout() -> TextIO:
    """Return a stream for the answers, and redirect everything that the script prints to stderr."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return answers


def _answer(answers: TextIO, answer: dict[str, Any]) -> None:
    answers.write(json.dumps(answer, default=str) + "\n")
    answers.flush()


def _message(error: BaseException, errors: ErrorOutput) -> str:
    if isinstance(error, SystemExit):
        return f"it ended with sys.exit({error.code!r}) before it read its config{errors.quoted()}"
    lines: list[str] = []
    link: BaseException | None = error
    while link is not None:
        lines.append(f"{type(link).__name__}: {link}".strip())
        link = link.__cause__
    return lines[-1]


def _location(error: BaseException) -> str | None:
    """Return the file and line of the innermost call in the user's code."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        foreign = ("<", _STANDARD_LIBRARY, __file__)
        if "-packages/" not in frame.filename and not frame.filename.startswith(foreign):
            return f"{frame.filename}, line {frame.lineno}"
    return None


def _stopped(command: list[str]) -> Compose:
    try:
        run_script(command)
    except _Ready as ready:
        return ready.compose
    raise RuntimeError("it ended before it read its config")


# Hydra


def _hydra(command: list[str]) -> Compose:
    import hydra
    from hydra._internal.utils import get_args_parser

    values = KeptValues({}, composing=True)
    values.install()

    def observed_main(
        config_path: str | None = None, config_name: str | None = None, version_base: Any = None
    ) -> Callable[[Callable[..., Any]], Callable[..., NoReturn]]:
        def decorate(function: Callable[..., Any]) -> Callable[..., NoReturn]:
            def stop(*_: Any, **__: Any) -> NoReturn:
                given = get_args_parser().parse_args(sys.argv[1:])
                path = given.config_path or config_path
                script_folder = Path(function.__code__.co_filename).resolve().parent
                folder = None if path is None else script_folder / path
                extra = Path(given.config_dir) if given.config_dir else None
                name = given.config_name or config_name
                raise _Ready(_hydra_compose(folder, extra, name, version_base, given.overrides, values))

            return stop

        return decorate

    hydra.main = observed_main
    return _stopped(command)


def _hydra_compose(
    folder: Path | None, extra: Path | None, name: str | None, version_base: Any, fixed: list[str], values: KeptValues
) -> Compose:
    from hydra import compose, initialize, initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra
    from omegaconf import OmegaConf

    GlobalHydra.instance().clear()
    options = {"version_base": version_base, "job_name": "accelsweep"}
    if folder is None:
        initialize(config_path=None, **options)
    else:
        initialize_config_dir(str(folder), **options)
    search = [f"hydra.searchpath=[file://{extra.resolve()}]"] if extra else []
    for resolver in ("now", "hydra"):
        OmegaConf.register_new_resolver(resolver, lambda *_: PER_RUN, replace=True)

    def composed(overrides: list[str], kept: dict[str, Any]) -> Any:
        values.kept, values.used = kept, {}
        config = compose(name, [*fixed, *search, *overrides], return_hydra_config=True)
        choices = dict(config.hydra.runtime.choices)
        keys: list[Any] = [key for key in config if key != "hydra"]
        OmegaConf.set_readonly(config, False)
        resolved = _resolved(OmegaConf.masked_copy(config, keys))
        return {"config": resolved, "choices": choices, "values": values.used}

    return composed


def _resolved(config: Any) -> Any:
    """Return a config as plain data. Values that cannot be resolved outside a run are kept as written."""
    from omegaconf import DictConfig, ListConfig, OmegaConf

    if isinstance(config, DictConfig):
        if config._is_none() or config._is_missing():
            return None if config._is_none() else "???"
        return {str(key): _item(config, key) for key in config}
    if isinstance(config, ListConfig):
        if config._is_none() or config._is_missing():
            return None if config._is_none() else "???"
        return [_item(config, index) for index in range(len(config))]
    return OmegaConf.to_container(config) if OmegaConf.is_config(config) else config


def _item(config: Any, key: Any) -> Any:
    from omegaconf import OmegaConf

    if OmegaConf.is_missing(config, key):
        return "???"
    with suppress(Exception):
        return _plain(_resolved(config[key]))
    unresolved: Any = OmegaConf.to_container(config, resolve=False)
    return _plain(unresolved[key])


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, bool | int | float | str | dict | list) else str(value)


# LightningCLI


def _lightning_cli(command: list[str]) -> Compose:
    """Compose with `--print_config`, which LightningCLI handles before it builds any objects."""

    def composed(arguments: list[str], _: dict[str, Any]) -> Any:
        import io

        import yaml

        printed = io.StringIO()
        with redirect_stdout(printed):
            try:
                run_script([*command, *arguments, "--print_config"])
            except SystemExit as error:
                if error.code:
                    raise
        config = yaml.safe_load(printed.getvalue())
        if not isinstance(config, dict):
            raise RuntimeError(f"--print_config printed no config: {printed.getvalue()[:200]!r}")
        return {"config": config, "choices": {}, "values": {}}

    composed([], {})
    return composed


if __name__ == "__main__":
    main()
