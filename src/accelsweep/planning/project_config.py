"""Obtains the project's composed config from the user's own Hydra or LightningCLI, in a separate process.

The process uses the project's interpreter and runs the script up to the point where it would compose its config.
Plugins, structured configs and resolvers are therefore the same as in a real run. It is started once per plan.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from accelsweep.errors import InputError
from accelsweep.installation import FOREIGN_PROLOGUE, worker_folder
from accelsweep.planning.entry_point import Project


class Composed(NamedTuple):
    """A project's composed config, with `{run}` for values that differ between runs, and its config groups' choices."""

    config: dict[str, Any]
    choices: dict[str, Any]


class ProjectConfigs:
    """A process that composes the config of one project."""

    def __init__(self, project: Project, process: subprocess.Popen[str], errors: Any) -> None:
        self._project, self._process, self._errors = project, process, errors
        self._cache: dict[tuple[str, ...], Composed | InputError] = {}

    @classmethod
    @contextlib.contextmanager
    def of(cls, project: Project) -> Iterator[ProjectConfigs | None]:
        """Start the process for a project; yield None for a script that has no config.

        Raises InputError, with the script's own error, if the script fails before it composes its config.
        """
        if project.entry.kind == "script":
            yield None
            return
        with (
            tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as errors,
            tempfile.TemporaryDirectory(prefix="accelsweep-") as temporary,
        ):
            code = f"{FOREIGN_PROLOGUE}from accelsweep.worker.project_config import main; main()"
            process = subprocess.Popen(
                [project.python, "-c", code, project.entry.kind, *project.entry.command],
                cwd=project.home,
                env=project_environment(str(worker_folder(Path(temporary)))),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
            try:
                configs = cls(project, process, errors)
                configs._read()
                yield configs
            finally:
                process.kill()
                process.wait()
                for stream in (process.stdin, process.stdout):
                    if stream is not None:
                        stream.close()

    def compose(self, arguments: Sequence[str]) -> Composed:
        """Return the config for these arguments. Raises InputError with the project's own message."""
        key = tuple(arguments)
        if key not in self._cache:
            assert self._process.stdin is not None, "started with a pipe"
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.write(json.dumps(list(arguments)) + "\n")
                self._process.stdin.flush()
            try:
                answer = self._read()["config"]
                self._cache[key] = Composed(answer["config"], answer["choices"])
            except InputError as error:
                self._cache[key] = error
        result = self._cache[key]
        if isinstance(result, InputError):
            raise result
        return result

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None, "started with a pipe"
        line = self._process.stdout.readline()
        name = self._project.entry.name
        if not line:
            self._process.wait()
            self._errors.seek(0)
            last = (self._errors.read().strip().splitlines() or ["it printed nothing"])[-1]  # usually the error
            raise InputError(f"{name} exited while its config was being composed: {last}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            where = f" ({answer['where']})" if answer.get("where") else ""
            raise InputError(f"{name}: {' '.join(answer['error'].split())}{where}")
        return answer


def project_environment(path: str) -> Mapping[str, str]:
    """Return the environment for a process in the project's interpreter, which finds accelsweep's worker at `path`."""
    inherited = os.environ.get("PYTHONPATH")
    entries = [path, *([inherited] if inherited else [])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(entries), "HYDRA_FULL_ERROR": "1"}
