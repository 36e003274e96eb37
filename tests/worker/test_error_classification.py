"""Classification and description of errors in a rank, with the messages that libraries really use."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
import torch
from hydra.utils import get_object, instantiate

from accelsweep.errors import InputError, MissingDevice, Unsupported
from accelsweep.worker.error_classification import OUTCOMES, Diverged, ErrorOrigin, classify, reason_of, traceback_of


def really_raised(call):
    try:
        call()
    except Exception as error:  # noqa: BLE001 - whatever it raises is what is classified
        return error
    raise AssertionError("nothing was raised")


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB."),
        RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("MPS backend out of memory (MPS allocated: 8.00 GB)"),
        RuntimeError("NCCL error in: x.cpp:1, unhandled cuda error\nLast error:\nCuda failure 2 'out of memory'"),
        RuntimeError("CUDA out of memory. Tried to allocate 2.00 MiB. GPU 0 has a total capacity of 79.11 GiB"),
        RuntimeError("CUDA driver error: out of memory"),
        RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
        RuntimeError("cusolver error: CUSOLVER_STATUS_ALLOC_FAILED, when calling `cusolverDnCreate(handle)`"),
        RuntimeError(
            "[enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate memory: you tried"
            " to allocate 4611686018427387904 bytes. Error code 12 (Cannot allocate memory)"
        ),
        RuntimeError(
            "[enforce fail at alloc_cpu.cpp:75] . DefaultCPUAllocator: not enough memory: you tried to allocate"
        ),
        RuntimeError(
            "NCCL error: unhandled cuda error\nncclUnhandledCudaError: Call to CUDA function failed.\n"
            "Last error:\nFailed to CUDA calloc async 608 bytes"
        ),
        RuntimeError("NCCL error\nLast error:\nCuda failure 'out of memory'"),
        RuntimeError("unable to mmap 4194304 bytes from file </torch_7_1>: Cannot allocate memory (12)"),
        RuntimeError("HIP out of memory. Tried to allocate 20.00 GiB."),
        RuntimeError("nvrtc: error: out of memory"),
        RuntimeError("Triton Error [CUDA]: out of memory"),
        RuntimeError("std::bad_alloc"),
        MemoryError("Unable to allocate 7.45 GiB for an array with shape (1000000000,) and data type float64"),
        MemoryError(),
        OSError(12, "Cannot allocate memory"),
    ],
)
def test_out_of_memory_errors_of_every_allocator_are_recognised(error):
    assert classify(error) == "out_of_memory"


def test_a_real_error_of_the_cpu_allocator_is_recognised():
    assert classify(really_raised(lambda: torch.empty(1 << 60))) == "out_of_memory"


def test_an_operation_not_implemented_for_a_dtype_is_unsupported():
    error = really_raised(lambda: torch.linalg.qr(torch.zeros(2, 2, dtype=torch.bfloat16)))
    assert classify(error) == "unsupported"


def test_the_cause_of_a_wrapped_error_decides():
    wrapped = RuntimeError("the loader worker failed")
    wrapped.__cause__ = MemoryError()
    assert classify(wrapped) == "out_of_memory"


@pytest.mark.parametrize(
    "text",
    [
        "[../third_party/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:3",
        "NCCL communicator was aborted on rank 1",
        "Rank 0 successfully reached monitoredBarrier, ProcessGroup timeout",
    ],
)
def test_an_error_caused_by_a_peers_failure_is_collective(text):
    assert classify(RuntimeError(text)) == "collective"


@pytest.mark.parametrize(
    "error", [ValueError("Connection closed by peer"), RuntimeError("shape mismatch"), KeyError("x"), SystemExit(1)]
)
def test_everything_else_is_a_user_exception(error):
    assert classify(error) == "user_exception"


def test_the_reason_is_our_message_or_the_type_and_first_line_of_other_errors():
    assert classify(Diverged("at step 3")) == "diverged"
    assert classify(Unsupported("no such device")) == "unsupported"
    assert reason_of(Unsupported("no such device")) == "no such device"


def test_a_missing_device_is_retried():
    error = MissingDevice("accelerator=cuda: torch finds no CUDA device here")
    assert (classify(error), OUTCOMES[classify(error)].settled) == ("user_exception", False)
    assert reason_of(error) == str(error)


def test_our_message_is_the_reason_even_if_a_library_wraps_the_error():
    wrapped = RuntimeError("Error in call to target 'mine.Model':\nUnsupported('no convolution')")
    wrapped.__cause__ = Unsupported("no convolution")
    assert (classify(wrapped), reason_of(wrapped)) == ("unsupported", "no convolution")
    assert reason_of(ValueError("first\nsecond")) == "ValueError: first"
    assert reason_of(ValueError()) == "ValueError"


class Failing:
    def __len__(self):
        return 4

    def __getitem__(self, index):
        raise KeyError(f"no image number {index}")


def test_the_reason_of_a_loader_worker_error_is_the_original_exception():
    loader = torch.utils.data.DataLoader(Failing(), num_workers=1)
    error = really_raised(lambda: list(loader))
    assert reason_of(error) == "KeyError: 'no image number 0' (in a loader worker)"


def test_a_class_beyond_the_models_names_the_column_and_the_number_of_classes_needed():
    logits, targets = torch.zeros(2, 3), torch.tensor([0, 7])
    error = really_raised(lambda: torch.nn.functional.cross_entropy(logits, targets))
    assert reason_of(error, "label").endswith(
        "(the column data.target=label contains class 7: classes start at 0, so model.classes must be at least 8)"
    )
    assert "(the data contains class 7: " in reason_of(error)


def test_a_device_side_assertion_names_its_usual_cause():
    error = RuntimeError("CUDA error: device-side assert triggered\nCUDA kernel errors might be reported later")
    assert "a class that is not below model.classes; accelerator=cpu shows which one" in reason_of(error, "label")


class Refusing:
    """What Hydra is asked to build, and cannot."""

    def __init__(self, width, *, ours=False):
        if ours:
            raise InputError("data.placement=residnt is not one of loader, pinned, resident")
        raise ValueError(f"{width} is no multiple of 8")


@pytest.fixture
def refusing(monkeypatch):
    monkeypatch.setitem(sys.modules, "theirs", SimpleNamespace(Refusing=Refusing, __name__="theirs"))
    return {"_target_": "theirs.Refusing", "width": 7}


def test_the_reason_is_the_constructors_error_and_not_hydras_wrapper(refusing):
    error = really_raised(lambda: instantiate({**refusing, "_recursive_": False}))
    assert type(error).__name__ == "InstantiationException"
    assert reason_of(error) == "ValueError: 7 is no multiple of 8"
    assert "in __init__" in traceback_of(error)
    assert traceback_of(error).endswith("ValueError: 7 is no multiple of 8\n")
    nested = really_raised(lambda: instantiate({"_target_": "builtins.dict", "inner": refusing}))
    assert reason_of(nested) == "ValueError: 7 is no multiple of 8"
    assert reason_of(really_raised(lambda: instantiate({**refusing, "ours": True}))).startswith("data.placement=")


UNUSED = (
    "It looks like your LightningModule has parameters that were not used in producing the loss returned by "
    "training_step. If this is intentional, you must enable the detection of unused parameters in DDP",
    "Expected to have finished reduction in the prior iteration before starting a new one. This error indicates that "
    "your module has parameters that were not used in producing loss.",
)


@pytest.mark.parametrize("said", UNUSED, ids=["Lightning", "torch, loop=raw"])
def test_unused_parameters_under_ddp_name_the_override_that_helps(said):
    assert "set trainer.strategy=ddp_find_unused_parameters_true" in reason_of(RuntimeError(said))
    assert classify(RuntimeError(said)) == "user_exception"


def test_batchnorm_on_one_sample_names_drop_last():
    for layer, shape in ((torch.nn.BatchNorm1d(4), (1, 4)), (torch.nn.BatchNorm2d(4), (1, 4, 1, 1))):
        error = really_raised(lambda layer=layer, shape=shape: layer.train()(torch.zeros(shape)))
        assert "set drop_last=True in the training DataLoader" in reason_of(error)


def test_the_reason_names_the_module_that_an_import_did_not_find(tmp_path, monkeypatch):
    (tmp_path / "needs_more.py").write_text("import no_such_package_at_all\n")
    monkeypatch.syspath_prepend(tmp_path)
    error = really_raised(lambda: get_object("needs_more.Net"))
    assert reason_of(error) == "ModuleNotFoundError: No module named 'no_such_package_at_all'"


def test_a_traceback_starts_with_the_users_first_frame():
    def theirs():
        raise KeyError("label")

    lines = traceback_of(really_raised(theirs)).splitlines()
    assert lines[0].startswith("Traceback")
    assert lines[-1] == "KeyError: 'label'"
    assert "in theirs" in "".join(lines)


def test_the_origin_of_an_exception_is_the_users_innermost_line(tmp_path):
    place = tmp_path / "mine.py"
    place.write_text("import torch\n\ndef step(rows):\n    return torch.ones(rows) @ torch.ones(3)\n")
    names = {}
    exec(compile(place.read_text(), str(place), "exec"), names)
    shapes = [traceback_of(really_raised(lambda rows=rows: names["step"](rows))) for rows in (4, 5)]
    origins = {ErrorOrigin.of(text, tmp_path) for text in shapes}
    assert origins == {ErrorOrigin("RuntimeError", str(place), 4, "step")}
    assert shapes[0] != shapes[1], "the message tells of the shapes"


def test_the_origin_of_a_workers_exception_is_in_its_message_and_no_traceback_has_none(tmp_path):
    text = (
        "Traceback (most recent call last):\n"
        f'  File "{tmp_path}/train.py", line 3, in <module>\n    for batch in loader:\n'
        "ValueError: Caught ValueError in DataLoader worker process 0.\nOriginal Traceback (most recent call last):\n"
        f'  File "{tmp_path}/data.py", line 9, in __getitem__\n    raise ValueError("7")\nValueError: 7\n'
    )
    assert ErrorOrigin.of(text, tmp_path) == ErrorOrigin("ValueError", f"{tmp_path}/data.py", 9, "__getitem__")
    assert ErrorOrigin.of("", tmp_path) is None
