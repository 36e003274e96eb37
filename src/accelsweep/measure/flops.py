"""Floating-point operations of a training step or a forward pass, on the meta device, where nothing is computed.

Every operation counts for which torch has a formula (matrix products, convolutions, attention), forward and backward. A
multiplication and an addition are two operations. Element-wise work does not count. On the meta device `nn.LSTM` and
similar layers consist of matrix products. On a CPU a whole layer is one operation without a formula, and would count 0.
Attention is two products there, and the recomputation of activation checkpointing is left out. These are the model's
operations, not the hardware's (A. Chowdhery et al., "PaLM", 2022, appendix B).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from accelsweep.devices.clock import Clock, TimedDevice, monotonic
from accelsweep.devices.datasheets import datasheet_flops_per_second
from accelsweep.devices.kinds import kind_of
from accelsweep.errors import DamagedFile
from accelsweep.files import read_regular, write_bytes_atomically
from accelsweep.metrics import Metric
from accelsweep.plain_json import canonical_json, parse_json
from accelsweep.results import Traits


class NotCounted(Exception):
    """The operations could not be counted; the message says why."""


def training_flops(step: Callable[[], Any]) -> int:
    """Return the operations of `step()`, which gives a loss on the meta device, and of the loss's backward pass.

    Raises NotCounted where it gives none, or a loss that needs no gradient, and any error of `step` itself.
    """
    counter = _Counter()
    with uncompiled(), counter:
        loss = step()
        if not isinstance(loss, torch.Tensor) or not loss.requires_grad:
            raise NotCounted("the training step gave no loss that needs a gradient")
        counter.in_backward = True
        loss.backward()  # type: ignore[no-untyped-call]
    return counter.total


def forward_flops(step: Callable[[], Any]) -> int:
    """Return the operations of `step()` on the meta device, without gradients. Errors of `step` pass through."""
    counter = _Counter()
    with torch.no_grad(), uncompiled(), counter:
        step()
    return counter.total


class _Counter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Adds up the formulas of torch's own registry. In the backward pass only recomputation runs with gradients on."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.total = 0
        self.in_backward = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        formula = flop_registry.get(func._overloadpacket)
        if formula is None:
            with self:
                decomposed = func.decompose(*args, **kwargs)
            if decomposed is not NotImplemented:
                return decomposed
        result = func(*args, **kwargs)
        if formula is not None and not (self.in_backward and torch.is_grad_enabled()):
            self.total += formula(*args, **kwargs, out_val=result)
        return result


def uncompiled() -> AbstractContextManager[Any]:
    """Run compiled modules as they are written; torch's compiler is not imported if no module uses it."""
    return torch.compiler.set_stance("force_eager") if "torch._dynamo" in sys.modules else nullcontext()


# The matmul ceiling: the fastest dense matrix product on this device in this number format, measured here.

SMALLEST, LARGEST = 256, 8192

TRIES = 4
"""Products of one size: the first is cold, and any may be disturbed by others on the machine."""

BUDGET = 0.25
"""No product begins after so many seconds, and no size whose first product would end later."""

CEILING_DTYPES = {
    "32": torch.float32,
    "64": torch.float64,
    "bf16": torch.bfloat16,
    "16": torch.float16,
}
"""Number types by the part of Lightning's precision before the dash."""


@dataclass(frozen=True)
class Ceiling:
    """Operations per second of a product of two square matrices with `size` rows."""

    flops_per_second: float
    size: int


def number_format(precision: str, device_type: str) -> str | None:
    """Return the format that matrix products have at this precision: torch's name, `tf32`, or None if unknown."""
    dtype = CEILING_DTYPES.get(precision.partition("-")[0])
    if dtype is None:
        return None
    if (
        dtype is torch.float32
        and kind_of(device_type).supports_tf32
        and torch.get_float32_matmul_precision() != "highest"
    ):
        return "tf32"
    return str(dtype).removeprefix("torch.")


def matmul_ceiling(
    product: Callable[[int], Callable[[], object]], device: TimedDevice, clock: Clock = monotonic
) -> Ceiling:
    """Return the ceiling. `product(size)` gives a function that multiplies two matrices of that size once."""
    began = clock()
    size, found = SMALLEST, Ceiling(0.0, SMALLEST)
    while True:
        multiply, fastest = product(size), math.inf
        for _ in range(TRIES):
            fastest = min(fastest, _seconds(multiply, device, clock))
            if clock() - began > BUDGET:
                break
        found = max(found, Ceiling(2.0 * size**3 / fastest, size), key=lambda one: one.flops_per_second)
        if size == LARGEST or clock() - began + 8 * fastest > BUDGET:  # twice the size is eight times the work
            return found
        size *= 2


def _seconds(multiply: Callable[[], object], device: TimedDevice, clock: Clock) -> float:
    device.synchronise()
    began = clock()
    multiply()
    device.synchronise()
    return clock() - began


def torch_format(format_name: str) -> torch.dtype:
    """Return the type of numbers in a format as `number_format` names it; tf32 is a way to multiply float32."""
    dtype: torch.dtype = torch.float32 if format_name == "tf32" else getattr(torch, format_name)
    return dtype


def torch_matmul(device: torch.device, format_name: str) -> Callable[[int], Callable[[], object]]:
    """Return how `matmul_ceiling` multiplies with torch on `device`."""
    dtype = torch_format(format_name)

    def product(size: int) -> Callable[[], object]:
        left, right = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
        into = torch.empty(size, size, device=device, dtype=dtype)
        return lambda: torch.mm(left, right, out=into)

    return product


def cached_ceiling(path: Path | None, key: str, measure: Callable[[], Ceiling]) -> Ceiling:
    """Return the ceiling that `path` holds under `key`, or measure it and keep it there for the block's other runs.

    A file that cannot be read is as good as none. Runs of a block follow one another, so there is one writer.
    """
    known: dict[str, dict[str, float]] = {}
    if path is not None and path.exists():
        try:
            known = parse_json(read_regular(path).decode())
            return Ceiling(float(known[key]["flops_per_second"]), int(known[key]["size"]))
        except (DamagedFile, ValueError, TypeError):
            known = {}
        except KeyError:
            pass
    ceiling = measure()
    if path is not None:
        write_bytes_atomically(path, canonical_json({**known, key: asdict(ceiling)}).encode())
    return ceiling


# The work of a forward pass, counted on the meta device, where nothing is computed: `records.run_record.Traits`.

_WITHOUT_WORK = frozenset(
    {"_unsafe_view", "empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "lift_fresh"}
)
"""Operations that write nothing although torch does not call them views."""

_KNOWN = frozenset(
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
    """.split()  # noqa: SIM905  a list would take a page
)
"""Operations whose cost is that of the numbers they move, beside those that torch tags as point by point."""


@dataclass
class _Seen:
    """Sums over one pass; all of them belong to the whole batch."""

    flops: dict[str, float] = field(default_factory=lambda: dict.fromkeys(("convolution", "grouped", "product"), 0.0))
    attention: float = 0.0
    activations: float = 0.0
    others: float = 0.0
    kernels: int = 0
    unknown: dict[str, float] = field(default_factory=dict)


def forward_traits(step: Callable[[], Any], model: torch.nn.Module, samples: int) -> Traits:
    """Return the traits of `step()`, a forward pass of `model` over `samples` samples; its errors pass through."""
    counter = _TraitsCounter()
    with torch.no_grad(), uncompiled(), _Attention(counter), counter:
        step()
    seen = counter.seen
    return Traits(
        flops_convolution=seen.flops["convolution"] / samples,
        flops_grouped=seen.flops["grouped"] / samples,
        flops_product=seen.flops["product"] / samples,
        flops_attention=seen.attention / samples,
        activations=seen.activations / samples,
        others=seen.others / samples,
        kernels=float(seen.kernels),
        parameters=float(sum(part.numel() for part in model.parameters())),
        unknown=sum(seen.unknown.values()) / samples,
        unknown_names=tuple(sorted(seen.unknown, key=lambda name: -seen.unknown[name])[:3]),
        recurrent=any(isinstance(part, torch.nn.RNNBase | torch.nn.RNNCellBase) for part in model.modules()),
    )


class _TraitsCounter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Adds up what every operation below the composite ones does."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen = _Seen()
        self.in_attention = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        formula = flop_registry.get(func._overloadpacket)
        if formula is None:
            with self:
                decomposed = func.decompose(*args, **kwargs)
            if decomposed is not NotImplemented:
                return decomposed
        result = func(*args, **kwargs)
        self._add(func, args, result, None if formula is None else float(formula(*args, **kwargs, out_val=result)))
        return result

    def _add(self, func: Any, args: Any, result: Any, flops: float | None) -> None:
        name = func._schema.name.partition("::")[2]
        if self.in_attention:
            self.seen.attention += flops or 0.0
            return
        if func.is_view or name in _WITHOUT_WORK:
            return
        self.seen.kernels += 1
        if flops is not None:
            self.seen.flops[_kind(name, args)] += flops
            self.seen.activations += written(result)
        elif torch.Tag.pointwise in func.tags or name in _KNOWN:
            self.seen.others += written(result)
        else:
            self.seen.unknown[name] = self.seen.unknown.get(name, 0.0) + written(result)


def _kind(name: str, args: Any) -> str:
    """Return the kind of an operation with a formula: the last argument of a convolution is its groups."""
    if "convolution" not in name:
        return "product"
    return "grouped" if args[8] > 1 else "convolution"


def written(result: Any) -> float:
    """Return the number of elements in all tensors of `result`."""
    return float(sum(leaf.numel() for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)))


class _Attention(TorchFunctionMode):
    """Counts a call of torch's fused attention as one kernel, however the meta device computes it."""

    def __init__(self, counter: _TraitsCounter) -> None:
        super().__init__()
        self._counter = counter

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is not torch.nn.functional.scaled_dot_product_attention:
            return func(*args, **(kwargs or {}))
        with self._fused():
            result = func(*args, **(kwargs or {}))
        self._counter.seen.kernels += 1
        self._counter.seen.activations += written(result)
        return result

    @contextmanager
    def _fused(self) -> Iterator[None]:
        self._counter.in_attention = True
        try:
            yield
        finally:
            self._counter.in_attention = False


# Model FLOPs and their utilisation (MFU): against the ceiling measured here, and against the maker's datasheet.


def utilisation_metrics(
    flops_per_sample: float | str,
    ceiling: Ceiling | str,
    samples_per_second: float,
    device_names: tuple[str, ...],
    format_name: str | None,
    what: str = "training step, recomputation excluded",
) -> dict[str, Metric]:
    """Return the five metrics. Text in place of `flops_per_sample` or `ceiling` is the reason why there is none.

    `what` names the work behind the operations per sample.
    """
    one, devices = f"one device, {format_name}", len(device_names)
    sheet = None if format_name is None else datasheet_flops_per_second(device_names[0], format_name)
    achieved: float | str = flops_per_sample
    if not isinstance(flops_per_sample, str):
        achieved = flops_per_sample * samples_per_second
    peak = ceiling if isinstance(ceiling, str) else ceiling.flops_per_second
    no_sheet = f"no datasheet's dense peak is known for {device_names[0]} in {format_name}"
    return {
        "model_flops_per_sample": _metric(flops_per_sample, "FLOP", what, "counted"),
        "model_flops_per_second": _metric(achieved, "FLOP/s", "all ranks", "counted over the window's rate"),
        "matmul_ceiling_flops_per_second": _metric(peak, "FLOP/s", one, "measured once per block"),
        "mfu": _share(achieved, peak, devices, f"of the measured matmul ceiling, {format_name}"),
        "mfu_of_datasheet": _share(
            achieved, sheet or no_sheet, devices, f"of the datasheet's dense peak, {format_name}"
        ),
    }


def _metric(value: float | str, unit: str, scope: str, provenance: str) -> Metric:
    if isinstance(value, str):
        return Metric(value=None, unit=unit, reason=value, scope=scope)
    return Metric(value=float(value), unit=unit, scope=scope, provenance=provenance)


def _share(achieved: float | str, peak: float | str, devices: int, scope: str) -> Metric:
    reason = next((text for text in (achieved, peak) if isinstance(text, str)), None)
    if isinstance(achieved, str) or isinstance(peak, str):
        return Metric(value=None, unit="1", reason=reason, scope=scope)
    if achieved > peak * devices:
        reason = (
            "withheld: the model did more operations per second than this peak, so the peak was taken while disturbed"
        )
        return Metric(value=None, unit="1", reason=reason, scope=scope)
    return Metric(value=achieved / (peak * devices), unit="1", scope=scope, provenance="counted and measured")
