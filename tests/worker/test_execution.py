"""How a setting executes any module: compiled, in another layout, with recomputed activations; and any loader."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Iterator
from functools import partial
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from one_rank import DIGITS, MLP
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

from accelsweep.errors import Unsupported
from accelsweep.measure.compilation import CompileWatch
from accelsweep.measure.flops import training_flops
from accelsweep.results import Outcome
from accelsweep.run_config import LoaderOptions
from accelsweep.worker.loops.execution import LoaderArguments, ModuleExecution, without_options

BATCH = (torch.linspace(-1, 1, 4 * 3 * 8 * 8).reshape(4, 3, 8, 8), torch.tensor([0, 1, 2, 0]))


class CallsItsNetwork(pl.LightningModule):
    """`training_step` calls a part, and never the module itself."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3))

    def training_step(self, batch: Any, _: int) -> Any:
        return cross_entropy(self.net(batch[0]), batch[1])


class CallsItself(pl.LightningModule):
    """The module is the network."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.convolution, self.output = nn.Conv2d(3, 4, 3), nn.Linear(144, 3)

    def forward(self, images: Any) -> Any:
        return self.output(self.convolution(images).relu().flatten(1))

    def training_step(self, batch: Any, _: int) -> Any:
        return cross_entropy(self(batch[0]), batch[1])


class ComputesByItself(pl.LightningModule):
    """No module is called at all."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(192, 3))

    def training_step(self, batch: Any, _: int) -> Any:
        return cross_entropy(batch[0].flatten(1) @ self.weight, batch[1])


class Block(nn.Module):
    """A part of which a model has several."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(8, 8)
        self.calls = 0

    def forward(self, values: Any) -> Any:
        self.calls += 1
        return values + self.inner(values).relu()


class Uncounted(Block):
    def forward(self, values: Any) -> Any:
        return values + self.inner(values).relu()


class Blocks(nn.Module):
    def __init__(self, block: type[Block] = Block) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers, self.output = nn.ModuleList([block() for _ in range(3)]), nn.Linear(8, 3)

    def forward(self, values: Any) -> Any:
        for layer in self.layers:
            values = layer(values)
        return self.output(values)


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A backend that needs no C++ compiler: the graphs are the same."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    yield
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()


@pytest.fixture
def executed(spec: Any) -> Any:
    def first_step(call: Any, **options: Any) -> tuple[ModuleExecution, Any]:
        execution = ModuleExecution(spec(**options).config)
        with execution:
            result = call()
        execution.check()
        return execution, result

    return first_step


@pytest.mark.parametrize("made", [CallsItsNetwork, CallsItself])
def test_what_the_step_calls_is_compiled_with_the_same_result(made: Any, executed: Any, backend: None) -> None:
    plain, compiled = made(), made()
    loss = plain.training_step(BATCH, 0)
    execution, first = executed(lambda: compiled.training_step(BATCH, 0), compile="default")
    assert execution.compiled == ("Sequential" if made is CallsItsNetwork else "CallsItself",)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
    assert list(compiled.state_dict()) == list(plain.state_dict())
    loss.backward()
    first.backward()
    for ours, theirs in zip(compiled.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad)
    with torch.no_grad():
        compiled.training_step((BATCH[0][:3], BATCH[1][:3]), 0)
    assert nn.Module.__call__ is nn.Module._wrapped_call_impl, "no module is observed after the first step"


@pytest.mark.parametrize("made", [CallsItsNetwork, CallsItself])
def test_a_copy_of_a_compiled_module_computes_with_its_own_weights(made: Any, executed: Any, backend: None) -> None:
    module = made()
    executed(lambda: module.training_step(BATCH, 0), compile="default")
    average = copy.deepcopy(module)
    with torch.no_grad():
        for parameter in average.parameters():
            parameter.zero_()
        assert average.training_step(BATCH, 0) == pytest.approx(torch.log(torch.tensor(3.0)).item())


def test_a_step_that_calls_no_module_is_unsupported(executed: Any, backend: None) -> None:
    module = ComputesByItself()
    with pytest.raises(Unsupported, match=r"compile=default: nothing was compiled, because the first step called no"):
        executed(lambda: module.training_step(BATCH, 0), compile="default")


def test_code_that_compiles_by_itself_is_refused_beside_the_option(executed: Any, backend: None) -> None:
    compiled = torch.compile(nn.Linear(3, 3))
    with pytest.raises(Unsupported, match=r"compile=default, but the code compiles Linear itself"):
        executed(lambda: compiled(torch.ones(3)), compile="default")


def test_validation_before_training_is_not_taken_for_the_step(executed: Any, backend: None) -> None:
    module, other = nn.Linear(3, 3), nn.Linear(3, 2)

    def step() -> None:
        other.eval()(torch.ones(3))
        with torch.no_grad():
            other.train()(torch.ones(3))
        module(torch.ones(3))

    execution, _ = executed(step, compile="default")
    assert execution.compiled == ("Linear",)
    assert other._compiled_call_impl is None


def test_two_models_in_turn_are_both_compiled(executed: Any, backend: None) -> None:
    generator, discriminator = nn.Sequential(nn.Linear(3, 4)), nn.Sequential(nn.Linear(4, 1))
    execution, _ = executed(lambda: discriminator(generator(torch.ones(2, 3))), compile="default")
    assert execution.compiled == ("Sequential", "Sequential")


def test_recompilations_are_counted_with_the_shapes_that_caused_them(executed: Any, backend: None) -> None:
    module = CallsItsNetwork()
    executed(lambda: module.training_step(BATCH, 0), compile="default", compile_options={"dynamic": False})
    watch = CompileWatch()
    watch.start()
    for size in (4, 3, 4, 2):
        module.training_step((BATCH[0][:size], BATCH[1][:size]), 0)
    watch.stop()
    module.training_step((BATCH[0][:1], BATCH[1][:1]), 0)
    found = watch.recompilations
    assert found.count == 2
    assert "size mismatch at index 0. expected 4, actual 3" in found.reasons[0]


@pytest.mark.parametrize("made", [CallsItsNetwork, CallsItself])
def test_images_and_weights_are_stored_in_the_other_layout_with_the_same_result(made: Any, executed: Any) -> None:
    plain, other = made(), made()
    loss = plain.training_step(BATCH, 0)
    execution, first = executed(lambda: other.training_step(BATCH, 0), channels_last=True)
    torch.testing.assert_close(first, loss, rtol=1e-3, atol=1e-5)
    weight = next(other.parameters())
    assert weight.is_contiguous(memory_format=torch.channels_last)
    assert not weight.is_contiguous()
    share = execution.layout_metric()
    assert share is not None
    assert share.value == 1.0


def test_the_state_of_an_optimiser_that_has_begun_gets_the_layout_of_its_weights(spec: Any) -> None:
    module = nn.Conv2d(3, 4, 3)
    optimizer = torch.optim.Adam(module.parameters(), fused=True)
    module(BATCH[0]).sum().backward()
    optimizer.step()
    execution = ModuleExecution(spec(channels_last=True).config)
    execution.optimizers = [optimizer]
    optimizer.zero_grad()
    with execution:
        module(BATCH[0]).sum().backward()
    optimizer.step()
    assert optimizer.state[module.weight]["exp_avg"].stride() == module.weight.stride()


def test_frozen_modules_are_compiled_too(executed: Any, backend: None) -> None:
    backbone, head = nn.Linear(3, 3).requires_grad_(False), nn.Linear(3, 2)
    execution, _ = executed(lambda: head(backbone(torch.ones(3))), compile="default")
    assert execution.compiled == ("Linear", "Linear"), "a frozen part computes as well"


def test_stopping_within_a_call_stops(spec: Any) -> None:
    execution = ModuleExecution(spec(channels_last="auto").config)

    class Stops(nn.Linear):
        def forward(self, values: Any) -> Any:
            execution.stop()
            return super().forward(values)

    with execution:
        Stops(3, 3)(torch.ones(3))
        assert nn.Module.__call__ is nn.Module._wrapped_call_impl


def test_one_mistyped_class_among_several_is_refused(executed: Any) -> None:
    model = Blocks()
    with pytest.raises(Unsupported, match=r"activation_checkpointing=Blok would have no effect"):
        executed(lambda: model(torch.ones(2, 8)), activation_checkpointing=["Block", "Blok"])


def test_the_share_of_inputs_in_the_layout_tells_what_a_module_undoes(executed: Any) -> None:
    class Undoes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3)

        def forward(self, images: Any) -> Any:
            return self.second(self.first(images).contiguous())

    module = Undoes()
    execution, _ = executed(lambda: module(BATCH[0]), channels_last=True)
    share = execution.layout_metric()
    assert share is not None
    assert share.value == 0.5


def test_a_layout_without_images_is_unsupported_unless_it_is_auto(executed: Any) -> None:
    module = nn.Linear(3, 3)
    with pytest.raises(Unsupported, match="the model has no convolutions of images"):
        executed(lambda: module(torch.ones(3)), channels_last=True)
    execution, _ = executed(lambda: module(torch.ones(3)), channels_last="auto")
    assert execution.layout_metric() is None


@pytest.mark.parametrize("classes", ["blocks", "Block", ["Block"]])
def test_activations_are_recomputed_with_the_same_gradients(classes: Any, executed: Any) -> None:
    plain, recomputing, values = Blocks(), Blocks(), torch.ones(2, 8)
    plain(values).sum().backward()
    execution, result = executed(lambda: recomputing(values).sum(), activation_checkpointing=classes)
    result.backward()
    assert execution.checkpoints == 3
    for ours, theirs in zip(recomputing.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad)
    assert recomputing.layers[0].calls == 2, "forward, and once more in the backward pass"
    assert list(recomputing.state_dict()) == list(plain.state_dict())


def test_recomputation_is_not_counted_as_work_of_the_model(executed: Any) -> None:
    plain, recomputing, values = Blocks(), Blocks(), torch.ones(2, 8)
    executed(lambda: recomputing(values), activation_checkpointing="blocks")
    written = copy.deepcopy(recomputing)
    without_options(written)
    count = training_flops(lambda: plain(values).sum()).total
    assert training_flops(lambda: written(values).sum()).total == count
    assert written.layers[0].calls == recomputing.layers[0].calls + 1


def test_a_model_without_such_blocks_is_unsupported_and_says_what_it_has(executed: Any) -> None:
    module = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    with pytest.raises(Unsupported, match="no container of the model has several modules of one class"):
        executed(lambda: module(torch.ones(3)), activation_checkpointing="blocks")
    with pytest.raises(Unsupported, match=r"=Blok would have no effect: .* there are: Linear, ReLU"):
        executed(lambda: module(torch.ones(3)), activation_checkpointing="Blok")


def test_a_model_of_which_torch_makes_no_graph_is_not_called_compiled(executed: Any, backend: None) -> None:
    """A block that counts its calls cannot be traced where its activations are recomputed."""
    module, values = Blocks(), torch.ones(2, 8)
    with pytest.raises(Unsupported, match="nothing of Blocks was compiled, because torch made no graph of it"):
        executed(lambda: module(values), compile="default", activation_checkpointing="Block")


def test_options_combine(executed: Any, backend: None) -> None:
    plain, module, values = Blocks(Uncounted), Blocks(Uncounted), torch.ones(2, 8)
    options = {"compile": "default", "activation_checkpointing": "Uncounted"}
    execution, result = executed(lambda: module(values).sum(), **options)
    result.backward()
    plain(values).sum().backward()
    assert (execution.compiled, execution.checkpoints) == (("Blocks",), 3)
    for ours, theirs in zip(module.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad)


# Loaders


def built(options: LoaderOptions, *arguments: Any, **named: Any) -> DataLoader[Any]:
    with LoaderArguments(options) as loaders:
        loader: DataLoader[Any] = DataLoader(range(8), *arguments, **named)  # type: ignore[arg-type]
        loaders.check()
    return loader


def test_arguments_of_a_loader_are_replaced_wherever_the_code_gives_them() -> None:
    options = LoaderOptions(num_workers=2, prefetch_factor=4, persistent_workers=True)
    for loader in (
        built(options, 4),
        built(options, 4, False, None, None, 1),
        built(options, batch_size=4, num_workers=1, prefetch_factor=3, persistent_workers=False),
    ):
        assert (loader.batch_size, loader.num_workers, loader.prefetch_factor) == (4, 2, 4)
        assert loader.persistent_workers
    assert built(LoaderOptions(pin_memory=True), 4).pin_memory
    assert DataLoader(range(8), num_workers=1).num_workers == 1, "only within the context"  # type: ignore[arg-type]


def test_a_loader_that_loses_its_workers_loses_their_arguments() -> None:
    loader = built(LoaderOptions(num_workers=0), 4, num_workers=2, prefetch_factor=3, persistent_workers=True)
    assert (loader.num_workers, loader.prefetch_factor, loader.persistent_workers) == (0, None, False)
    assert built(LoaderOptions(num_workers=0), 4, num_workers=2, timeout=3.0).timeout == 0


def test_a_loader_without_workers_is_left_alone_beside_one_that_has_some() -> None:
    with LoaderArguments(LoaderOptions(prefetch_factor=4)) as loaders:
        training: DataLoader[Any] = DataLoader(range(8), num_workers=1)  # type: ignore[arg-type]
        validation: DataLoader[Any] = DataLoader(range(8))  # type: ignore[arg-type]
        loaders.check()
    assert (training.prefetch_factor, validation.prefetch_factor) == (4, None)


def test_arguments_without_effect_are_unsupported() -> None:
    with pytest.raises(Unsupported, match=r"loader.prefetch_factor=2 has no effect: no DataLoader has workers"):
        built(LoaderOptions(prefetch_factor=2), 4)
    with LoaderArguments(LoaderOptions(num_workers=2)) as loaders, pytest.raises(Unsupported, match="no DataLoader"):
        loaders.check()


# Runs

NETWORK = {"model": MLP, "data": DIGITS}


@pytest.mark.real
@pytest.mark.parametrize("loop", ["lightning", "raw"])
def test_runs_compile_and_recompute_in_both_loops(loop: str, run: Any, backend: None) -> None:
    result = run(**NETWORK, loop=loop, compile="default", matmul_precision="high")
    torch.set_float32_matmul_precision("highest")
    assert (result.outcome, result.reason) == (Outcome.measured, None)
    assert result.effective.compiled == ("MLP",)
    assert result.effective.matmul_precision == "high"
    assert result.metrics["recompilations"].value == 0
    assert result.metrics["graph_breaks"].value == 0
    assert result.metrics["compiled_graphs"].value >= 1


@pytest.mark.real
@pytest.mark.parametrize("loop", ["lightning", "raw"])
def test_gradients_are_accumulated_in_both_loops(loop: str, run: Any) -> None:
    result = run(**NETWORK, loop=loop, gradient_accumulation=2)
    assert (result.outcome, result.reason) == (Outcome.measured, None)
    assert result.effective.global_batch_size == 2 * result.effective.batch_size


@pytest.mark.real
def test_a_run_whose_option_has_no_effect_is_unsupported(run: Any) -> None:
    result = run(**NETWORK, channels_last=True)
    assert result.outcome is Outcome.unsupported
    assert "the model has no convolutions of images" in result.reason


@pytest.mark.real
@pytest.mark.long  # Inductor's C++ takes 20 s to build; with aot_eager, the same is tested above
@pytest.mark.skipif(shutil.which("c++") is None, reason="torch.compile needs a C++ compiler on a CPU")
@pytest.mark.parametrize("mode", ["default", "max-autotune"])
def test_a_run_compiles_with_inductor(mode: str, run: Any) -> None:
    result = run(**NETWORK, compile=mode)
    assert (result.outcome, result.reason) == (Outcome.measured, None)
    assert result.metrics["compile_seconds"].value > 0
