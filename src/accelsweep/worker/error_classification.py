"""Classifies an exception raised in a rank and describes it in one line: cause, location and remedy.

An error is classified as out of memory, unsupported, a collective that failed because of a peer, or an error in the
user's code. Allocators and libraries report exhausted memory with different types and messages, so the known messages
are listed here.
"""

from __future__ import annotations

import errno
import re
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import FrameType, TracebackType
from typing import NamedTuple

from accelsweep.errors import AccelsweepError, InputError, MissingDevice, Unsupported
from accelsweep.redaction import masked
from accelsweep.results import ErrorKind, Outcome

_MEMORY = re.compile(
    r"out of memory"
    r"|DefaultCPUAllocator: (not enough|can't allocate) memory"
    r"|CUBLAS_STATUS_ALLOC_FAILED|CUDNN_STATUS_ALLOC_FAILED|CUSOLVER_STATUS_ALLOC_FAILED"
    r"|NCCL.*(Cuda failure 2\b|failed to allocate|out of memory)"
    r"|Failed to CUDA [cm]alloc"
    r"|std::bad_alloc"
    r"|Unable to allocate .* for an array"
    r"|Cannot allocate memory",
    re.IGNORECASE,
)

_COLLECTIVE = re.compile(
    r"Connection (closed by|reset by) peer|ProcessGroup|NCCL|[Gg]loo|c10d|Timed out waiting|DistBackendError"
    r"|[Ss]ocket (Timeout|closed)|Broken pipe|broadcast.*timeout",
)

_GPUS_ONLY = re.compile(r"SyncBatchNorm (layers only work with GPU|expected input tensor to be on GPU)")

_UNSUPPORTED = re.compile(
    r"not implemented for '(Half|BFloat16|Double|Float8\w*|ComplexHalf)'"
    r"|MPS framework doesn't support float64"
    r"|[Cc]urrent CUDA [Dd]evice does not support"
    r"|no kernel image is available for execution on the device"
    rf"|{_GPUS_ONLY.pattern}",
)

_IN_A_WORKER = re.compile(r"Caught \w+ in DataLoader worker process")

_CLASS_TOO_HIGH = re.compile(r"Target (?P<number>\d+) is out of bounds")

_KNOWN = (
    (
        re.compile(r"parameters that were not used in producing|Expected to have finished reduction in the prior"),
        "the loss does not use all parameters, and DDP waits for their gradients: set "
        "trainer.strategy=ddp_find_unused_parameters_true (with loop=lightning)",
    ),
    (
        re.compile(r"Expected more than 1 value per channel when training"),
        "BatchNorm cannot train on a single sample, such as the last one of an epoch: set drop_last=True in the "
        "training DataLoader, or increase batch_size if it is 1",
    ),
)
"""Message from torch or Lightning -> cause and remedy. The traceback still contains the original message."""

_ERROR_TYPE = re.compile(r"^(?!Traceback)([\w.]+)(?::|$)", re.MULTILINE)
"""Matches the first unindented line of a traceback, which is the exception itself.

Later lines are ignored, because the exception's message may itself contain the traceback of a loader worker.
"""

_FRAME = re.compile(r'^\s*File "(.+)", line (\d+), in (.+)$', re.MULTILINE)

_DEVICE_ASSERT = "device-side assert triggered"

_PACKAGE = str(Path(__file__).parents[1])

_HIDDEN_PACKAGES = tuple(f"{_PACKAGE}/{name}" for name in ("worker", "measure"))

_LIBRARIES = ("lightning", "torch", "hydra", "omegaconf")

_REFUSING = ("core/optimizer.py", "trainer/configuration_validator.py")
"""Lightning source files in which every exception, regardless of type, rejects a combination of arguments."""

_STANDARD_LIBRARY = re.compile(r"/lib/python3\.\d+/(?!site-packages/|dist-packages/)|^<|/lib-dynload/")

_INSTALLED = re.compile(r"/(?:site|dist)-packages/([^/]+)")

_FRAMEWORKS = {
    *_LIBRARIES,
    *("lightning_fabric", "pytorch_lightning", "lightning_utilities", "torchmetrics", "numpy", "pandas", "pyarrow"),
    *("pluggy", "_pytest"),
}


class Diverged(Exception):
    """The loss became NaN or infinite; the message specifies at which step."""


class ProcessExited(Exception):
    """The user's code called `os._exit`, which cannot be caught."""

    def __init__(self, code: int, frame: FrameType) -> None:
        """`code` is the exit code, and `frame` is the frame that called `os._exit`."""
        stack = _frames(traceback.extract_stack(frame))
        first = max((number for number, call in enumerate(stack) if call.function == "run_rank"), default=0)
        where = user_location_in(stack[first:]) or f"{stack[-1].function} ({stack[-1].file}, line {stack[-1].line})"
        super().__init__(
            f"os._exit({code}) was called in {where}: raise an exception or return instead; a module must not end the "
            "process that trains it"
        )


class CommandFailed(RuntimeError):
    """The user's command failed; the message contains the last lines that it wrote to stderr."""


_OUR_ERRORS = AccelsweepError | Unsupported | MissingDevice | Diverged | ProcessExited | CommandFailed
"""Errors whose message is shown without the type and location."""


OUTCOMES: dict[ErrorKind, Outcome] = {
    "none": Outcome.measured,
    "out_of_memory": Outcome.out_of_memory,
    "diverged": Outcome.diverged,
    "unsupported": Outcome.unsupported,
    "user_exception": Outcome.crashed,
    "collective": Outcome.crashed,
}
"""Error kind -> recorded outcome."""


def classify(error: BaseException) -> ErrorKind:
    """Return the kind of `error`, considering all errors in its chain of causes."""
    chain = _chain(error)
    if any(_is_out_of_memory(link) for link in chain):
        return "out_of_memory"
    if any(isinstance(link, Diverged) for link in chain):
        return "diverged"
    if any(_is_refusal(link) for link in chain):
        return "unsupported"
    if any(isinstance(link, RuntimeError) and _COLLECTIVE.search(message_of(link)) for link in chain):
        return "collective"
    return "user_exception"


def _is_refusal(error: BaseException) -> bool:
    """Return whether accelsweep, Lightning or torch rejected this combination, so that a retry would fail as well."""
    if isinstance(error, Unsupported | InputError) or type(error).__name__ == "MisconfigurationException":
        return True
    frames = traceback.extract_tb(error.__traceback__)
    if frames and frames[-1].filename.endswith(tuple(f"lightning/pytorch/{name}" for name in _REFUSING)):
        return True
    return _UNSUPPORTED.search(message_of(error)) is not None


def is_interrupt(error: BaseException) -> bool:
    """Return whether a signal ended this rank (Lightning turns SIGTERM and SIGINT into exceptions of its own)."""
    return any(
        isinstance(link, KeyboardInterrupt) or type(link).__name__ == "SIGTERMException" for link in _chain(error)
    )


def _chain(error: BaseException) -> list[BaseException]:
    links: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and link not in links:
        links.append(link)
        link = link.__cause__ or link.__context__
    return links


def _is_out_of_memory(error: BaseException) -> bool:
    if isinstance(error, MemoryError) or type(error).__name__ in ("OutOfMemoryError", "AcceleratorOutOfMemoryError"):
        return True
    return isinstance(error, RuntimeError | OSError) and _MEMORY.search(message_of(error)) is not None


def message_of(error: BaseException) -> str:
    """Return the message of `error`; if its `__str__` raises, return its first string argument or ''."""
    try:
        return str(error)
    except BaseException:  # noqa: BLE001  a user's __str__ may raise anything
        return next((part for part in error.args if isinstance(part, str)), "")


def reason_of(error: BaseException, target: str | None = None) -> str:
    """Describe `error` in one line for the record: its type, its first line, and a remedy if one is known.

    `target` is the name of the class column, if the data is a table.

    Accelsweep's own errors are reported without their type, even if a library wraps them. For an error in a DataLoader
    worker, torch raises an error of the same type whose last line is the original error. Errors without a message, and
    errors that `except Exception` does not catch, are reported with their location.
    """
    ours = next((link for link in _chain(error) if isinstance(link, _OUR_ERRORS)), None)
    if ours is not None:
        return masked(_lines(ours)[0])
    error = root_cause(error)
    lines = _lines(error)
    first = lines[0]
    if isinstance(error, SystemExit):
        return masked(_exit_reason(error))
    if type(error).__name__ == "MisconfigurationException":
        return masked(f"Lightning rejected the configuration: {first}")
    if _IN_A_WORKER.match(first) and len(lines) > 1:
        # what Python's traceback module prints for an exception whose __str__ raises
        unprintable = lines[-1].endswith("<exception str() failed>")
        location = user_location_in(parse_stack(lines)) if unprintable else None
        where = f", in {location}" if location else ""
        return masked(f"{lines[-1].strip()} (in a loader worker{where}){_remedy(lines[-1], target)}")
    what = type(error).__name__
    try:
        str(error)
    except BaseException as second:  # noqa: BLE001  a user's __str__ may raise anything
        what += f" (whose __str__ raised {type(second).__name__})"
    if not first or what != type(error).__name__ or not isinstance(error, Exception):
        location = user_location_in(_frames(traceback.extract_tb(error.__traceback__)))
        what += f" in {location}" if location else ""
    if not first:
        return masked(what)
    known = next((remedy for message, remedy in _KNOWN if message.search(first)), f"{first}{_remedy(first, target)}")
    return masked(f"{what}: {known}{_shared_memory_remedy(error)}")


def _lines(error: BaseException) -> list[str]:
    return message_of(error).strip().splitlines() or [""]


def _exit_reason(error: SystemExit) -> str:
    """Describe where the user's code ended the process, and how to prevent a script's code from running on import."""
    frames = _frames(traceback.extract_tb(error.__traceback__))
    where = user_location_in(frames) or "the user's code"
    remedy = "raise an exception or return instead; a module must not end the process that trains it"
    if any(frame.function == "<module>" and is_user_code(frame.file) for frame in frames):
        remedy = 'move code that only a script should run below `if __name__ == "__main__":`'
    if (refusal := _argparse_message(error.__traceback__)) is not None:
        remedy += ", and pass the values as arguments of the model or the data in the config"
        return f"parse_args() in {where} read {sys.argv[1:]!r}, because a run has no command line: {refusal}; {remedy}"
    kind = "" if type(error) is SystemExit else f"{type(error).__name__}: "
    code = error.code if isinstance(error.code, int) else "" if error.code is None else repr(error.code)
    return f"{kind}sys.exit({code}) was called in {where}: {remedy}"


def _argparse_message(trace: TracebackType | None) -> str | None:
    """Return the message with which argparse exited; None if argparse did not end the process."""
    while trace is not None:
        code = trace.tb_frame.f_code
        if code.co_name == "error" and Path(code.co_filename).name == "argparse.py":
            return str(trace.tb_frame.f_locals.get("message"))
        trace = trace.tb_next
    return None


def user_location(error: BaseException) -> str | None:
    """Describe where in the user's code `error` was raised; None if it was raised elsewhere."""
    return user_location_in(_frames(traceback.extract_tb(root_cause(error).__traceback__)))


class Frame(NamedTuple):
    """A call in a stack trace."""

    file: str
    line: int
    function: str


def _frames(stack: traceback.StackSummary) -> list[Frame]:
    return [Frame(call.filename, call.lineno or 0, call.name) for call in stack]


_PRINTED = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+),? in (?P<function>\S+)')


def parse_stack(lines: Sequence[str]) -> list[Frame]:
    """Return the calls in a printed stack trace, in the order in which they were printed."""
    matches = (_PRINTED.search(line) for line in lines)
    return [Frame(match["file"], int(match["line"]), match["function"]) for match in matches if match is not None]


def user_location_in(frames: Sequence[Frame]) -> str | None:
    """Describe the user's outermost and innermost functions in a stack, with the line number of the innermost call.

    `frames` starts with the outermost call. Returns None if no call is in the user's code. Code in the user's folders
    takes precedence over installed packages.
    """
    calls = [frame for frame in frames if is_user_code(frame.file)]
    calls = [frame for frame in calls if _INSTALLED.search(frame.file) is None] or calls
    if not calls:
        return None
    last = calls[-1]
    hook = next((frame for frame in calls if frame.function != "<module>"), None)
    if hook is None:
        return f"the import of {Path(last.file).name} (line {last.line})"
    line = f"{Path(last.file).name}, line {last.line}"
    through = "" if hook.function == last.function else f", in {last.function}"
    return f"{hook.function}{through} ({line})"


def is_user_code(file: str) -> bool:
    """Return whether a file is user code: not part of a training framework, the standard library or accelsweep."""
    if (installed := _INSTALLED.search(file)) is not None:
        return installed[1].removesuffix(".py") not in _FRAMEWORKS
    return not file.startswith(_PACKAGE) and _STANDARD_LIBRARY.search(file) is None


def _shared_memory_remedy(error: BaseException) -> str:
    """Return the remedy if the shared memory used by a loader's workers could not be allocated, or an empty string."""
    refused = getattr(error, "errno", None) in (errno.EROFS, errno.EACCES, errno.ENOSPC, errno.ENOSYS)
    if refused and any("/multiprocessing/" in call.filename for call in traceback.extract_tb(error.__traceback__)):
        return (
            " (a loader's workers share memory in /dev/shm, which is not writable here: set the loader's "
            "num_workers to 0, or mount /dev/shm with write access)"
        )
    return ""


def _remedy(message: str, target: str | None) -> str:
    """Return the remedy if a class index is out of the model's range, or if a layer only works on GPUs."""
    if _GPUS_ONLY.search(message):
        return " (trainer.sync_batchnorm=true works only on GPUs: remove it)"
    where = f"the column data.target={target}" if target else "the data"
    if match := _CLASS_TOO_HIGH.search(message):
        number = int(match["number"])
        return f" ({where} contains class {number}: classes start at 0, so model.classes must be at least {number + 1})"
    if _DEVICE_ASSERT in message:
        return f" (often {where} contains a class that is not below model.classes; accelerator=cpu shows which one)"
    return ""


def traceback_of(error: BaseException) -> str:
    """Return the traceback without the outermost frames, which belong to accelsweep and to libraries.

    If no frames would remain, the whole traceback is returned.
    """
    error = root_cause(error)
    frames = traceback.extract_tb(error.__traceback__)
    first = next((number for number, frame in enumerate(frames) if not _is_hidden(frame.filename)), 0)
    lines = ["Traceback (most recent call last):\n", *traceback.format_list(list(frames[first:]))]
    return masked("".join([*lines, *traceback.format_exception_only(error)]))


class ErrorOrigin(NamedTuple):
    """The origin of an exception: its type, and the file, line and function of the innermost user-code frame."""

    type: str
    file: str
    line: int
    function: str

    @classmethod
    def of(cls, traceback: str, home: Path) -> ErrorOrigin | None:
        """Parse a traceback's text; None if it contains no frames. Files under `home` are considered the user's."""
        error = _ERROR_TYPE.search(traceback)
        if error is None:
            return None
        frames = [cls(error[1], file, int(line), name) for file, line, name in _FRAME.findall(traceback)]
        below_home = [frame for frame in frames if Path(frame.file).is_relative_to(home)]
        not_hidden = [frame for frame in frames if not _is_hidden(frame.file)]
        return next((candidates[-1] for candidates in (below_home, not_hidden, frames) if candidates), None)


def root_cause(error: BaseException) -> BaseException:
    """Return the original error, unwrapped from Hydra's error and from errors raised while it was being handled.

    While an exception propagates through Lightning's Trainer, teardown hooks run, and an error in one of them hides the
    original exception.
    """
    while True:
        if error.__cause__ is not None and _raised_by_hydra(error):
            error = error.__cause__
        elif error.__cause__ is None and not error.__suppress_context__ and _passed_the_trainer(error.__context__):
            assert error.__context__ is not None
            error = error.__context__
        else:
            return error


def _passed_the_trainer(error: BaseException | None) -> bool:
    trace = None if error is None else error.__traceback__
    return trace is not None and trace.tb_frame.f_code.co_name == "_call_and_handle_interrupt"


def _raised_by_hydra(error: BaseException) -> bool:
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and "hydra" in Path(frames[-1].filename).parts


def _is_hidden(file: str) -> bool:
    """Return whether tracebacks omit this file: it belongs to the worker or to a library that calls the user's code."""
    if file.startswith((*_HIDDEN_PACKAGES, "<frozen")):
        return True
    parts = Path(file).parts
    return "site-packages" in parts and parts[parts.index("site-packages") + 1] in _LIBRARIES
