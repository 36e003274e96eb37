"""The meaning of an exception inside a rank: memory, unsupported here, echo of a peer's failure, or the user's code.

Allocators and libraries report exhaustion in their own words and types, so their words are listed here.
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

_NO_WORDS = "<exception str() failed>"
"""The words of Python's traceback module for an exception whose `__str__` raises."""

_CLASS_TOO_HIGH = re.compile(r"Target (?P<number>\d+) is out of bounds")

_KNOWN = (
    (
        re.compile(r"parameters that were not used in producing|Expected to have finished reduction in the prior"),
        "the loss does not use all parameters, and DDP waits for their gradients: set "
        "trainer.strategy=ddp_find_unused_parameters_true (with loop=lightning)",
    ),
    (
        re.compile(r"Expected more than 1 value per channel when training"),
        "BatchNorm cannot train on a single sample, such as the last one of an epoch: give the training DataLoader "
        "drop_last=True, or raise batch_size where it is 1",
    ),
)
"""What torch or Lightning says -> the cause, and what to type or to change. The traceback keeps their words."""

_KIND = re.compile(r"^(?!Traceback)([\w.]+)(?::|$)", re.MULTILINE)
"""The first line of a traceback that is not indented: the exception's own. A worker's traceback is in its message."""

_FRAME = re.compile(r'^\s*File "(.+)", line (\d+), in (.+)$', re.MULTILINE)

_DEVICE_ASSERT = "device-side assert triggered"

_FRAMES_OF_OURS = tuple(str(Path(__file__).parents[1] / name) for name in ("worker", "measure"))

_LIBRARIES = ("lightning", "torch", "hydra", "omegaconf")

_REFUSING = ("core/optimizer.py", "trainer/configuration_validator.py")
"""Modules of Lightning's whose own exceptions are refusals of a combination, whatever their type."""

_PACKAGE = str(Path(__file__).parents[1])

_STANDARD_LIBRARY = re.compile(r"/lib/python3\.\d+/(?!site-packages/|dist-packages/)|^<|/lib-dynload/")

_INSTALLED = re.compile(r"/(?:site|dist)-packages/([^/]+)")

_BELOW_THE_USER = {
    *_LIBRARIES,
    *("lightning_fabric", "pytorch_lightning", "lightning_utilities", "torchmetrics", "numpy", "pandas", "pyarrow"),
    *("pluggy", "_pytest"),
}


class Diverged(Exception):
    """The loss became NaN or infinite; the message says where."""


class Exited(Exception):
    """The user's code ended the process by `os._exit`, which nothing can catch."""

    def __init__(self, code: int, frame: FrameType) -> None:
        """`code` is the exit code, and `frame` the call of `os._exit`."""
        stack = [Frame(one.filename, one.lineno or 0, one.name) for one in traceback.extract_stack(frame)]
        began = max((number for number, one in enumerate(stack) if one.function == "run_rank"), default=0)
        where = place_in(stack[began:]) or f"{stack[-1].function} ({stack[-1].file}, line {stack[-1].line})"
        super().__init__(
            f"os._exit({code}) was called in {where}: raise an exception or return: a module must not end the process "
            "that trains it"
        )


_COMPLETE = AccelsweepError | Unsupported | MissingDevice | Diverged | Exited
"""Errors whose message is a whole sentence."""


OUTCOME_OF: dict[ErrorKind, Outcome] = {
    "none": Outcome.measured,
    "out_of_memory": Outcome.out_of_memory,
    "diverged": Outcome.diverged,
    "unsupported": Outcome.unsupported,
    "user_exception": Outcome.crashed,
    "collective": Outcome.crashed,
}
"""Error kind -> recorded outcome."""


def classify(error: BaseException) -> ErrorKind:
    """Return the meaning of `error`, or of one of the errors that caused it."""
    chain = _chain(error)
    if any(_is_out_of_memory(link) for link in chain):
        return "out_of_memory"
    if any(isinstance(link, Diverged) for link in chain):
        return "diverged"
    if any(_is_refusal(link) for link in chain):
        return "unsupported"
    if any(isinstance(link, RuntimeError) and _COLLECTIVE.search(said(link)) for link in chain):
        return "collective"
    return "user_exception"


def _is_refusal(error: BaseException) -> bool:
    """Return whether accelsweep, Lightning or torch refused this combination: the same command would end the same."""
    return (
        isinstance(error, Unsupported | InputError)
        or _refused_by_lightning(error)
        or _UNSUPPORTED.search(said(error)) is not None
    )


def _refused_by_lightning(error: BaseException) -> bool:
    if type(error).__name__ == "MisconfigurationException":
        return True
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and frames[-1].filename.endswith(tuple(f"lightning/pytorch/{name}" for name in _REFUSING))


def interrupted(error: BaseException) -> bool:
    """Return whether a signal ended this rank (Lightning turns SIGTERM and SIGINT into kinds of SystemExit)."""
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
    return isinstance(error, RuntimeError | OSError) and _MEMORY.search(said(error)) is not None


def said(error: BaseException) -> str:
    """Return the message of `error`; where its own `__str__` raises, the text that it was made with, or nothing."""
    try:
        return str(error)
    except BaseException:  # noqa: BLE001  the user's code may raise anything, here too
        return next((part for part in error.args if isinstance(part, str)), "")


def reason_of(error: BaseException, target: str | None = None) -> str:
    """Return one line for the record: the type and the first line of the error, and its remedy if that is known.

    `target` is the column of the classes, where the data has columns.

    Our own errors are complete without their type, even where another library wraps them. Where the user's code calls
    Hydra, the error inside Hydra's wrapper counts: the wrapper only says that a constructor failed. For an error in a
    DataLoader worker torch raises one of the same type, whose last line holds the original. An error without a message,
    or of a kind that no `except Exception` catches, is reported with its location.
    """
    ours = next((link for link in _chain(error) if isinstance(link, _COMPLETE)), None)
    raised = ours or unwrapped(error)
    lines = said(raised).strip().splitlines() or [""]
    first = lines[0]
    if ours is not None:
        return masked(first)
    if isinstance(raised, SystemExit):
        return masked(_exit_words(raised))
    if type(raised).__name__ == "MisconfigurationException":
        return masked(f"Lightning refuses this: {first}")
    if _IN_A_WORKER.match(first) and len(lines) > 1:
        where = place_in(printed_frames(lines)) if lines[-1].endswith(_NO_WORDS) else None
        there = f", in {where}" if where else ""
        return masked(f"{lines[-1].strip()} (in a loader worker{there}){_remedy(lines[-1], target)}")
    silenced = _silenced(raised)
    odd = not first or silenced or not isinstance(raised, Exception)
    where = place_in(_frames(raised.__traceback__)) if odd else None
    what = f"{type(raised).__name__}{silenced}" + (f" in {where}" if where else "")
    known = next((instead for words, instead in _KNOWN if words.search(first)), f"{first}{_remedy(first, target)}")
    return masked(f"{what}: {known}{_shared_memory(raised)}" if first else what)


def _silenced(error: BaseException) -> str:
    """Return what the error's own `__str__` raised, where it did."""
    try:
        str(error)
    except BaseException as second:  # noqa: BLE001  the user's code may raise anything, here too
        return f" (whose __str__ raised {type(second).__name__})"
    return ""


def _exit_words(error: SystemExit) -> str:
    """Return who ended the process, and how to keep what belongs to a script out of an import."""
    frames = _frames(error.__traceback__)
    where = place_in(frames) or "the user's code"
    kind = "" if type(error) is SystemExit else f"{type(error).__name__}: "
    code = error.code if error.code is None or isinstance(error.code, int) else repr(error.code)
    called = f"sys.exit({'' if code is None else code})"
    importing = any(frame.function == "<module>" and is_users(frame.file) for frame in frames)
    remedy = "raise an exception or return: a module must not end the process that trains it"
    if importing:
        remedy = 'put what only a script does below `if __name__ == "__main__":`'
    if (refused := _argument_parser_said(error.__traceback__)) is not None:
        remedy += ", and give the values as arguments of the model or the data in the config"
        return f"parse_args() in {where} read {sys.argv[1:]!r}, because a run has no command line: {refused}; {remedy}"
    return f"{kind}{called} was called in {where}: {remedy}"


def _argument_parser_said(trace: TracebackType | None) -> str | None:
    """Return the message with which argparse ended the process, None where something else did."""
    while trace is not None:
        code = trace.tb_frame.f_code
        if code.co_name == "error" and Path(code.co_filename).name == "argparse.py":
            return str(trace.tb_frame.f_locals.get("message"))
        trace = trace.tb_next
    return None


def place_of(error: BaseException) -> str | None:
    """Return where in the user's code `error` was raised, in words; None where it was not."""
    return place_in(_frames(unwrapped(error).__traceback__))


class Frame(NamedTuple):
    """A call on a stack."""

    file: str
    line: int
    function: str


def _frames(trace: TracebackType | None) -> list[Frame]:
    """Return the calls of a traceback, the outermost first."""
    return [Frame(one.filename, one.lineno or 0, one.name) for one in traceback.extract_tb(trace)]


_PRINTED = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+),? in (?P<function>\S+)')


def printed_frames(lines: Sequence[str]) -> list[Frame]:
    """Return the calls of a stack that Python printed, in the order of its lines."""
    found = (_PRINTED.search(line) for line in lines)
    return [Frame(one["file"], int(one["line"]), one["function"]) for one in found if one is not None]


def place_in(frames: Sequence[Frame]) -> str | None:
    """Return the hook of the user's code that a stack (the outermost call first) went through, and the line it is at.

    None where no call of the stack is the user's. Code in the user's folders goes before what was installed.
    """
    written = [frame for frame in frames if is_users(frame.file)]
    own = [frame for frame in written if _INSTALLED.search(frame.file) is None] or written
    if not own:
        return None
    hook, last = own[0], own[-1]
    line = f"{Path(last.file).name}, line {last.line}"
    if hook.function == "<module>":
        hook = next((frame for frame in own if frame.function != "<module>"), hook)
        if hook.function == "<module>":
            return f"the import of {Path(last.file).name} ({line.partition(', ')[2]})"
    through = "" if hook.function == last.function else f", in {last.function}"
    return f"{hook.function}{through} ({line})"


def is_users(file: str) -> bool:
    """Return whether a file holds code of the user: no library that trains, nothing of Python, nothing of ours."""
    if (found := _INSTALLED.search(file)) is not None:
        return found[1].removesuffix(".py") not in _BELOW_THE_USER
    return not file.startswith(_PACKAGE) and _STANDARD_LIBRARY.search(file) is None


def _shared_memory(error: BaseException) -> str:
    """Return the remedy where the system refused the memory that a loader shares with its workers."""
    refused = getattr(error, "errno", None) in (errno.EROFS, errno.EACCES, errno.ENOSPC, errno.ENOSYS)
    files = [frame.file for frame in _frames(error.__traceback__)]
    if refused and any("/multiprocessing/" in file for file in files):
        return (
            " (a loader's workers share memory in /dev/shm, which cannot be written here: set the loader's "
            "num_workers to 0, or mount /dev/shm writable)"
        )
    return ""


def _remedy(said: str, target: str | None) -> str:
    """Return the remedy where torch refused a class that the model does not have, or a layer of several GPUs."""
    if _GPUS_ONLY.search(said):
        return " (trainer.sync_batchnorm=true works on GPUs only: leave it out)"
    where = f"the column data.target={target}" if target else "the data"
    if found := _CLASS_TOO_HIGH.search(said):
        number = int(found["number"])
        return f" ({where} holds class {number}: classes count from 0, so model.classes must be at least {number + 1})"
    if _DEVICE_ASSERT in said:
        return f" (often {where} holds a class that is not below model.classes; accelerator=cpu says which)"
    return ""


def traceback_of(error: BaseException) -> str:
    """Return the traceback from the user's first frame on; the whole of it where no frame is the user's."""
    error = unwrapped(error)
    frames = traceback.extract_tb(error.__traceback__)
    own = next((number for number, frame in enumerate(frames) if _is_users(frame.filename)), 0)
    lines = ["Traceback (most recent call last):\n", *traceback.format_list(list(frames[own:]))]
    return masked("".join([*lines, *traceback.format_exception_only(error)]))


class Raised(NamedTuple):
    """Where an exception came from: its type, and the file, line and function of the innermost frame of the user's."""

    type: str
    file: str
    line: int
    function: str

    @classmethod
    def of(cls, traceback: str, home: Path) -> Raised | None:
        """Return the origin by the text of a traceback; None without a frame. Files below `home` are the user's."""
        kind = _KIND.search(traceback)
        frames = [cls(kind[1], file, int(line), name) for file, line, name in _FRAME.findall(traceback)] if kind else []
        below_home = [frame for frame in frames if Path(frame.file).is_relative_to(home)]
        users = [frame for frame in frames if _is_users(frame.file)]
        return next((found[-1] for found in (below_home, users, frames) if found), None)


def unwrapped(error: BaseException) -> BaseException:
    """Return the error that came first: out of those that Hydra wraps around it, and before those of its handlers.

    While an exception passes through Lightning's Trainer, teardown hooks run, and what they raise hides it.
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


def _is_users(filename: str) -> bool:
    if filename.startswith(_FRAMES_OF_OURS) or filename.startswith("<frozen"):
        return False
    parts = Path(filename).parts
    return not ("site-packages" in parts and parts[parts.index("site-packages") + 1] in _LIBRARIES)
