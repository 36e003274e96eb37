"""`loop: script`: the user's own script without a Lightning Trainer, whose steps are watched through torch's hooks.

A step ends when every optimiser of the script has made its step, or as the script reports. For the first few steps,
hooks on all modules show what a step is fed with and in which precision it computes. Then they are removed, because
they would slow down every module, and only the optimisers' hook and the loaders remain.

The script runs in the main thread, as it would by itself. The measurement runs in a second thread, and the two take
turns: while one of them works, the other one waits.
"""

from __future__ import annotations

import inspect
import itertools
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar
from weakref import WeakKeyDictionary, WeakSet, ref

import torch
from torch.distributed import get_world_size, is_available, is_initialized
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.data import dataloader

from accelsweep.errors import InputError
from accelsweep.heartbeat import Heartbeat
from accelsweep.results import UNSEEN_PRECISION
from accelsweep.worker.loops.execution import ModuleExecution
from accelsweep.worker.loops.loop import Measured, StepListener, check_first_batch, first_learning_rate
from accelsweep.worker.loops.token_count import TokenCounter
from accelsweep.worker.rank_setup import RankPlace
from accelsweep.worker.run_spec import RunSpec
from accelsweep.worker.script_quality import ScriptQuality

_T = TypeVar("_T")

WATCHED_STEPS = 3
"""The number of steps during which modules are watched."""

STRATEGIES = {"DistributedDataParallel": "ddp", "FullyShardedDataParallel": "fsdp", "DataParallel": "dp"}
"""Classes that wrap a module -> the strategy's name."""

UNSEEN_STRATEGY = "unknown"
"""The strategy of ranks whose model is in no such wrapper."""

_REMEDY = "set samples_per_step in accelsweep.yaml"


@dataclass
class Fed:
    """What a step was fed with.

    `forward` contains the first two dimensions of each batch that the model was called with, `tokens` the number of
    tokens in each of them (0 if they are no tokens), and `loaders` the length of each batch that a loader yielded.
    `reported` is the number of samples that the script reported.
    """

    forward: list[tuple[int, ...]] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    loaders: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    reported: int = 0

    def follow(self, before: Fed) -> None:
        """Put what `before` contains before what this step was fed with."""
        self.forward[:0], self.tokens[:0] = before.forward, before.tokens
        self.reported += before.reported
        for loader, sizes in before.loaders.items():
            self.loaders[loader][:0] = sizes


class SampleCount:
    """Counts the samples of a step, by the loader that feeds the model if there is one.

    A loader takes precedence over the model's calls, because a step may call the model several times for one batch.
    """

    loader: int | None = None

    def __init__(self, steps: list[Fed], batch_size: int, stated: int | None) -> None:
        """`steps` are the watched ones. `stated` is the number of samples in a batch, if the project states it.

        Raises InputError if the steps do not show how many samples they contain.
        """
        self._is_reported = all(step.reported for step in steps)
        if self._is_reported:
            self.batch_size, self.batches, self.tokens_per_sample = steps[0].reported, 1, None
            self.has_tokens = False
            return
        if not all(step.forward for step in steps):
            raise InputError(
                f"a step called no module of torch with a tensor, so its samples cannot be counted: {_REMEDY}, or call "
                "accelsweep.samples(COUNT) in each step"
            )
        dimension = _sample_dimension(steps, batch_size)
        called = [[shape[dimension] for shape in step.forward] for step in steps]
        fetched = defaultdict[int, list[int]](list)
        for step in steps:
            for loader, sizes in step.loaders.items():
                fetched[loader] += sizes
        self.loader = next(
            (
                loader
                for loader, sizes in fetched.items()
                if dimension == 0 and len(sizes) >= len(steps) and not {*sizes}.isdisjoint(itertools.chain(*called))
            ),
            None,
        )
        batches = list(itertools.chain(*called)) if self.loader is None else fetched[self.loader]
        self.batches = round(len(batches) / len(steps))  # a loader may be one batch ahead
        self.batch_size = stated or batches[0]
        self._usual = stated * self.batches if stated else sum(called[-1])
        ratios = {
            tokens / size
            for step, sizes in zip(steps, called, strict=True)
            for tokens, size in zip(step.tokens, sizes, strict=True)
        }
        self.tokens_per_sample = ratios.pop() if len(ratios) == 1 else None
        self.has_tokens = any(tokens for step in steps for tokens in step.tokens)
        if stated:
            self.loader = None
        elif self.loader is None and len({sum(sizes) for sizes in called}) > 1:
            found = " or ".join(str(sum(sizes)) for sizes in called)
            raise InputError(f"steps contain {found} samples: {_REMEDY}")

    def take(self, fed: Fed) -> int:
        """Return how many samples the script reported or its loader yielded, and take them out of `fed`."""
        if self._is_reported:
            samples, fed.reported = fed.reported, 0
            return samples
        if self.loader is None:
            return self._usual
        sizes = fed.loaders[self.loader]
        samples = sum(sizes)
        sizes.clear()
        return samples


def _sample_dimension(steps: list[Fed], batch_size: int) -> int:
    """Return the dimension that counts samples: the second one if only that has the batch size that was asked for."""
    shapes = [shape for step in steps for shape in step.forward]
    second = all(len(shape) > 1 and shape[0] != batch_size and shape[1] == batch_size for shape in shapes)
    return 1 if second else 0


@dataclass
class Arithmetic:
    """What the watched steps showed about the model: its outermost module, and the autocast inside it."""

    module: Any = None
    autocast: set[torch.dtype | None] = field(default_factory=set)

    @property
    def device(self) -> torch.device:
        """The device of the module's parameters."""
        device: torch.device = next(iter(self.module.parameters())).device
        return device

    @property
    def precision(self) -> str:
        """The precision, in Lightning's words."""
        return precision_of(self.autocast, {each.dtype for each in self.module.parameters() if each.requires_grad})


def precision_of(autocast: Collection[torch.dtype | None], parameters: Collection[torch.dtype]) -> str:
    """Return the precision in Lightning's words, given the types of autocast and of the parameters that are trained."""
    mixed = {torch.bfloat16: "bf16-mixed", torch.float16: "16-mixed"}
    true = {torch.bfloat16: "bf16-true", torch.float16: "16-true", torch.float64: "64-true"}
    found = [mixed[dtype] for dtype in autocast if dtype in mixed]
    return found[0] if found else next((name for dtype, name in true.items() if dtype in parameters), "32-true")


class WatchedSteps:
    """Watches the script's steps, and passes them on to the listener of a phase."""

    def __init__(self, spec: RunSpec, measure: Callable[[], None], metric: ScriptQuality | None = None) -> None:
        """`measure` is called, in a thread of its own, once the first steps have been watched. It must not raise.

        `metric` is the quality metric, if the script is to go on to its own end after the measurement.
        """
        self._measure, self.metric = measure, metric
        self._heartbeat = Heartbeat(spec.heartbeat(RankPlace.of(spec).rank))
        # Weak, because a script may replace an optimiser, for which no step must wait.
        self.optimizers = WeakKeyDictionary[torch.optim.Optimizer, None]()
        self._waiting_for = WeakSet[torch.optim.Optimizer]()
        self._only_optimizer: Callable[[], torch.optim.Optimizer | None] = _no_optimizer
        self.watched: list[Fed] = []
        self.arithmetic = Arithmetic()
        self.count: SampleCount | None = None
        self.epoch_ends: list[int] = []
        self._fed, self._depth, self._steps, self._optimizer_steps = Fed(), 0, 0, 0
        self._listener: StepListener | None = None
        self._phase_over, self._resume = threading.Semaphore(0), threading.Semaphore(0)
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None
        self._reports_steps = self._goes_on = False
        self._module_hooks = [register_module_forward_pre_hook(self._enter), _forward_hook(self._leave)]
        self._watch_loaders()
        register_optimizer_step_post_hook(self._optimizer_stepped)
        self._watch_scaler()
        self.is_resumed = False
        self._watch_resuming()
        self.execution = ModuleExecution(spec.config)
        self.execution.watch_wrappers()
        self.tokens = TokenCounter()

    # What the script does, in its own thread.

    def _enter(self, *_: Any) -> None:
        self._depth += 1

    def _leave(self, module: torch.nn.Module, given: Any, *rest: Any) -> None:
        self._depth -= 1
        if not module.training or not torch.is_grad_enabled():
            return
        self._note_autocast(module)
        known = self.arithmetic.module
        if self._depth or known not in (None, module):
            return
        if known is None:
            if not any(parameter.requires_grad for parameter in module.parameters()):
                return  # a loss or a metric
            self.arithmetic.module = module
        options = rest[0] if len(rest) > 1 else {}
        first = first_tensor((given, options))
        if first is not None:
            self._fed.forward.append(tuple(first.shape[:2]))
            self._fed.tokens.append(first.numel() if first.ndim == 2 and not first.is_floating_point() else 0)

    def _note_autocast(self, module: torch.nn.Module) -> None:
        parameter = next(iter(module.parameters(recurse=False)), None)
        if parameter is not None:
            self.arithmetic.autocast.add(_autocast_dtype(parameter.device.type))

    def _watch_loaders(self) -> None:
        iterator: Any = dataloader._BaseDataLoaderIter
        fetch = iterator.__next__

        def observed(loader: Any) -> Any:
            key = id(loader._dataset)
            try:
                batch = fetch(loader)
            except StopIteration:
                if self.count is not None and self.count.loader == key:
                    self.epoch_ends.append(self._steps)
                raise
            if self._wants_batches(key) and (first := first_tensor(batch)) is not None:
                self._fed.loaders[key].append(first.shape[0])
                if self.count is not None and self.count.has_tokens:
                    self.tokens.add(batch)
            return batch

        iterator.__next__ = observed

    def _wants_batches(self, loader: int) -> bool:
        return not self._goes_on and (self.count is None or self.count.loader == loader)

    def _watch_scaler(self) -> None:
        """Count the steps that a gradient scaler skips, because the work for them was done."""
        scaler: Any = torch.cuda.amp.GradScaler if not hasattr(torch.amp, "GradScaler") else torch.amp.GradScaler
        scale = scaler.step

        def observed(given: Any, optimizer: torch.optim.Optimizer, *arguments: Any, **options: Any) -> Any:
            before = self._optimizer_steps
            result = scale(given, optimizer, *arguments, **options)
            if self._optimizer_steps == before:
                self._optimizer_stepped(optimizer)
            return result

        scaler.step = observed

    def _watch_resuming(self) -> None:
        """Note whether the script gives an optimiser the state of earlier steps."""
        optimizer: Any = torch.optim.Optimizer
        load = optimizer.load_state_dict

        def observed(given: Any, state_dict: Any) -> Any:
            # Accelerate moves every new optimiser's state to the device, which is still empty then.
            self.is_resumed |= self._thread is None and bool(state_dict.get("state"))
            return load(given, state_dict)

        optimizer.load_state_dict = observed

    def steps(self, batches: Iterable[_T]) -> Iterable[_T]:
        """Yield the batches; each request for the next one ends a step, and optimisers end none."""
        self._reports_steps, begun = True, False
        for batch in batches:
            if begun:
                self._step_ended()
            begun = True
            yield batch
        if begun:
            self._step_ended()
            self.epoch_ends.append(self._steps)

    def samples(self, count: int) -> None:
        """Add samples to the current step."""
        self._fed.reported += count

    def quality(self, value: float) -> None:
        """Take a value of the quality metric, if one is wanted."""
        if self.metric is not None:
            self.metric.reported(value)

    def _optimizer_stepped(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        self._optimizer_steps += 1
        if (optimizer is self._only_optimizer() or self._all_have_stepped(optimizer)) and not self._reports_steps:
            self._step_ended()

    def _all_have_stepped(self, optimizer: torch.optim.Optimizer) -> bool:
        if optimizer in self.optimizers:
            self._waiting_for.discard(optimizer)
        else:
            self.optimizers[optimizer] = None
            self._waiting_for.clear()  # a step ends with the optimiser that appeared last
            if self.watched:
                self._fed.follow(self.watched[-1])  # which was only a part of a step
                self.watched.clear()
        if self._waiting_for:
            return False
        self._waiting_for = WeakSet(self.optimizers)
        self._only_optimizer = ref(optimizer) if len(self.optimizers) == 1 else _no_optimizer
        return True

    def _step_ended(self) -> None:
        self._steps += 1
        if self._listener is not None and self.count is not None:
            self.tokens.end_step()
            self._pass_on(self._listener, self.count.take(self._fed))
        elif self._goes_on:
            self._heartbeat.step(pauses=True)
        elif self._thread is None:
            fed, self._fed = self._fed, Fed()
            self._watch(fed)
        else:
            raise Measured  # the script has caught the first one

    def _watch(self, fed: Fed) -> None:
        self.watched.append(fed)
        self._heartbeat.step(pauses=len(self.watched) >= WATCHED_STEPS)
        if len(self.watched) < WATCHED_STEPS:
            return
        for hook in self._module_hooks:
            hook.remove()
        self.execution.optimizers = self.optimizers
        self.execution.watch()  # only now, because torch would compile the hooks into the model
        self._thread = threading.Thread(target=self._run_measurement, daemon=True)
        self._thread.start()
        self._wait_for_measurement()

    def _pass_on(self, listener: StepListener, samples: int) -> None:
        try:
            if self.execution.is_watching:
                self.execution.stop()
                self.execution.check()
            enough = listener.step_done(samples, None)
        except BaseException as error:  # noqa: BLE001  the measurement gets it, because a script may catch it
            self._error, enough = error, True
        self._heartbeat.step(pauses=enough)
        if enough:
            self._listener = None
            self._phase_over.release()
            self._wait_for_measurement()

    def _wait_for_measurement(self) -> None:
        self._resume.acquire()
        if self._listener is None and not self._goes_on:
            raise Measured

    def script_ended(self) -> None:
        """End the measurement, now that the script has ended; if it waits for more steps, it fails."""
        if self._thread is None:
            return
        if not self._goes_on:
            self._error = InputError(
                f"training ended by itself after {self._steps} steps, before the measurement was complete: let the "
                "script train longer, for example for more epochs, or shorten the window, as measure=quick does"
            )
        self._phase_over.release()
        self._thread.join()

    # The measurement, in its own thread.

    def _run_measurement(self) -> None:
        try:
            self._measure()
        finally:
            self._listener = None
            self._resume.release()

    def drive(self, listener: StepListener) -> None:
        """Let the script train until `listener` ends the phase. Raises InputError if the script ends before that."""
        self.epoch_ends.clear()
        self.tokens.restart()
        self._steps = 0
        listener.begin()
        self._listener = listener
        self._resume.release()
        self._phase_over.acquire()
        if self._error is not None:
            raise self._error

    @property
    def reports_samples(self) -> bool:
        """Whether the script reports the samples of its steps itself."""
        return all(step.reported for step in self.watched)

    @property
    def is_timed(self) -> bool:
        """Whether the script's steps are being measured now."""
        return self._listener is not None

    def go_on(self) -> None:
        """Let the script train to its own end, and return when it has ended."""
        self._goes_on = True
        self._resume.release()
        self._phase_over.acquire()


_running: list[ScriptLoop] = []


def running_loop() -> ScriptLoop:
    """Return the loop of this process's script; its first steps must have been watched."""
    (loop,) = _running
    return loop


class ScriptLoop:
    """The training of the user's script, which every phase continues."""

    name = "script"
    accumulate = 1
    optimizer_steps = None
    teardown_error: BaseException | None = None

    def __init__(self, spec: RunSpec, steps: WatchedSteps) -> None:
        """Read back how the script trains. Raises InputError if that is not what the setting asks for."""
        entry = spec.config.entry
        assert entry is not None, "the caller checks"
        if steps.is_resumed:
            raise InputError(
                "the script resumed an earlier training, whose state it gave to its optimiser: let it begin anew, for "
                "example by naming {run_dir}, a new folder for each run, as the folder of its results"
            )
        self._steps, self.quality, self.execution = steps, steps.metric, steps.execution
        self.tokens = steps.tokens
        self.module = steps.arithmetic.module
        if self.module is None and not steps.reports_samples:
            raise InputError(
                "no module of torch with trainable parameters was called before an optimiser's step: if the model is "
                "not a module of torch, call accelsweep.samples(COUNT) in each step"
            )
        self.device = torch.device(spec.config.accelerator) if self.module is None else steps.arithmetic.device
        self.precision = UNSEEN_PRECISION if self.module is None else steps.arithmetic.precision
        self.strategy = strategy_of(self.module, spec.world_size)
        self.optimizer = ", ".join(type(optimizer).__name__ for optimizer in steps.optimizers)
        self.epoch_ends = steps.epoch_ends
        _check_effective(spec, self.device)
        steps.count = SampleCount(steps.watched, spec.config.batch_size, entry.samples_per_step)
        self.batch_size = steps.count.batch_size
        self.batches_per_step, self.tokens_per_sample = steps.count.batches, steps.count.tokens_per_sample
        check_first_batch(spec, steps.count.batch_size)
        _running.append(self)

    @property
    def learning_rate(self) -> float | None:
        """The current learning rate of the first parameter group."""
        return first_learning_rate(list(self._steps.optimizers))

    def train_to_end(self) -> None:
        """Let the script train to its own end."""
        self._steps.go_on()

    def drive(self, listener: StepListener) -> None:
        """Let the script train until `listener` ends the phase."""
        if hasattr(torch, self.device.type) and hasattr(getattr(torch, self.device.type), "set_device"):
            getattr(torch, self.device.type).set_device(self.device)  # it is another one in another thread
        self._steps.drive(listener)


def strategy_of(module: torch.nn.Module | None, ranks: int) -> str:
    """Return the strategy by which the ranks of a module exchange gradients, or `UNSEEN_STRATEGY`.

    The wrapper need not be the outermost module: Fabric and compiled models have another one around it.
    """
    if ranks == 1:
        return "single_device"
    names = [] if module is None else [type(each).__name__ for each in module.modules()]
    sharded = any(name.startswith("FSDP") for name in names)  # classes that `fully_shard` makes
    return next((STRATEGIES[name] for name in names if name in STRATEGIES), "fsdp" if sharded else UNSEEN_STRATEGY)


def _check_effective(spec: RunSpec, device: torch.device) -> None:
    config = spec.config
    ranks = get_world_size() if is_available() and is_initialized() else 1
    found = config.accelerator if (device.type == "cpu") != config.on_gpu else device.type
    for axis, asked, reached in (
        ("devices and num_nodes", f"{spec.world_size} ranks", f"{ranks} ranks"),
        ("accelerator", config.accelerator, found),
    ):
        if asked != reached:
            raise InputError(
                f"{axis}: the setting asks for {asked}, but the script trains with {reached}: in accelsweep.yaml, name "
                "the script's own option for the axis under axes, or its own values under values"
            )


def _no_optimizer() -> None:
    """Stand for a reference to an optimiser where there are none or several."""


def _autocast_dtype(device: str) -> torch.dtype | None:
    """Return the type that autocast computes in on this kind of device at the moment; None without autocast."""
    if not torch.is_autocast_enabled() and not torch.is_autocast_cpu_enabled():
        return None
    if device == "cpu":
        return torch.get_autocast_cpu_dtype() if torch.is_autocast_cpu_enabled() else None
    return torch.get_autocast_gpu_dtype() if torch.is_autocast_enabled() else None


def _forward_hook(hook: Callable[..., None]) -> Any:
    """Register a hook that also gets a module's keyword arguments, if this version of torch passes them on."""
    options = inspect.signature(register_module_forward_hook).parameters
    return register_module_forward_hook(
        hook, always_call=True, **{"with_kwargs": True} if "with_kwargs" in options else {}
    )


def first_tensor(value: Any) -> torch.Tensor | None:
    """Return the first tensor with a dimension in a batch or in arguments, which may be nested; None without one."""
    if isinstance(value, torch.Tensor):
        return value if value.ndim else None
    parts = value if isinstance(value, (list, tuple)) else value.values() if isinstance(value, Mapping) else ()
    return next((found for part in parts if (found := first_tensor(part)) is not None), None)
