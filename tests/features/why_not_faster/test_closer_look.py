"""One comparison that nothing explains is profiled without being asked, and never at anybody's expense."""

from __future__ import annotations

from pathlib import Path

import pytest
from home import Home

from accelsweep.errors import InputError
from accelsweep.features.profile import command
from accelsweep.features.profile.model import PROFILE_FILE, profiles_folder
from accelsweep.features.why_not_faster import closer_look
from accelsweep.features.why_not_faster.model import Cause, Explanation, WhyNotFaster
from accelsweep.records.estimates import Verdict
from accelsweep.records.findings import Findings
from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import Manifest


@pytest.fixture
def profiled(monkeypatch):
    """The settings that are profiled, instead of profiling them."""
    names = []
    monkeypatch.setattr(command, "profile_setting", lambda folder, setting, steps, report: names.append(setting))
    return names


def findings_of(folder: SweepFolder, *causes: Cause | None) -> Findings:
    """Return the example's findings with an explanation for each of these causes."""
    from accelsweep.analysis.analyse_sweep import analyse_folder

    findings = analyse_folder(folder)
    baseline, *others = [setting for setting in findings.settings if setting.measured]
    explanations = [
        Explanation(
            setting=setting.setting,
            label=setting.label,
            hardware=setting.hardware,
            against=baseline.setting,
            changed=("batch_size",),
            verdict=Verdict.same,
            cause=cause,
            evidence="",
        )
        for setting, cause in zip(others, causes, strict=False)
    ]
    section = WhyNotFaster(explanations=tuple(explanations))
    return findings.model_copy(update={"sections": {"why_not_faster": section}})


def settings_of(findings: Findings) -> list[Explanation]:
    return list(findings.sections["why_not_faster"].explanations)


def test_the_first_comparison_without_a_cause_is_profiled_with_its_baseline(example_sweep, profiled):
    findings = findings_of(example_sweep, Cause.waiting_for_data, None, None)
    assert closer_look.profile_one_pair(example_sweep, findings)
    unexplained = settings_of(findings)[1]
    assert profiled == [unexplained.against, unexplained.setting]


def test_a_sweep_whose_comparisons_have_causes_is_left_alone(example_sweep, profiled):
    assert not closer_look.profile_one_pair(example_sweep, findings_of(example_sweep, Cause.waiting_for_data))
    assert not closer_look.profile_one_pair(example_sweep, findings_of(example_sweep))
    assert not profiled


@pytest.mark.parametrize(
    "changes",
    [{"options": {"analysis": {"profile": False}}}, {"site": {"name": "far", "scheduler": "slurm"}}],
    ids=["switched off", "on a cluster"],
)
def test_nothing_is_profiled_where_it_is_not_wanted(example_sweep, profiled, changes):
    manifest = Manifest.read(example_sweep.manifest)
    plain = manifest.model_dump(mode="json")
    for key, value in changes.items():
        plain[key] = {**plain[key], **value}
    Manifest.model_validate(plain).write(example_sweep.manifest)
    assert not closer_look.profile_one_pair(example_sweep, findings_of(example_sweep, None))
    assert not profiled


def test_slow_steps_are_not_profiled_unasked(example_sweep, profiled, monkeypatch):
    monkeypatch.setattr(closer_look, "MAX_SECONDS", 1e-3)
    assert not closer_look.profile_one_pair(example_sweep, findings_of(example_sweep, None))
    assert not profiled


def test_one_pair_is_profiled_per_sweep(example_sweep, profiled):
    file = profiles_folder(example_sweep) / "any" / PROFILE_FILE
    file.parent.mkdir(parents=True)
    file.touch()
    assert not closer_look.profile_one_pair(example_sweep, findings_of(example_sweep, None))
    assert not profiled


@pytest.mark.parametrize("error", [InputError("the disk is full"), OSError("the disk is full")])
def test_a_profile_that_fails_is_no_failure_of_the_sweep(example_sweep, monkeypatch, capsys, error):
    def fail(*_):
        raise error

    monkeypatch.setattr(command, "profile_setting", fail)
    assert not closer_look.profile_one_pair(example_sweep, findings_of(example_sweep, None))
    assert capsys.readouterr().err == "not profiled: the disk is full\n"


NARROW = '''
import torch
from torch import nn
import lightning as L


class Module(L.LightningModule):
    """Many narrow layers, whose products are slower in bfloat16."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(*(nn.Linear(16, 16) for _ in range(60)), nn.Linear(16, 10))

    def training_step(self, batch):
        return nn.functional.cross_entropy(self.layers(batch[0]), batch[1])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.01)


class Data(L.LightningDataModule):
    def __init__(self, batch_size=32):
        super().__init__()
        self.batch_size = batch_size

    def train_dataloader(self):
        rows = torch.utils.data.TensorDataset(torch.randn(40960, 16), torch.randint(10, (40960,)))
        return torch.utils.data.DataLoader(rows, self.batch_size)
'''


@pytest.mark.real
@pytest.mark.long  # two fresh interpreters under the profiler after a whole sweep
def test_a_real_sweep_names_the_operators_that_bfloat16_makes_slower(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.module("narrow", NARROW)
    options = ("accelerator=cpu", "threads=1", "loop=raw", "measure.min_seconds=0.3", "measure.quality_samples=null")
    own = ("model._target_=narrow.Module", "data._target_=narrow.Data", "precision=32-true,bf16-mixed")
    printed = home.accelsweep("run", *own, *options, "--name", "narrow").stdout
    folder = SweepFolder(tmp_path, "narrow")
    (explanation,) = settings_of(Findings.read(folder.findings))
    assert explanation.verdict is Verdict.slower
    if explanation.cause is Cause.same_arithmetic:
        pytest.skip("this processor multiplies no faster in bfloat16, which needs no profile")
    assert len(list(folder.root.glob("profiles/*/profile.json"))) == 2, printed
    assert explanation.cause in (Cause.slower_operators, Cause.casts, Cause.other_operations)
    assert "bf16-mixed is slower: " in printed
    again = home.accelsweep("run", *own, *options, "--name", "narrow").stdout
    assert "bf16-mixed is slower: " in again
