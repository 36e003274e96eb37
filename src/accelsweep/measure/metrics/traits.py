"""The work of a forward pass, counted on the meta device, where nothing is computed: `core.recorded.traits.Traits`.

The operations are those of torch's own formulas, see `flops`. Convolutions are told apart by their groups, because
grouped ones reach little of a device's peak. Numbers written are the elements of an operation's results. A view writes
none. Attention that torch fuses writes its result only, although the meta device takes it apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from accelsweep.core.recorded.traits import Traits
from accelsweep.measure.metrics.flops import eager

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
    counter = _Counter()
    with torch.no_grad(), eager(), _Attention(counter), counter:
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


class _Counter(TorchDispatchMode):  # type: ignore[no-untyped-call]
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

    def __init__(self, counter: _Counter) -> None:
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
