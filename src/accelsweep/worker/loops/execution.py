"""Applies torch.compile, memory layouts and activation checkpointing to any module, in any training loop.

Each option applies to the outermost modules that the loop calls, in their first call: compiling a whole LightningModule
would change nothing if its `training_step` calls `self.network`. DataLoaders get other arguments when they are built.
"""

from __future__ import annotations

import functools
import inspect
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from typing_extensions import Self  # a dependency of torch

from accelsweep.errors import Unsupported
from accelsweep.measure.compilation import compiled_graphs
from accelsweep.metrics import Metric
from accelsweep.run_config import EVERY_BLOCK, LoaderOptions, SettingConfig

_WRAPPERS = {
    "DistributedDataParallel",
    "DataParallel",
    "FullyShardedDataParallel",
    "DeepSpeedEngine",
    "_FabricModule",
    "_Step",
}
"""Classes of modules that only pass calls on: those of torch, DeepSpeed and Fabric, and that of `loop=raw`."""

_DISTRIBUTED: Any = DistributedDataParallel
_LOADER: Any = DataLoader

_SHARDING = {"FullyShardedDataParallel", "DeepSpeedEngine"}
"""Wrappers that keep weights in buffers of their own."""

_CONVOLUTIONS = (nn.Conv2d, nn.ConvTranspose2d)


class ModuleExecution:
    """Applies a setting's options to the outermost modules called while it watches.

    `compiled` contains the names of the classes of the compiled modules, and `checkpoints` is the number of modules
    whose activations are recomputed. `optimizers` are those that may already have state for the modules' weights.
    """

    def __init__(self, config: SettingConfig, *, training: bool = True) -> None:
        """If `training`, only calls in training mode, with gradients, are considered."""
        self._config, self._training = config, training
        self._original_call: Any = nn.Module.__call__
        self._original_wrapper = _DISTRIBUTED.__init__
        self._applied = set[int]()
        self._layouts = Counter[bool]()
        self._layout_hooks: list[Any] = []
        self._classes, self._recomputed = set[str](), set[str]()
        self._changes_layout = self._is_sharded = self.is_watching = False
        self.optimizers: Iterable[torch.optim.Optimizer] = ()
        self.compiled: tuple[str, ...] = ()
        self.checkpoints = 0

    @property
    def is_needed(self) -> bool:
        """Whether the setting has an option that must be applied to modules."""
        config = self._config
        return bool(config.compile or config.channels_last or config.recomputed_classes)

    def __enter__(self) -> None:
        """Watch until the end of the context at the latest."""
        self.watch()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def watch(self) -> None:
        """Apply the options to modules as they are called or wrapped, until `stop`."""
        self.watch_wrappers()
        if self.is_needed:
            self.is_watching = True
            nn.Module.__call__ = self._observed_call()  # type: ignore[method-assign]

    def watch_wrappers(self) -> None:
        """Change the layout of weights before modules are wrapped for several ranks, whose buckets have that layout."""
        if not self._config.channels_last:
            return
        init = self._original_wrapper

        @functools.wraps(init)
        def observed(wrapper: Any, module: nn.Module, *arguments: Any, **options: Any) -> None:
            module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
            init(wrapper, module, *arguments, **options)

        _DISTRIBUTED.__init__ = observed

    def stop(self) -> None:
        """Stop watching. Does nothing if it has stopped."""
        self.is_watching = False
        nn.Module.__call__ = self._original_call  # type: ignore[method-assign]
        _DISTRIBUTED.__init__ = self._original_wrapper
        for hook in self._layout_hooks:
            hook.remove()
        self._layout_hooks.clear()

    def check(self) -> None:
        """Raise Unsupported if an option of the setting had no effect on the modules called so far."""
        config = self._config
        if config.compile and not self.compiled:
            why = "the first step called no module of torch with parameters"
            raise Unsupported(f"compile={config.compile}: nothing was compiled, because {why}")
        if config.compile and not compiled_graphs():
            what = ", ".join(self.compiled)
            why = "torch made no graph of it, as when wrappers or hooks interrupt every one"
            raise Unsupported(f"compile={config.compile}: nothing of {what} was compiled, because {why}")
        if config.channels_last is True and not self._changes_layout:
            raise Unsupported("channels_last=true would have no effect: the model has no convolutions of images")
        missing = [name for name in config.recomputed_classes if name not in self._recomputed]
        if missing and not (config.recomputed_classes == (EVERY_BLOCK,) and self.checkpoints):
            found = (
                "no container of the model has several modules of one class; name the classes to recompute"
                if missing == [EVERY_BLOCK]
                else f"inside of the model is no module of this class; there are: {', '.join(sorted(self._classes))}"
            )
            raise Unsupported(f"activation_checkpointing={', '.join(missing)} would have no effect: {found}")

    def layout_metric(self) -> Metric | None:
        """Return the share of inputs of convolutions that are stored in NHWC order; None if that was not asked for."""
        if not self._changes_layout:
            return None
        scope, total = "inputs of convolutions in the first step, rank 0", self._layouts.total()
        if not total:
            reason = "the convolutions are compiled" if self.compiled else "no convolution was called"
            return Metric(value=None, unit="1", reason=reason, scope=scope)
        return Metric(value=self._layouts[True] / total, unit="1", scope=scope, provenance="counter")

    def _observed_call(self) -> Callable[..., Any]:
        original = self._original_call

        @functools.wraps(original)
        def observed(module: nn.Module, *arguments: Any, **options: Any) -> Any:
            if not self._is_wanted(module):
                return original(module, *arguments, **options)
            nn.Module.__call__ = original  # type: ignore[method-assign]  # only outermost calls count
            try:
                self._apply(module)
                return module(*arguments, **options)
            finally:
                if self.is_watching:
                    nn.Module.__call__ = observed  # type: ignore[method-assign]

        return observed

    def _is_wanted(self, module: nn.Module) -> bool:
        if self._training and not (module.training and torch.is_grad_enabled()):
            return False
        if _is_wrapper(module):
            self._is_sharded |= type(module).__name__ in _SHARDING
            return False
        # A part of a module that has been called before is called alone where activations are recomputed.
        return id(module) not in self._applied and any(True for _ in module.parameters())

    def _apply(self, module: nn.Module) -> None:
        if self._config.recomputed_classes:
            self._classes |= {type(part).__name__ for part in module.modules() if part is not module}
            recomputed = _recompute_activations(module, self._config.recomputed_classes)
            self._recomputed |= {type(part).__name__ for part in recomputed}
            self.checkpoints += len(recomputed)
        if self._config.channels_last:
            self._change_layout(module)
        mode = self._config.compile
        if mode is not None:
            if type(module).__name__ == "OptimizedModule":
                name = type(module._orig_mod).__name__
                raise Unsupported(f"compile={mode}, but the code compiles {name} itself: remove that, or compile")
            self._compile(module, mode)
            self.compiled = (*self.compiled, type(module).__name__)
        self._applied.update(map(id, module.modules()))

    def _change_layout(self, module: nn.Module) -> None:
        """Store images, and the weights of their convolutions, in NHWC order."""
        weights = [parameter for parameter in module.parameters() if parameter.dim() == 4]
        if not weights:
            return
        if self._is_sharded:
            if self._config.channels_last == "auto":
                return
            raise Unsupported("channels_last=true: FSDP and DeepSpeed keep weights in flat buffers without a layout")
        self._changes_layout = True
        module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        for optimizer in self.optimizers:
            for weight in weights:
                _change_state_layout(optimizer.state.get(weight, {}), weight)
        module.register_forward_pre_hook(_to_channels_last, with_kwargs=True)
        if self._config.compile is None:
            self._layout_hooks += [
                part.register_forward_pre_hook(self._count_layout)
                for part in module.modules()
                if isinstance(part, _CONVOLUTIONS)
            ]

    def _count_layout(self, _: nn.Module, inputs: tuple[Any, ...]) -> None:
        if inputs and isinstance(inputs[0], Tensor) and inputs[0].dim() == 4:
            self._layouts[inputs[0].is_contiguous(memory_format=torch.channels_last)] += 1

    def _compile(self, module: nn.Module, mode: str) -> None:
        def call(module: Any, *arguments: Any, **options: Any) -> Any:
            return module._call_impl(*arguments, **options)

        # A function of our own, because `module.compile()` skips an nn.Sequential without a word (torch 2.13). Its code
        # is unique, because torch limits the number of graphs for each piece of code.
        call.__code__ = call.__code__.replace(co_name=f"call_{type(module).__name__}_{len(self.compiled)}")
        options = self._config.compile_options
        compiled: Any = torch.compile(
            call, mode=None if mode == "default" else mode, dynamic=options.dynamic, fullgraph=options.fullgraph
        )

        def unless_replaced(module: Any, *arguments: Any, **named: Any) -> Any:
            return (call if "forward" in vars(module) else compiled)(module, *arguments, **named)

        # A method, which a copy of the module binds to itself.
        module._compiled_call_impl = MethodType(unless_replaced if _is_lightning(module) else compiled, module)


def _is_wrapper(module: nn.Module) -> bool:
    """Return whether the module only passes calls on.

    Lightning lets a wrapper call a LightningModule whose `forward` it has replaced with one of its steps.
    """
    names = [base.__name__ for base in type(module).__mro__]
    return bool(_WRAPPERS.intersection(names)) or (_is_lightning(module) and "forward" in vars(module))


def _is_lightning(module: nn.Module) -> bool:
    return any(base.__name__ == "LightningModule" for base in type(module).__mro__)


def _change_state_layout(state: dict[Any, Any], weight: Tensor) -> None:
    """Give an optimiser's state the layout of its weight, which fused kernels require."""
    for name, value in state.items():
        if isinstance(value, Tensor) and value.shape == weight.shape:
            state[name] = value.contiguous(memory_format=torch.channels_last)


def _to_channels_last(
    _: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return tuple(map(_in_layout, inputs)), {name: _in_layout(value) for name, value in named.items()}


def _in_layout(value: Any) -> Any:
    if isinstance(value, Tensor) and value.dim() == 4:
        return value.contiguous(memory_format=torch.channels_last)
    return value


def _recompute_activations(module: nn.Module, classes: tuple[str, ...]) -> list[nn.Module]:
    """Recompute the activations of parts of a module in the backward pass; return the parts.

    `classes` are names of classes, or `EVERY_BLOCK`, which selects modules of the same class that are in one container.
    """
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
        CheckpointImpl,
        apply_activation_checkpointing,
        checkpoint_wrapper,
    )

    chosen = (
        list(_blocks(module))
        if classes == (EVERY_BLOCK,)
        else [part for part in module.modules() if type(part).__name__ in classes and part is not module]
    )
    numbers = set(map(id, chosen))
    apply_activation_checkpointing(
        module,
        checkpoint_wrapper_fn=functools.partial(checkpoint_wrapper, checkpoint_impl=CheckpointImpl.NO_REENTRANT),
        check_fn=lambda part: id(part) in numbers,
    )
    return chosen


def _blocks(module: nn.Module) -> Iterator[nn.Module]:
    """Yield the outermost modules with parts and weights that share a container with others of their class."""
    counts = Counter(type(part) for part in module.children())
    for part in module.children():
        shares = isinstance(module, (nn.ModuleList, nn.Sequential)) and counts[type(part)] > 1
        if shares and any(True for _ in part.children()) and any(True for _ in part.parameters()):
            yield part
        else:
            yield from _blocks(part)


def without_options(module: nn.Module) -> None:
    """Let a copy of a module that was executed with options run without them: not compiled, nothing recomputed."""
    for part in module.modules():
        part._compiled_call_impl = None
        if type(part).__name__ == "CheckpointWrapper":
            vars(part)["checkpoint_fn"] = lambda wrapped, *arguments, **options: wrapped(*arguments, **options)


class LoaderArguments:
    """Within its context, every DataLoader that this process builds uses a setting's arguments."""

    def __init__(self, options: LoaderOptions) -> None:
        """Only the arguments that `options` states are replaced."""
        self._replaced, self._taken, self._built = options.replaced, set[str](), 0
        self._original_init = _LOADER.__init__

    def __enter__(self) -> Self:
        """Begin to replace arguments."""
        init = self._original_init
        signature = inspect.signature(init)

        @functools.wraps(init)
        def observed(*arguments: Any, **options: Any) -> None:
            init(**self._arguments(signature.bind(*arguments, **options)))

        if self._replaced:
            _LOADER.__init__ = observed
        return self

    def __exit__(self, *_: object) -> None:
        _LOADER.__init__ = self._original_init

    def check(self) -> None:
        """Raise Unsupported if an argument was to be replaced, but no DataLoader took it."""
        if without_effect := [name for name in self._replaced if name not in self._taken]:
            listed = ", ".join(f"loader.{name}={self._replaced[name]}" for name in without_effect)
            why = "has workers: set loader.num_workers too" if self._built else "of torch was built"
            raise Unsupported(f"{listed} has no effect: no DataLoader {why}")

    def _arguments(self, given: inspect.BoundArguments) -> dict[str, Any]:
        """Return the arguments of a loader, as they are given, with those that replace them."""
        self._built += 1
        merged = {**given.arguments, **self._replaced}
        if not merged.get("num_workers"):  # torch refuses these if there are no workers
            for name in ("prefetch_factor", "persistent_workers", "multiprocessing_context", "timeout"):
                merged.pop(name, None)
        self._taken |= merged.keys()
        return merged
