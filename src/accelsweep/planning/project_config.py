"""Obtains the project's composed config from the user's own Hydra or LightningCLI, in a separate process.

The process uses the project's interpreter and runs the script up to the point where it would compose its config.
Plugins, structured configs and resolvers are therefore the same as in a real run. It is started once per plan, from the
fork server of that interpreter if there is one.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TextIO

from accelsweep.errors import InputError
from accelsweep.fork_client import Fork, ForkedModule, project_server, request_fork
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


class _Streams(NamedTuple):
    """The standard streams of the process that composes."""

    requests: BinaryIO
    answers: TextIO
    errors: TextIO


class ProjectConfigs:
    """Composes the config of one project, in a process that is started for the first unknown composition."""

    def __init__(self, project: Project, known: Compositions, resources: contextlib.ExitStack) -> None:
        self._project, self._known, self._resources = project, known, resources

    @classmethod
    @contextlib.contextmanager
    def of(cls, project: Project, known: Compositions) -> Iterator[ProjectConfigs | None]:
        """Yield the configs of a project, given those `known` so far; yield None for a script that has no config."""
        if project.entry.kind in ("script", "command"):
            yield None
            return
        with contextlib.ExitStack() as resources:
            yield cls(project, known, resources)

    @cached_property
    def _streams(self) -> _Streams:
        """The streams of the process, which is started when they are first needed and has said that it is ready."""
        project, resources = self._project, self._resources
        errors = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115  the stack closes it
        temporary = resources.enter_context(tempfile.TemporaryDirectory(prefix="accelsweep-"))
        environment = project_environment(str(worker_folder(Path(temporary))), *project.folders)
        (theirs_in, ours_out), (ours_in, theirs_out) = os.pipe(), os.pipe()
        streams = _Streams(
            resources.enter_context(os.fdopen(ours_out, "wb", buffering=0)),
            resources.enter_context(os.fdopen(ours_in, encoding="utf-8")),
            resources.enter_context(errors),
        )
        try:
            self._start(environment, (theirs_in, theirs_out, errors.fileno()))
        finally:
            os.close(theirs_in)
            os.close(theirs_out)
        try:
            self._read(streams)
        except InputError:
            project.check_imports()  # the environment may be the cause
            raise
        return streams

    def _start(self, environment: Mapping[str, str], streams: tuple[int, int, int]) -> None:
        project = self._project
        module: ForkedModule = "accelsweep.worker.project_config"
        arguments = [project.entry.kind, *project.entry.command]
        fork, server = None, project_server(project.python, project.package) if project.own_environment else None
        if server is not None or not project.own_environment:
            fork = request_fork(
                module, arguments, server=server, streams=streams, cwd=project.home, environment=environment
            )
        if isinstance(fork, Fork):
            self._resources.enter_context(fork.connection)  # when it is closed, the process is hung up
            return
        command = [*foreign_command(project.python, module), *arguments]
        stdin, stdout, stderr = streams
        process = self._resources.enter_context(
            subprocess.Popen(command, cwd=project.home, env=environment, stdin=stdin, stdout=stdout, stderr=stderr)
        )
        self._resources.callback(process.kill)

    def compose(self, arguments: Sequence[str], kept: Mapping[str, Any]) -> Composed:
        """Return the config for these arguments, in which resolvers return the values in `kept`.

        Raises InputError with the project's own message, also if the script fails before it composes its config.
        """
        key = json.dumps(arguments), json.dumps(kept, sort_keys=True)
        if key not in self._known:
            try:
                streams = self._streams
                with contextlib.suppress(BrokenPipeError):
                    streams.requests.write(f"[{', '.join(key)}]\n".encode())
                answer = self._read(streams)["config"]
                config = _without_folder(answer["config"], str(self._project.home))
                self._known[key] = Composed(config, answer["choices"], answer["values"])
            except InputError as error:
                self._known[key] = error
        result = self._known[key]
        if isinstance(result, InputError):
            raise result
        return result

    def _read(self, streams: _Streams) -> dict[str, Any]:
        line = streams.answers.readline()
        name = self._project.entry.name
        if not line:  # it has ended
            streams.errors.seek(0)
            last = (streams.errors.read().strip().splitlines() or ["it printed nothing"])[-1]  # usually the error
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
