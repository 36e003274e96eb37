"""Obtains the project's composed config from the user's own Hydra or LightningCLI, in a separate process.

The process uses the project's interpreter and runs the script up to the point where it would compose its config.
Plugins, structured configs and resolvers are therefore the same as in a real run. It is started once per plan.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from accelsweep.errors import InputError
from accelsweep.installation import foreign_command, worker_folder
from accelsweep.planning.entry_point import Project
from accelsweep.planning.interpreter import missing_module_remedy, project_environment


class Composed(NamedTuple):
    """A project's composed config, its config groups' choices, and what its resolvers return today, by their calls.

    `{run}` stands for values that differ between runs, and `{project}` for the project's folder.
    """

    config: dict[str, Any]
    choices: dict[str, Any]
    values: dict[str, Any]


Compositions = dict[tuple[str, str], Composed | InputError]
"""Arguments of a project and kept values, as JSON -> its config, or why it has none."""

PROJECT_FOLDER = "{project}"
"""Stands for the project's folder, so that a setting keeps its name when the project is moved."""


class ProjectConfigs:
    """Composes the config of one project, in a process that is started for the first unknown composition."""

    def __init__(self, project: Project, known: Compositions, resources: contextlib.ExitStack) -> None:
        self._project, self._known, self._resources = project, known, resources
        self._errors: Any = None

    @classmethod
    @contextlib.contextmanager
    def of(cls, project: Project, known: Compositions) -> Iterator[ProjectConfigs | None]:
        """Yield the configs of a project, given those `known` so far; yield None for a script that has no config."""
        if project.entry.kind in ("script", "command"):
            project.check_imports()
            yield None
            return
        with contextlib.ExitStack() as resources:
            yield cls(project, known, resources)

    @cached_property
    def _process(self) -> subprocess.Popen[str]:
        project = self._project
        errors = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115  the stack closes it
        self._errors = self._resources.enter_context(errors)
        temporary = self._resources.enter_context(tempfile.TemporaryDirectory(prefix="accelsweep-"))
        command = [*foreign_command(project.python, "accelsweep.worker.project_config"), project.entry.kind]
        process = self._resources.enter_context(
            subprocess.Popen(
                [*command, *project.entry.command],
                cwd=project.home,
                env=project_environment(str(worker_folder(Path(temporary))), *project.folders),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                text=True,
            )
        )
        self._resources.callback(process.kill)
        try:
            self._read(process)
        except InputError:
            project.check_imports()  # the environment may be the cause
            raise
        return process

    def compose(self, arguments: Sequence[str], kept: Mapping[str, Any]) -> Composed:
        """Return the config for these arguments, in which resolvers return the values in `kept`.

        Raises InputError with the project's own message, also if the script fails before it composes its config.
        """
        key = json.dumps(arguments), json.dumps(kept, sort_keys=True)
        if key not in self._known:
            try:
                process = self._process
                assert process.stdin is not None, "started with a pipe"
                with contextlib.suppress(BrokenPipeError):
                    process.stdin.write(f"[{', '.join(key)}]\n")
                    process.stdin.flush()
                answer = self._read(process)["config"]
                config = _without_folder(answer["config"], str(self._project.home))
                self._known[key] = Composed(config, answer["choices"], answer["values"])
            except InputError as error:
                self._known[key] = error
        result = self._known[key]
        if isinstance(result, InputError):
            raise result
        return result

    def _read(self, process: subprocess.Popen[str]) -> dict[str, Any]:
        assert process.stdout is not None, "started with a pipe"
        line = process.stdout.readline()
        name = self._project.entry.name
        if not line:
            process.wait()
            self._errors.seek(0)
            last = (self._errors.read().strip().splitlines() or ["it printed nothing"])[-1]  # usually the error
            raise InputError(f"{name} exited while its config was being composed: {last}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            where = f" ({answer['where']})" if answer.get("where") else ""
            message = f"{name}: {' '.join(answer['error'].split())}{where}"
            raise InputError(f"{message}{missing_module_remedy(message, self._project.python)}")
        return answer


def _without_folder(value: Any, folder: str) -> Any:
    if isinstance(value, str) and (value == folder or value.startswith(f"{folder}/")):
        return PROJECT_FOLDER + value.removeprefix(folder)
    if isinstance(value, dict):
        return {key: _without_folder(item, folder) for key, item in value.items()}
    return [_without_folder(item, folder) for item in value] if isinstance(value, list) else value
