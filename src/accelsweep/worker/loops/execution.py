"""How a setting executes modules, whoever wrote them and whatever loop trains them.

They are compiled, store images in another memory layout, or recompute activations. Each option applies to the outermost
modules that the loop calls, in their first call: compiling a whole LightningModule would change nothing if its
`training_step` calls `self.network`. DataLoaders get other arguments when they are built.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterator
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from typing_extensions import Self  # a dependency of torch

from accelsweep.errors import Unsupported
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

_CONVOLUTIONS = (nn.Conv2d, nn.ConvTranspose2d)


class ModuleExecution:
    """Applies a setting's options to the outermost modules called while it watches.

    `compiled` contains the names of the classes of the compiled modules, and `checkpoints` is the number of modules
    whose activations are recomputed.
    """

    def __init__(self, config: SettingConfig, *, training: bool = True) -> None:
        """If `training`, only calls in training mode, with gradients, are considered."""
        self._config, self._training = config, training
        self._original_call: Any = nn.Module.__call__
        self._original_wrapper = _DISTRIBUTED.__init__
        self._prepared = set[int]()
        self._layouts = Counter[bool]()
        self._layout_hooks: list[Any] = []
        self._changes_layout = self._is_sharded = False
        self.compiled: tuple[str, ...] = ()
        self.checkpoints = 0
        self.called = 0

    @property
    def is_needed(self) -> bool:
        """Whether the setting has an option that must be applied to modules."""
        config = self._config
        return bool(config.compile or config.channels_last or config.recomputed_classes)

    @property
    def is_watching(self) -> bool:
        """Whether modules are being watched."""
        return nn.Module.__call__ is not self._original_call

    def __enter__(self) -> None:
        """Watch until the end of the context at the latest."""
        self.watch()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def watch(self) -> None:
        """Apply the options to modules as they are called or wrapped, until `stop`."""
        self.watch_wrappers()
        if self.is_needed:
            nn.Module.__call__ = self._observed_call()  # type: ignore[method-assign]

    def watch_wrappers(self) -> None:
        """Apply the options to modules that are wrapped for several ranks, whose weights must not change afterwards."""
        if not self.is_needed:
            return
        init = self._original_wrapper

        @functools.wraps(init)
        def observed(wrapper: Any, module: nn.Module, *arguments: Any, **options: Any) -> None:
            for part in _without_wrappers(module):
                self._prepare(part)
            init(wrapper, module, *arguments, **options)

        _DISTRIBUTED.__init__ = observed

    def stop(self) -> None:
        """Stop watching. Does nothing if it has stopped."""
        nn.Module.__call__ = self._original_call  # type: ignore[method-assign]
        _DISTRIBUTED.__init__ = self._original_wrapper
        for hook in self._layout_hooks:
            hook.remove()
        self._layout_hooks.clear()

    def check(self) -> None:
        """Raise Unsupported if an option of the setting had no effect on the modules called so far."""
        config = self._config
        if config.compile and not self.compiled:
            raise Unsupported(f"compile={config.compile}: nothing was compiled, because {self._nothing()}")
        if config.channels_last is True and not self._changes_layout:
            raise Unsupported("channels_last=true would have no effect: the model has no convolutions of images")
        if config.recomputed_classes and not self.checkpoints:
            stated = ", ".join(config.recomputed_classes)
            found = (
                "no container of the model has several modules of one class; name the classes to recompute"
                if config.recomputed_classes == (EVERY_BLOCK,)
                else f"the model has no module of this class; it has: {', '.join(self._classes) or 'none'}"
            )
            raise Unsupported(f"activation_checkpointing={stated} would have no effect: {found}")

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
                nn.Module.__call__ = observed  # type: ignore[method-assign]

        return observed

    def _is_wanted(self, module: nn.Module) -> bool:
        if self._training and not (module.training and torch.is_grad_enabled()):
            return False
        if _passes_on(module):
            self._is_sharded |= type(module).__name__ == "FullyShardedDataParallel"
            return False
        return any(parameter.requires_grad or not self._training for parameter in module.parameters())

    def _apply(self, module: nn.Module) -> None:
        self.called += 1
        self._prepare(module)
        mode = self._config.compile
        if mode is None:
            return
        if (own := _compiled_by_code(module)) is not None:
            raise Unsupported(f"compile={mode}, but the code compiles {own} itself: remove that, or set compile=null")
        if getattr(module, "_compiled_call_impl", None) is None:
            self._compile(module, mode)
            self.compiled = (*self.compiled, type(module).__name__)

    def _prepare(self, module: nn.Module) -> None:
        """Recompute activations and change the memory layout of the weights, unless that has been done."""
        if id(module) in self._prepared:
            return
        self._prepared.update(map(id, module.modules()))
        self._classes = sorted({type(part).__name__ for part in module.modules()})
        if self._config.recomputed_classes:
            self.checkpoints += _recompute_activations(module, self._config.recomputed_classes)
        if self._config.channels_last and any(parameter.dim() == 4 for parameter in module.parameters()):
            if self._is_sharded:
                raise Unsupported("channels_last=true: FSDP keeps weights in flat buffers, which have no layout")
            self._changes_layout = True
            module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
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

        def dispatch(module: Any, *arguments: Any, **named: Any) -> Any:
            return (call if _passes_on(module) else compiled)(module, *arguments, **named)

        # A method, which a copy of the module binds to itself.
        module._compiled_call_impl = MethodType(dispatch, module)

    def _nothing(self) -> str:
        if not self.called:
            return "the first step called no module of torch with trainable parameters"
        return "torch has compiled the called modules already"


def _passes_on(module: nn.Module) -> bool:
    """Return whether the module only passes calls on, as wrappers do.

    Lightning lets a wrapper call a LightningModule whose `forward` it has replaced with one of its steps.
    """
    names = [base.__name__ for base in type(module).__mro__]
    return bool(_WRAPPERS.intersection(names)) or ("LightningModule" in names and "forward" in vars(module))


def _without_wrappers(module: nn.Module) -> Iterator[nn.Module]:
    """Yield the module, or what is inside of it if it only passes calls on."""
    if not _passes_on(module):
        yield module
        return
    for part in module.children():
        yield from _without_wrappers(part)


def _compiled_by_code(module: nn.Module) -> str | None:
    """Return the name of the module's class if the user's code has compiled it; None otherwise."""
    if type(module).__name__ == "OptimizedModule":
        return type(module._orig_mod).__name__
    return None


def _to_channels_last(
    _: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return tuple(map(_in_layout, inputs)), {name: _in_layout(value) for name, value in named.items()}


def _in_layout(value: Any) -> Any:
    if isinstance(value, Tensor) and value.dim() == 4:
        return value.contiguous(memory_format=torch.channels_last)
    return value


def _recompute_activations(module: nn.Module, classes: tuple[str, ...]) -> int:
    """Recompute the activations of parts of a module in the backward pass; return the number of parts.

    `classes` are names of classes, or `EVERY_BLOCK`, which selects modules of the same class that are in one container.
    """
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
        CheckpointImpl,
        CheckpointWrapper,
        apply_activation_checkpointing,
        checkpoint_wrapper,
    )

    if any(isinstance(part, CheckpointWrapper) for part in module.modules()):
        return 0
    chosen = (
        set(map(id, _blocks(module)))
        if classes == (EVERY_BLOCK,)
        else {id(part) for part in module.modules() if type(part).__name__ in classes and part is not module}
    )
    apply_activation_checkpointing(
        module,
        checkpoint_wrapper_fn=functools.partial(checkpoint_wrapper, checkpoint_impl=CheckpointImpl.NO_REENTRANT),
        check_fn=lambda part: id(part) in chosen,
    )
    return len(chosen)


def _blocks(module: nn.Module) -> Iterator[nn.Module]:
    """Yield the outermost modules with parts and weights that share a container with others of their class."""
    counts = Counter(type(part) for part in module.children())
    for part in module.children():
        shares = isinstance(module, (nn.ModuleList, nn.Sequential)) and counts[type(part)] > 1
        if shares and any(True for _ in part.children()) and any(True for _ in part.parameters()):
            yield part
        else:
            yield from _blocks(part)


def run_as_written(module: nn.Module) -> None:
    """Let a copy of a module that was executed with options run without them: not compiled, nothing recomputed."""
    for part in module.modules():
        part._compiled_call_impl = None
        if type(part).__name__ == "CheckpointWrapper":
            vars(part)["checkpoint_fn"] = lambda wrapped, *arguments, **options: wrapped(*arguments, **options)


class LoaderArguments:
    """Within its context, every DataLoader that this process builds uses a setting's arguments."""

    def __init__(self, options: LoaderOptions) -> None:
        """Only the arguments that `options` states are replaced."""
        self._replaced, self._built = options.replaced, 0
        self._original_init = _LOADER.__init__

    def __enter__(self) -> Self:
        """Begin to replace arguments."""
        init = self._original_init

        @functools.wraps(init)
        def observed(loader: Any, *arguments: Any, **given: Any) -> None:
            init(loader, *arguments[:2], **self._merged(arguments, given))

        if self._replaced:
            _LOADER.__init__ = observed
        return self

    def __exit__(self, *_: object) -> None:
        _LOADER.__init__ = self._original_init

    def check(self) -> None:
        """Raise Unsupported if arguments were to be replaced, but no DataLoader was built."""
        if self._replaced and not self._built:
            listed = ", ".join(f"loader.{name}={value}" for name, value in self._replaced.items())
            raise Unsupported(f"{listed} has no effect: the training data comes from no DataLoader of torch")

    def _merged(self, arguments: tuple[Any, ...], options: dict[str, Any]) -> dict[str, Any]:
        self._built += 1
        merged = {**dict(zip(_POSITIONAL, arguments[2:], strict=False)), **options, **self._replaced}
        if merged.get("num_workers"):
            return merged
        for name in ("prefetch_factor", "persistent_workers"):  # torch refuses both if there are no workers
            if self._replaced.get(name):
                raise Unsupported(f"loader.{name} needs workers, and this loader has none: set loader.num_workers too")
            merged.pop(name, None)
        return merged


_POSITIONAL = (
    *("shuffle", "sampler", "batch_sampler", "num_workers", "collate_fn", "pin_memory", "drop_last"),
    *("timeout", "worker_init_fn", "multiprocessing_context", "generator"),
)
"""Arguments of DataLoader that may be given by position, after the data set and the batch size."""
