"""Counts a step's operations, measures the device's highest rate for matrix products, and relates the two (MFU).

Operations are counted on the meta device, where nothing is computed. Operations for which torch defines a formula
(matrix products, convolutions, attention) are counted, forward and backward; element-wise operations are not. A
multiplication and an addition count as two operations. On the meta device, `nn.LSTM` and similar layers decompose into
matrix products, while on a CPU such a layer would be a single operation without a formula. Attention counts as two
matrix products, and recomputation for activation checkpointing is excluded: these are the model's operations, not the
hardware's (A. Chowdhery et al., "PaLM", 2022, appendix B).
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import flop_counter
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from accelsweep.devices.clock import Clock, TimedDevice, monotonic
from accelsweep.devices.datasheets import datasheet_flops_per_second
from accelsweep.devices.kinds import kind_of
from accelsweep.errors import DamagedFile
from accelsweep.files import read_regular, write_bytes_atomically
from accelsweep.metrics import Metric
from accelsweep.plain_json import canonical_json, parse_json
from accelsweep.results import Traits

_FORMULAS: Mapping[Any, Callable[..., int]] = getattr(flop_counter, "flop_registry", {})
"""Operation -> torch's formula; empty before torch 2.2."""


class NotCounted(Exception):
    """The operations could not be counted; the message states why."""


@dataclass(frozen=True)
class OperationCount:
    """The operations of a step, and how many of them are in convolutions."""

    total: int
    convolution: int


def training_flops(step: Callable[[], Any]) -> OperationCount:
    """Count the operations in `step()`, which returns a loss on the meta device, and in its backward pass.

    Raises NotCounted if there is no loss or it has no gradient. Errors from `step` propagate.
    """
    counter = _FlopsCounter()
    with uncompiled(), counter:
        loss = step()
        if not isinstance(loss, torch.Tensor) or not loss.requires_grad:
            raise NotCounted("the training step returned no loss that requires a gradient")
        counter.in_backward = True
        loss.backward()  # type: ignore[no-untyped-call]
    return counter.counted()


def forward_flops(step: Callable[[], Any]) -> OperationCount:
    """Count the operations in `step()` on the meta device, without gradients. Errors from `step` propagate."""
    counter = _FlopsCounter()
    with torch.no_grad(), uncompiled(), counter:
        step()
    return counter.counted()


class _OperationMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Calls `count` for every operation; those without a formula in torch are decomposed if possible."""

    def __init__(self) -> None:
        if not _FORMULAS:
            raise NotCounted(f"torch {torch.__version__} has no formulas: counting requires torch 2.2 or later")
        super().__init__()  # type: ignore[no-untyped-call]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        formula = _FORMULAS.get(func._overloadpacket)
        if formula is None:
            with self:
                decomposed = func.decompose(*args, **kwargs)
            if decomposed is not NotImplemented:
                return decomposed
        result = func(*args, **kwargs)
        self.count(func, args, result, None if formula is None else formula(*args, **kwargs, out_val=result))
        return result

    def count(self, func: Any, args: Any, result: Any, flops: int | None) -> None:
        raise NotImplementedError


class _FlopsCounter(_OperationMode):
    """Adds up the operations.

    During the backward pass, operations with gradients enabled are recomputation and are not counted.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._total = self._convolution = 0
        self.in_backward = False

    def count(self, func: Any, args: Any, result: Any, flops: int | None) -> None:
        del args, result
        if flops is not None and not (self.in_backward and torch.is_grad_enabled()):
            self._total += flops
            if "convolution" in func._schema.name:
                self._convolution += flops

    def counted(self) -> OperationCount:
        return OperationCount(self._total, self._convolution)


def uncompiled() -> AbstractContextManager[Any]:
    """Run compiled modules eagerly, from torch 2.6 on. Does not import torch's compiler if it is not in use."""
    set_stance = getattr(torch.compiler, "set_stance", None)
    return set_stance("force_eager") if set_stance and "torch._dynamo" in sys.modules else nullcontext()


MIN_SIZE, MAX_SIZE = 256, 8192

TRIES = 4
"""The number of matrix products timed per size.

The first one includes start-up costs, and any of them may be slowed down by other processes.
"""

BUDGET_SECONDS = 0.25
"""No product starts after this time, and a size is skipped if its first product would end after it."""

TF32_CAPABILITY = (8, 0)
"""The compute capability from which NVIDIA's boards support TF32 (Ampere)."""

CEILING_DTYPES = {
    "32": torch.float32,
    "64": torch.float64,
    "bf16": torch.bfloat16,
    "16": torch.float16,
}
"""Maps the part of Lightning's precision before the dash to the dtype of the products."""


@dataclass(frozen=True)
class Ceiling:
    """The fastest product of two square matrices with `size` rows."""

    flops_per_second: float
    size: int


def number_format(precision: str, device_type: str) -> str | None:
    """Return the number format of matrix products at this precision: torch's name, `tf32`, or None if unknown."""
    dtype = CEILING_DTYPES.get(precision.partition("-")[0])
    if dtype is None:
        return None
    if dtype is torch.float32 and float32_matmul_precision() != "highest" and _may_use_tf32(device_type):
        return "tf32"
    return str(dtype).removeprefix("torch.")


def cudnn_format(precision: str, device_type: str, layer: Literal["conv", "rnn"]) -> str | None:
    """Return the number format of convolutional or recurrent layers, as `number_format` does for matrix products.

    By default, torch computes these layers in TF32 and matrix products in float32.
    """
    name = number_format(precision, device_type)
    if name not in ("float32", "tf32") or not _may_use_tf32(device_type):
        return name
    cudnn: Any = torch.backends.cudnn
    settings = getattr(cudnn, layer, None)  # torch 2.9 and later
    allowed = cudnn.allow_tf32 if settings is None else settings.fp32_precision == "tf32"
    return "tf32" if allowed else "float32"


def float32_matmul_precision() -> str:
    """Return torch's precision of float32 matrix products: `highest`, `high` or `medium`.

    From torch 2.9 on it can also be set through `torch.backends.cuda.matmul.fp32_precision`. torch then raises an error
    when asked for the old setting, or returns an outdated value.
    """
    products: Any = torch.backends.cuda.matmul
    try:
        if products.fp32_precision != "tf32":
            return "highest"
    except (AttributeError, AssertionError):  # older torch; the latter is what torch 2.1 raises
        return torch.get_float32_matmul_precision()
    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:
        return "high"


def _may_use_tf32(device_type: str) -> bool:
    # NVIDIA's libraries do not use TF32 if this variable is 0, whatever torch allows.
    if not kind_of(device_type).supports_tf32 or os.environ.get("NVIDIA_TF32_OVERRIDE") == "0":
        return False
    return not torch.cuda.is_available() or torch.cuda.get_device_capability() >= TF32_CAPABILITY


def matmul_ceiling(
    product: Callable[[int], Callable[[], object]], device: TimedDevice, clock: Clock = monotonic
) -> Ceiling:
    """Return the highest rate over increasing sizes; `product(size)` returns a function that performs one product."""
    began = clock()
    size, ceiling = MIN_SIZE, Ceiling(0.0, MIN_SIZE)
    while True:
        multiply, fastest = product(size), math.inf
        for _ in range(TRIES):
            fastest = min(fastest, _seconds(multiply, device, clock))
            if clock() - began > BUDGET_SECONDS:
                break
        ceiling = max(ceiling, Ceiling(2.0 * size**3 / fastest, size), key=lambda each: each.flops_per_second)
        if size == MAX_SIZE or clock() - began + 8 * fastest > BUDGET_SECONDS:  # twice the size is eight times the work
            return ceiling
        size *= 2


def _seconds(multiply: Callable[[], object], device: TimedDevice, clock: Clock) -> float:
    device.synchronise()
    began = clock()
    multiply()
    device.synchronise()
    return clock() - began


def torch_format(format_name: str) -> torch.dtype:
    """Return the torch dtype for a format from `number_format`; tf32 multiplies float32 values."""
    dtype: torch.dtype = torch.float32 if format_name == "tf32" else getattr(torch, format_name)
    return dtype


def torch_matmul(device: torch.device, format_name: str) -> Callable[[int], Callable[[], object]]:
    """Return the `product` for `matmul_ceiling`, using torch on `device`."""
    dtype = torch_format(format_name)

    def product(size: int) -> Callable[[], object]:
        left, right = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
        out = torch.empty(size, size, device=device, dtype=dtype)
        return lambda: torch.mm(left, right, out=out)

    return product


def cached_ceiling(path: Path | None, key: str, measure: Callable[[], Ceiling]) -> Ceiling:
    """Return the ceiling cached in the file `path` under `key`, or measure and cache it.

    A damaged file is replaced. There is only one writer, because a block's runs are executed one after another.
    """
    cache: dict[str, dict[str, float]] = {}
    if path is not None and path.exists():
        try:
            cache = parse_json(read_regular(path).decode())
            return Ceiling(float(cache[key]["flops_per_second"]), int(cache[key]["size"]))
        except (DamagedFile, ValueError, TypeError):
            cache = {}
        except KeyError:
            pass
    ceiling = measure()
    if path is not None:
        write_bytes_atomically(path, canonical_json({**cache, key: asdict(ceiling)}).encode())
    return ceiling


_NO_WORK = frozenset(
    {"_unsafe_view", "empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "lift_fresh"}
)
"""Operations that write no elements although torch does not tag them as views."""

_COUNTED_BY_ELEMENTS = frozenset(
    """
    _softmax _log_softmax native_layer_norm native_group_norm native_batch_norm _native_batch_norm_legit
    _native_batch_norm_legit_no_training cudnn_batch_norm batch_norm_with_update _batch_norm_with_update
    _batch_norm_no_update native_dropout mean sum amax amin max min var var_mean std std_mean prod argmax argmin any
    all linalg_vector_norm cumsum logsumexp _adaptive_avg_pool2d _adaptive_avg_pool3d adaptive_avg_pool1d avg_pool2d
    avg_pool3d max_pool2d_with_indices max_pool3d_with_indices adaptive_max_pool2d upsample_nearest2d
    upsample_bilinear2d upsample_bicubic2d _upsample_bicubic2d_aa _upsample_bilinear2d_aa constant_pad_nd
    reflection_pad2d replication_pad2d embedding _embedding_bag cat stack clone copy copy_ _to_copy fill fill_ zeros
    zeros_like ones ones_like new_zeros new_ones new_full full full_like arange scalar_tensor zero_ index index_put
    index_put_ index_select gather scatter scatter_ scatter_add select_scatter slice_scatter roll flip repeat
    repeat_interleave tril triu where masked_fill masked_fill_ nll_loss_forward nll_loss2d_forward nll_loss_nd
    mse_loss binary_cross_entropy binary_cross_entropy_with_logits one_hot linspace eye rand rand_like randn
    randn_like bernoulli bernoulli_ uniform_ normal_ topk glu im2col pixel_shuffle pixel_unshuffle channel_shuffle
    native_channel_shuffle unfold _pdist_forward _cdist_forward rms_norm _fused_rms_norm grid_sampler_2d
    """.split()  # noqa: SIM905  a list would take up a page
)
"""Operations whose cost is proportional to the elements they write, besides those that torch tags as pointwise."""


def forward_traits(step: Callable[[], Any], model: torch.nn.Module, samples: int) -> Traits:
    """Return the traits of `step()`, a forward pass of `model` over `samples` samples. Errors from `step` propagate."""
    counter = _TraitsCounter()
    with torch.no_grad(), uncompiled(), _Attention(counter), counter:
        step()
    return Traits(
        flops_convolution=counter.flops["convolution"] / samples,
        flops_grouped=counter.flops["grouped"] / samples,
        flops_product=counter.flops["product"] / samples,
        flops_attention=counter.attention / samples,
        activations=counter.activations / samples,
        others=counter.others / samples,
        kernels=float(counter.kernels),
        parameters=float(sum(part.numel() for part in model.parameters())),
        unknown=sum(counter.unknown.values()) / samples,
        unknown_names=tuple(sorted(counter.unknown, key=lambda name: -counter.unknown[name])[:3]),
        recurrent=any(isinstance(part, torch.nn.RNNBase | torch.nn.RNNCellBase) for part in model.modules()),
    )


class _TraitsCounter(_OperationMode):
    """Adds up the operations, elements and kernels in a batch."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.flops = dict.fromkeys(("convolution", "grouped", "product"), 0.0)
        self.attention = self.activations = self.others = 0.0
        self.kernels = 0
        self.unknown: dict[str, float] = {}
        self.in_attention = False

    def count(self, func: Any, args: Any, result: Any, flops: int | None) -> None:
        name = func._schema.name.partition("::")[2]
        if self.in_attention:
            self.attention += flops or 0.0
            return
        if func.is_view or name in _NO_WORK:
            return
        self.kernels += 1
        if flops is not None:
            kind = "product"
            if "convolution" in name:
                kind = "grouped" if args[8] > 1 else "convolution"  # the last argument is the number of groups
            self.flops[kind] += flops
            self.activations += elements(result)
        elif torch.Tag.pointwise in func.tags or name in _COUNTED_BY_ELEMENTS:
            self.others += elements(result)
        else:
            self.unknown[name] = self.unknown.get(name, 0.0) + elements(result)


def elements(result: Any) -> float:
    """Return the number of elements in all tensors of `result`."""
    return float(sum(leaf.numel() for leaf in tree_flatten(result)[0] if isinstance(leaf, torch.Tensor)))


class _Attention(TorchFunctionMode):
    """Counts a call to torch's fused attention as one kernel, regardless of how the meta device computes it."""

    def __init__(self, counter: _TraitsCounter) -> None:
        super().__init__()
        self._counter = counter

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is not torch.nn.functional.scaled_dot_product_attention:
            return func(*args, **(kwargs or {}))
        self._counter.in_attention = True
        try:
            result = func(*args, **(kwargs or {}))
        finally:
            self._counter.in_attention = False
        self._counter.kernels += 1
        self._counter.activations += elements(result)
        return result


def utilisation_metrics(
    flops_per_sample: float | str,
    ceiling: Ceiling | str,
    samples_per_second: float,
    device_names: tuple[str, ...],
    format_name: str | None,
    what: str = "training step, recomputation excluded",
) -> dict[str, Metric]:
    """Return the model FLOPs, the measured ceiling, and the MFU relative to the ceiling and to the vendor's datasheet.

    If `flops_per_sample` or `ceiling` is unknown, pass the reason as text instead. `what` describes the work counted
    per sample.
    """
    datasheet = None if format_name is None else datasheet_flops_per_second(device_names[0], format_name)
    no_datasheet = f"no dense datasheet peak is known for {device_names[0]} in {format_name}"
    achieved = flops_per_sample if isinstance(flops_per_sample, str) else flops_per_sample * samples_per_second
    peak = ceiling if isinstance(ceiling, str) else ceiling.flops_per_second
    devices, device = len(device_names), f"one device, {format_name}"
    return {
        "model_flops_per_sample": _metric(flops_per_sample, "FLOP", what, "counted"),
        "model_flops_per_second": _metric(achieved, "FLOP/s", "all ranks", "counted over the window's rate"),
        "matmul_ceiling_flops_per_second": _metric(peak, "FLOP/s", device, "measured once per block"),
        "mfu": _share(achieved, peak, devices, f"of the measured matmul ceiling, {format_name}"),
        "mfu_of_datasheet": _share(
            achieved, datasheet or no_datasheet, devices, f"of the datasheet's dense peak, {format_name}"
        ),
    }


def _metric(value: float | str, unit: str, scope: str, provenance: str) -> Metric:
    if isinstance(value, str):
        return Metric(value=None, unit=unit, reason=value, scope=scope)
    return Metric(value=float(value), unit=unit, scope=scope, provenance=provenance)


def _share(achieved: float | str, peak: float | str, devices: int, scope: str) -> Metric:
    if isinstance(achieved, str) or isinstance(peak, str):
        reason = achieved if isinstance(achieved, str) else peak
        return Metric(value=None, unit="1", reason=str(reason), scope=scope)
    if achieved > peak * devices:
        reason = "withheld: the model exceeded this peak, which must have been measured under other load"
        return Metric(value=None, unit="1", reason=reason, scope=scope)
    return Metric(value=achieved / (peak * devices), unit="1", scope=scope, provenance="counted and measured")
