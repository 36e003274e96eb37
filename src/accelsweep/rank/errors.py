"""The meaning of an exception inside a rank: memory, unsupported here, echo of a peer's failure, or the user's code.

Allocators and libraries report exhaustion in their own words and types, so their words are listed here.
"""

from __future__ import annotations

import re
import traceback
from pathlib import Path
from typing import NamedTuple

from accelsweep.base.errors import AbsentDevice, InputError, Unsupported
from accelsweep.base.secrets import masked
from accelsweep.core.recorded.outcome import Outcome
from accelsweep.rank.spec import ErrorKind

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
_UNSUPPORTED = re.compile(
    r"not implemented for '(Half|BFloat16|Double|Float8\w*|ComplexHalf)'"
    r"|MPS framework doesn't support float64"
    r"|[Cc]urrent CUDA [Dd]evice does not support"
    r"|no kernel image is available for execution on the device",
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
        "BatchNorm cannot train on a single sample, such as the last one of an epoch: give the training DataLoader "
        "drop_last=True, or raise batch_size where it is 1",
    ),
)
"""What torch or Lightning says -> the cause, and what to type or to change. The traceback keeps their words."""

_KIND = re.compile(r"^(?!Traceback)([\w.]+)(?::|$)", re.MULTILINE)
"""The first line of a traceback that is not indented: the exception's own. A worker's traceback is in its message."""

_FRAME = re.compile(r'^\s*File "(.+)", line (\d+), in (.+)$', re.MULTILINE)
_DEVICE_ASSERT = "device-side assert triggered"
_FRAMES_OF_OURS = (str(Path(__file__).parent), str(Path(__file__).parents[1] / "measure"))
_LIBRARIES = ("lightning", "torch", "hydra", "omegaconf")


class Diverged(Exception):
    """The loss became NaN or infinite; the message says where."""


_COMPLETE = InputError | Unsupported | AbsentDevice | Diverged
"""Errors whose message is a whole sentence."""


OUTCOME_OF: dict[ErrorKind, Outcome] = {
    "none": Outcome.measured,
    "out_of_memory": Outcome.out_of_memory,
    "diverged": Outcome.diverged,
    "unsupported": Outcome.unsupported,
    "user_exception": Outcome.crashed,
    "collective": Outcome.crashed,
}
"""Kind of ending -> recorded outcome."""


def classify(error: BaseException) -> ErrorKind:
    """Return the meaning of `error`, or of one of the errors that caused it."""
    chain = _chain(error)
    if any(_is_out_of_memory(link) for link in chain):
        return "out_of_memory"
    if any(isinstance(link, Diverged) for link in chain):
        return "diverged"
    if any(isinstance(link, Unsupported) or _UNSUPPORTED.search(str(link)) for link in chain):
        return "unsupported"
    if any(isinstance(link, RuntimeError) and _COLLECTIVE.search(str(link)) for link in chain):
        return "collective"
    return "user_exception"


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
    return isinstance(error, RuntimeError | OSError) and _MEMORY.search(str(error)) is not None


def reason_of(error: BaseException, target: str | None = None) -> str:
    """Return one line for the record: the type and the first line of the error, and its remedy if that is known.

    `target` is the column of the classes, where the data has columns.

    An error of ours is complete without its type, also where another library wraps it in one of its own. An error that
    Hydra wraps is told as it was raised. Hydra's own first line says only that a constructor failed. For an error in a
    loader's worker torch raises one of the same type, whose last line holds the original.
    """
    ours = next((link for link in _chain(error) if isinstance(link, _COMPLETE)), None)
    told = ours or unwrapped(error)
    lines = str(told).strip().splitlines() or [""]
    first = lines[0]
    if ours is not None:
        return masked(first)
    if _IN_A_WORKER.match(first) and len(lines) > 1:
        return masked(f"{lines[-1].strip()} (in a loader worker){_remedy(lines[-1], target)}")
    known = next((instead for words, instead in _KNOWN if words.search(first)), f"{first}{_remedy(first, target)}")
    return masked(f"{type(told).__name__}: {known}") if first else type(told).__name__


def _remedy(said: str, target: str | None) -> str:
    """Return the remedy where torch refused a class that the model does not have."""
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
    return masked("".join(lines + traceback.format_exception_only(error)))


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
    """Return the original error of a build or an import, out of the errors that Hydra wraps around it."""
    while error.__cause__ is not None and _raised_by_hydra(error):
        error = error.__cause__
    return error


def _raised_by_hydra(error: BaseException) -> bool:
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and "hydra" in Path(frames[-1].filename).parts


def _is_users(filename: str) -> bool:
    if filename.startswith(_FRAMES_OF_OURS) or filename.startswith("<frozen"):
        return False
    parts = Path(filename).parts
    return not ("site-packages" in parts and parts[parts.index("site-packages") + 1] in _LIBRARIES)
