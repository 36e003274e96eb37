"""Finds the user's own training script and how it takes its arguments, by reading sources and `accelsweep.yaml`.

No user code is imported here; `project_config` composes the project's config in a separate process.
"""

from __future__ import annotations

import ast
import os
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import Field, PositiveInt, field_validator

from accelsweep.config.value_errors import validated
from accelsweep.errors import InputError, nearest
from accelsweep.installation import shipped_root
from accelsweep.json_documents import Frozen
from accelsweep.planning.interpreter import printed_options, query_interpreter, refuse_unsuitable, usable_devices
from accelsweep.planning.source_digests import imported_packages, script_file
from accelsweep.records.plan import BatchMeaning, MeasuredProject, Quality
from accelsweep.run_config import ENTRY_AXES, EntryKind, EntryPoint, LightningPackage

PROJECT_FILE = "accelsweep.yaml"

_IGNORED_FOLDERS = frozenset(
    {"tests", "test", "docs", "notebooks", "build", "dist", "site-packages", "node_modules", "sweeps", "reports"}
)
"""Folders in which no training script is searched for, besides hidden folders and virtual environments."""

_OPTION_LIBRARIES = frozenset(
    {"HfArgumentParser", "TrlParser", "click.command", "typer.run", "typer.Typer", "fire.Fire", "tyro.cli"}
)
"""Calls of libraries that declare options elsewhere than in `add_argument`."""

Launcher = Literal["fabric", "fabric_run", "accelerate"]
"""A library whose launcher can start a script. `fabric_run` marks scripts that cannot start their ranks themselves."""

_WHOLE_PROCESS = frozenset({"measure.scope=process", "sweep.measure.scope=process"})

_FOLDER_DEPTH = 2
"""How many levels below the working directory training scripts are searched for."""


class ProjectFile(Frozen):
    """`accelsweep.yaml`: what cannot be found by reading the project. Every key is optional.

    `axes` maps an axis to the project's own key or option (`batch_size: data.train_batch_size`), and `values` maps its
    values to the project's (`precision: {32-true: 32}`). `batch_is` states whether the project's batch size applies to
    each rank, is divided among the ranks, or is a budget of tokens for each rank. `samples_per_step` is the number of
    samples in one batch of one rank, for batches whose samples cannot be counted; `batch_size` means the axis.
    """

    entry: str | None = None
    python: str | None = None
    axes: dict[str, str] = Field(default_factory=dict)
    values: dict[str, dict[str, Any]] = Field(default_factory=dict)
    quality: Quality | None = None
    batch_is: BatchMeaning | None = None
    samples_per_step: PositiveInt | Literal["batch_size"] | None = None

    @field_validator("axes", "values")
    @classmethod
    def _known_axes(cls, value: dict[str, Any]) -> dict[str, Any]:
        for axis in value:
            if axis not in (*ENTRY_AXES, "seed"):
                raise ValueError(
                    f"has no axis '{axis}'{nearest(axis, ENTRY_AXES)}; the axes are {', '.join(ENTRY_AXES)} and seed"
                )
        return value


_LIGHTNING = frozenset({"lightning", "lightning_fabric", "pytorch_lightning"})
"""Packages that import Lightning."""


@dataclass(frozen=True)
class EntrySource:
    """A training script and what its source reveals, which is nothing for a command that is no Python script.

    `command` is its path, or `-m` and a module, relative to the working directory, with its fixed arguments.
    `options` maps the long options that it declares to argparse, without the dashes, to their default values if these
    are literals, else to None; a flag's is False. `prints_options` is True if a library declares options for it, which
    only `--help` shows. `fits` is the number of calls to a method `fit`. `launcher` is the library whose launcher can
    start the script; None if there is none.
    """

    command: tuple[str, ...]
    file: Path
    kind: EntryKind
    options: Mapping[str, Any] = field(default_factory=dict)
    fits: int = 0
    prints_options: bool = False
    launcher: Launcher | None = None

    @property
    def name(self) -> str:
        """The script as typed."""
        return self.command[1] if self.command[0] == "-m" else self.command[0]


@dataclass(frozen=True)
class Project:
    """The user's project in `home`: its training script, its interpreter, and its `accelsweep.yaml`.

    `activated` is True if the interpreter depends on the shell's active environment. `found` is True if the script was
    found by searching rather than named; `typed` is the value of `--entry`, if given. `folders` are searched first for
    imports. `whole_process` is True if the time of the whole process is measured, for which nothing in the script has
    to be known.
    """

    home: Path
    entry: EntrySource
    file: ProjectFile
    python: str
    activated: bool
    found: bool
    typed: str | None = None
    folders: tuple[str, ...] = ()
    whole_process: bool = False

    @cached_property
    def command(self) -> str:
        """The command that runs the script, as typed in a shell."""
        return EntryPoint(self.entry.kind, self.entry.command).shell_command

    @cached_property
    def _software(self) -> dict[str, str]:
        """The versions of Python and of the packages in the project's own environment; empty for accelsweep's."""
        if not self.own_environment:
            return {}
        version, packages = query_interpreter(Path(self.python), "the project's interpreter")
        return {"python": version.split()[0], **packages}

    @cached_property
    def measured(self) -> MeasuredProject:
        """What the manifest stores about the project. Raises InputError if its environment cannot run it."""
        if not self.own_environment:
            return MeasuredProject(command=self.command, kind=self.entry.kind, typed=self.typed)
        if not self.whole_process:
            refuse_unsuitable(self.python, self._software, self.distribution)
        typed = shlex.join([self.python, *self.entry.command]) if self.activated else self.typed
        return MeasuredProject(
            command=self.command, kind=self.entry.kind, typed=typed, python=self.python, software=self._software
        )

    def check_imports(self) -> None:
        """Raise InputError if torch or Lightning cannot be imported in the project's own environment."""
        python = self.measured.python  # refuses an unsuitable environment
        if python is not None and not self.whole_process:
            usable_devices(python, self.package)

    @property
    def imports_lightning(self) -> bool:
        """Whether the script uses a Lightning Trainer, or a file near it imports Lightning, such as its Fabric."""
        files = (self.entry.file, *_scripts(self.home, _FOLDER_DEPTH))
        return self.package is not None or any(imported_packages(file) & _LIGHTNING for file in files)

    @cached_property
    def package(self) -> LightningPackage | None:
        """The package whose Trainer the project uses: the one that its sources import, or else the installed one.

        None if neither the sources nor the config mention Lightning's Trainer, or if it does not matter.
        """
        if self.whole_process or self.entry.kind == "command":
            return None
        imported: set[str] = set()
        for path in (self.entry.file, *_scripts(self.home, _FOLDER_DEPTH)):
            if "Trainer" in path.read_text("utf-8", "replace") or self.entry.kind == "lightning_cli":
                imported |= imported_packages(path) & {"lightning", "pytorch_lightning"}
            if imported:
                break
        if not imported and self.entry.kind != "lightning_cli" and not _configs_name_lightning(self.home):
            return None
        if len(imported) != 1 and self._software and "lightning" not in self._software:
            imported = {"pytorch_lightning"}
        return "pytorch_lightning" if imported == {"pytorch_lightning"} else "lightning"

    @cached_property
    def options(self) -> Mapping[str, Any]:
        """The script's long options with their defaults: those in its source, or else those that `--help` shows."""
        if self.entry.options or not self.entry.prints_options:
            return self.entry.options
        return printed_options(self.python, self.entry.command, self.home)

    @property
    def distribution(self) -> str | None:
        """The name under which `package` is installed."""
        return None if self.package is None else self.package.replace("_", "-")

    def note(self) -> str:
        """Return the plan's note about the script and its environment."""
        found = " (found in the sources; use --entry to name another one)" if self.found else ""
        software = self.measured.software
        packages = filter(None, ("torch", self.distribution))
        versions = ", ".join(f"{name} {software[name]}" for name in packages if name in software)
        where = f", run by {self.python} ({versions})" if self.own_environment else ""
        fits = f"; it contains {self.entry.fits} calls of fit, and the first Trainer.fit that runs is measured"
        several = fits if self.entry.fits > 1 and not self.whole_process else ""
        what = "command" if self.entry.kind == "command" else "training script"
        return f"{what}: {self.command}{found}{where}{several}"

    @property
    def own_environment(self) -> bool:
        """Whether the project has an interpreter other than accelsweep's own."""
        return Path(self.python).absolute() != Path(sys.executable).absolute()


def measured_project(home: Path, entry: str | None, overrides: Sequence[str]) -> Project | None:
    """Return the project whose own script a sweep measures; None if accelsweep composes the model and data.

    Without `entry` and `accelsweep.yaml`, this depends on the folder and on the overrides: a folder `conf/experiment`,
    a shipped experiment or a class for accelsweep's own config means that accelsweep composes them. Raises the same
    exceptions as `project_in`.
    """
    required = entry is not None or (home / PROJECT_FILE).is_file()
    if not required and ((home / "conf" / "experiment").is_dir() or any(map(_composes, overrides))):
        return None
    project = project_in(home, entry, required=required)
    return project and replace(project, whole_process=not _WHOLE_PROCESS.isdisjoint(overrides))


def _composes(override: str) -> bool:
    """Return whether an override selects a shipped experiment or sets a model or data class in accelsweep's config."""
    key, _, value = override.lstrip("+").partition("=")
    if key == "experiment":
        return (shipped_root() / "conf" / "experiment" / f"{value}.yaml").is_file()
    return key.split(".")[0] in ("model", "data") and key.endswith("._target_")


def project_in(
    home: Path, entry: str | None, *, required: bool = True, environment: Path | None = None
) -> Project | None:
    """Return the project in `home`, with the script from the command `entry`, from `accelsweep.yaml` or from a search.

    Relative paths of interpreters refer to `environment`, by default `home`. Returns None if no script is named or
    found and none is `required`. Raises InputError if there are several candidates, or if the script, the interpreter
    or `accelsweep.yaml` is invalid.
    """
    file, environment = _project_file(home), environment or home
    given = entry if entry is not None else file.entry
    if given is not None:
        python, source = _parse_command(home, given, environment)
        if source.kind == "command":
            return Project(home, source, file, sys.executable, activated=False, found=False, typed=entry)
        python = python or _declared_interpreter(environment, file)
        return Project(home, source, file, python or _active_interpreter(), python is None, found=False, typed=entry)
    candidates = training_scripts(home)
    if not candidates:
        if required:
            raise InputError(
                f"no training script was found in {home}: name it with --entry 'python SCRIPT', or under `entry` in "
                f"{PROJECT_FILE}"
            )
        return None
    first, *others = _preferred(candidates)
    if others:
        listed = ", ".join(f"--entry 'python {each.name}'" for each in (first, *others))
        raise InputError(f"{home} contains several training scripts; choose one: {listed}")
    python = _declared_interpreter(environment, file)
    return Project(home, first, file, python or _active_interpreter(), python is None, found=True)


def _project_file(home: Path) -> ProjectFile:
    path = home / PROJECT_FILE
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        return ProjectFile()
    try:
        content = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise InputError(f"{path} is not valid YAML: {' '.join(str(error).split())}") from None
    return validated(ProjectFile, content or {}, "", lambda _: str(path))


def _parse_command(home: Path, given: str, environment: Path) -> tuple[str | None, EntrySource]:
    """Return a command's script, and its interpreter if that is more specific than `python` or `python3`."""
    try:
        words = shlex.split(given)
    except ValueError as error:
        raise InputError(f"--entry {given!r} is not a valid command: {error}") from None
    python = None
    if (
        words
        and Path(words[0]).name.startswith("python")
        and (len(words) == 1 or not words[1].startswith(("-c", "-u")))
    ):
        python = words.pop(0)
    if not words or words == ["-m"]:
        raise InputError(f"--entry {given!r} names no script: write --entry 'python SCRIPT'")
    path = script_file(home, words)
    if python is None and (path is None or path.suffix != ".py"):
        return None, EntrySource(tuple(words), _program(home, given, words[0]), "command")
    if path is None or path.suffix != ".py":
        what = f"no module {words[1]}" if words[0] == "-m" else f"no Python script {words[0]}"
        raise InputError(f"--entry {given!r}: there is {what} in {home}; write --entry 'python SCRIPT ARGUMENTS'")
    source = _read_source(path)
    if source is None:
        raise InputError(f"--entry {given!r}: {path} is not valid Python")
    python = None if python in (None, "python", "python3") else python
    if python is not None:
        python = _existing_interpreter(environment, python, f"--entry {given!r}")
    return python, replace(source, command=tuple(words))


def _program(home: Path, given: str, program: str) -> Path:
    """Return the file of a command that is no Python script. Raises InputError if it cannot be executed."""
    path = home / program
    if "/" not in program:
        if (found := shutil.which(program)) is not None:
            return Path(found)
        if path.is_file():
            raise InputError(f"--entry {given!r}: {program} is not on the PATH: write ./{program}")
    elif path.is_file() and os.access(path, os.X_OK):
        return path
    elif path.is_file():
        raise InputError(
            f"--entry {given!r}: {program} is not executable: run chmod +x {program}, or name the program that runs "
            f"it, as in --entry 'sh {program}'"
        )
    raise InputError(
        f"--entry {given!r}: there is no Python script {program} in {home}, and no such command; write --entry 'python "
        "SCRIPT ARGUMENTS', or the command that trains"
    )


def _declared_interpreter(home: Path, file: ProjectFile) -> str | None:
    """Return the interpreter that the project itself determines: that of `accelsweep.yaml`, or that of its `.venv`."""
    if file.python is not None:
        return _existing_interpreter(home, file.python, f"python in {home / PROJECT_FILE}")
    python = home / ".venv" / "bin" / "python"
    return str(python) if os.access(python, os.X_OK) else None


def _active_interpreter() -> str:
    """Return the interpreter of the active environment, or ours."""
    active = (os.environ.get(name) for name in ("VIRTUAL_ENV", "CONDA_PREFIX"))
    pythons = (Path(name) / "bin" / "python" for name in active if name)
    return next((str(python) for python in pythons if os.access(python, os.X_OK)), sys.executable)


def _existing_interpreter(home: Path, given: str, where: str) -> str:
    path = Path(given).expanduser()
    path = path / "bin" / "python" if (home / path).is_dir() else path
    found = shutil.which(given) if path.name == given else None
    python = Path(found) if found else home / path
    if not os.access(python, os.X_OK) or python.is_dir():
        raise InputError(f"{where}: there is no interpreter {python}")
    return str(python.absolute())  # not resolved: a virtual environment's interpreter is a link


# Reading sources.


def training_scripts(home: Path) -> list[EntrySource]:
    """Return the scripts in `home` that train when run, sorted by path, a LightningCLI's with `fit`.

    Scripts with a loop of their own count only if none uses Lightning.
    """
    with_lightning: list[EntrySource] = []
    others: list[EntrySource] = []
    for path in sorted(_scripts(home, _FOLDER_DEPTH)):
        source = _read_source(path)
        if source is not None and source.file == path and _runs(path):
            fit = ("fit",) if source.kind == "lightning_cli" and "run=False" not in path.read_text("utf-8") else ()
            source = replace(source, command=(path.relative_to(home).as_posix(), *fit))
            if _trains(path):
                with_lightning.append(source)
            elif {"backward", "step"} <= _calls(path):
                others.append(source)
    return with_lightning or others


def _scripts(folder: Path, depth: int) -> Iterator[Path]:
    for path in folder.iterdir():
        if path.name.startswith(".") or path.name in _IGNORED_FOLDERS or (path / "pyvenv.cfg").exists():
            continue
        if path.is_dir():
            if depth:
                yield from _scripts(path, depth - 1)
        elif path.suffix == ".py" and not path.name.startswith("test_"):
            yield path


def _configs_name_lightning(home: Path) -> bool:
    """Return whether a config file of the project names a class of Lightning."""
    files = (path for pattern in ("*", "*/*", "*/*/*", "*/*/*/*") for path in sorted(home.glob(f"{pattern}.yaml")))
    return any("lightning" in path.read_text("utf-8", "replace") for path in files if "sweeps" not in path.parts)


def _preferred(candidates: list[EntrySource]) -> list[EntrySource]:
    """Return the candidates named `train`, else those with `train` in their names, else all."""
    named = [each for each in candidates if Path(each.name).stem == "train"]
    return named or [each for each in candidates if "train" in Path(each.name).stem] or candidates


def _tree(path: Path) -> ast.Module | None:
    try:
        return ast.parse(path.read_bytes())
    except (SyntaxError, ValueError, OSError):
        return None


def _read_source(path: Path) -> EntrySource | None:
    """Return what a script's source reveals; None if it is not valid Python."""
    tree = _tree(path)
    if tree is None:
        return None
    calls = _called_names(tree)
    kind: EntryKind = "script"
    if "hydra.main" in calls:
        kind = "hydra"
    elif "LightningCLI" in calls or _subclasses_of(tree, "LightningCLI") & calls:
        kind = "lightning_cli"
    attributes = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
    fits = sum(isinstance(function, ast.Attribute) and function.attr == "fit" for function in attributes)
    prints_options = kind == "script" and not calls.isdisjoint(_OPTION_LIBRARIES)
    launcher: Launcher | None = None
    if "Fabric" in calls:
        launcher = "fabric" if "launch" in calls else "fabric_run"
    elif "Accelerator" in calls:
        launcher = "accelerate"
    return EntrySource((str(path),), path, kind, dict(_argparse_options(tree)), fits, prints_options, launcher)


def _called_names(tree: ast.AST) -> set[str]:
    """Return the names of called functions and decorators, such as `Trainer` for `pl.Trainer(...)`, or `hydra.main`."""
    names = set()
    for node in ast.walk(tree):
        functions: list[ast.expr] = []
        if isinstance(node, ast.Call):
            functions = [node.func]
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            functions = list(node.decorator_list)
        for function in functions:
            if isinstance(function, ast.Attribute):
                names.add(function.attr)
                if isinstance(function.value, ast.Name):
                    names.add(f"{function.value.id}.{function.attr}")
            elif isinstance(function, ast.Name):
                names.add(function.id)
    return names


def _subclasses_of(tree: ast.AST, base: str) -> set[str]:
    classes = (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    return {each.name for each in classes if any(ast.unparse(parent).endswith(base) for parent in each.bases)}


def _calls(path: Path) -> set[str]:
    tree = _tree(path)
    assert tree is not None, "the caller has read it"
    return _called_names(tree)


def _runs(path: Path) -> bool:
    """Return whether a script does something when it is run as a program."""
    tree = _tree(path)
    assert tree is not None, "the caller has read it"
    guarded = any(isinstance(node, ast.If) and "__name__" in ast.unparse(node.test) for node in tree.body)
    return guarded or any(isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) for node in tree.body)


def _trains(path: Path) -> bool:
    """Return whether a script trains with Lightning."""
    tree = _tree(path)
    assert tree is not None, "the caller has read it"
    calls = _called_names(tree)
    if "hydra.main" in calls:
        return bool(calls & {"fit", "Trainer"}) or "train" in path.stem
    if "LightningCLI" in calls or _subclasses_of(tree, "LightningCLI") & calls:
        return True
    evaluates = not calls & {"fit", "train"} and bool(calls & {"predict", "test", "validate"})
    return "Trainer" in calls and not evaluates


def _argparse_options(tree: ast.AST) -> Iterator[tuple[str, Any]]:
    """Yield the names of the long options passed to `add_argument`, as written, with their literal defaults."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument":
            given = {keyword.arg: keyword.value for keyword in node.keywords}
            action = given.get("action")
            is_flag = isinstance(action, ast.Constant) and action.value == "store_true"
            default = ast.Constant(False) if is_flag else given.get("default")
            for argument in node.args:
                if isinstance(argument, ast.Constant) and str(argument.value).startswith("--"):
                    yield str(argument.value)[2:], default.value if isinstance(default, ast.Constant) else None


def option_for(options: Mapping[str, Any], *names: str) -> str | None:
    """Return the first of `names` that is an option, in any spelling: `batch_size`, `batch-size` or `batchSize`."""
    spellings = {_letters(option): option for option in options}
    return next((spellings[_letters(name)] for name in names if _letters(name) in spellings), None)


def _letters(name: str) -> str:
    return name.replace("-", "").replace("_", "").lower()
