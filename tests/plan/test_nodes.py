"""A setting goes to the kind of node that has its device, and says so where none or several have."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from tiny_sweep import config_with

from accelsweep.config.site import Site
from accelsweep.devices.device_kind import Device
from accelsweep.errors import InputError
from accelsweep.planning.plan import make_plan
from accelsweep.planning.resources import device_models_for, site_for
from accelsweep.planning.unsupported import why_unsupported
from accelsweep.run_config import SettingConfig
from accelsweep.schedulers.slurm import job_resources

EPYC = {"accelerator": "cpu", "model": "AMD EPYC", "count": 64}
A100 = {"accelerator": "cuda", "model": "NVIDIA A100-SXM4-80GB", "count": 4}
H100 = {"accelerator": "cuda", "model": "NVIDIA H100 80GB HBM3", "count": 8}
KINDS = {
    "name": "mix",
    "scheduler": "slurm",
    "slurm": {"account": "physics", "partition": "gpu", "mem_mb": 64000},
    "kinds": [
        {"name": "plain", "nodes": 3, "inventory": [EPYC], "slurm": {"partition": "cpu", "mem_mb": None}},
        {"name": "old", "nodes": 2, "inventory": [EPYC, A100], "slurm": {"gpu_model": "a100"}},
        {"name": "new", "inventory": [EPYC, H100], "slurm": {"gpu_model": "h100", "max_minutes": 60}},
    ],
}
MIX = Site.model_validate(KINDS)


def setting(accelerator: str, **keys: object) -> SettingConfig:
    return config_with(accelerator=accelerator, **keys)


@pytest.mark.parametrize(
    ("accelerator", "kind"),
    [
        ("cpu", "plain"),
        ("cpu:old", "old"),
        ("cuda:new", "new"),
        ("cuda:h100", "new"),
        ("cuda:a100-80gb", "old"),
    ],
)
def test_a_setting_is_served_by_the_kind_of_node_that_has_its_device(accelerator: str, kind: str) -> None:
    served = site_for(setting(accelerator), MIX)
    assert served.name == f"mix: {kind}"
    assert served.slurm == MIX.of_kind(kind).slurm


def test_a_kind_inherits_from_the_site_what_it_leaves_out() -> None:
    plain, new = MIX.of_kind("plain").slurm, MIX.of_kind("new").slurm
    assert (plain.account, plain.partition, plain.mem_mb) == ("physics", "cpu", None)
    assert (new.account, new.partition, new.mem_mb, new.max_minutes) == ("physics", "gpu", 64000, 60)
    assert Site.model_validate(MIX.model_dump(mode="json")) == MIX, "a manifest gives back what was planned"


@pytest.mark.parametrize(
    ("accelerator", "words"),
    [
        ("cuda", "set accelerator=cuda:old or accelerator=cuda:new"),
        ("cuda:odl", "has no such kind of node (did you mean 'old'?); it has: plain, old, new"),
        ("mps", "accelerator=mps: the site 'mix' has no such kind of node"),
    ],
)
def test_no_kind_or_several_are_refused_by_name(accelerator: str, words: str) -> None:
    with pytest.raises(InputError) as refused:
        why_unsupported(setting(accelerator), MIX)
    assert words in str(refused.value)


def test_a_machine_without_the_model_leaves_a_row_that_names_what_it_has() -> None:
    here = Site(name="here", inventory=(Device(**EPYC), Device(**A100), Device(**H100)))
    assert why_unsupported(setting("cuda:h100", devices=8), here) is None
    assert why_unsupported(setting("cuda:a100", devices=8), here) is not None
    reason = why_unsupported(setting("cuda:l4"), here)
    assert reason == "the site 'here' has no cuda:l4; it has: NVIDIA A100-SXM4-80GB, NVIDIA H100 80GB HBM3"


@pytest.mark.parametrize(("whole", "own", "bounding"), [(None, 4, "mix: new"), (4, 8, "mix"), (4, None, "mix")])
def test_a_setting_keeps_to_the_limit_of_its_kind_and_to_that_of_the_whole_site(whole, own, bounding) -> None:
    *others, new = KINDS["kinds"]
    limited = {**new, "slurm": {**new["slurm"], "max_gpus": own}}
    site = Site.model_validate({**KINDS, "slurm": {**KINDS["slurm"], "max_gpus": whole}, "kinds": [*others, limited]})
    reason = why_unsupported(setting("cuda:new"), site)
    assert reason is not None
    assert reason.endswith(f"would keep 8 from others; site.slurm.max_gpus of the site '{bounding}' allows 4")
    assert why_unsupported(setting("cuda:old"), site) is None


def test_a_run_may_use_devices_of_its_own_model_alone() -> None:
    here = Site(name="here", inventory=(Device(**EPYC), Device(**A100), Device(**H100)))
    assert device_models_for(setting("cuda:h100"), here) == ("NVIDIA H100 80GB HBM3",)
    assert device_models_for(setting("cuda:new"), MIX) == ("NVIDIA H100 80GB HBM3",)
    assert device_models_for(setting("cuda"), here) == (), "where no model is named, any will do"


def test_one_sweep_over_three_kinds_of_node_has_jobs_for_each(tmp_path: Path) -> None:
    site = tmp_path / "conf" / "site" / "mix.yaml"
    site.parent.mkdir(parents=True)
    site.write_text(yaml.safe_dump(KINDS))
    accelerators = "accelerator=cpu,cuda:old,cuda:h100"
    plan = make_plan(tmp_path, ["site=mix", accelerators, "+baseline.accelerator=cpu", "devices=1,4"], name="three")
    manifest = plan.manifest
    jobs = {
        needs.node_kind: job_resources(needs, manifest.site.of_kind(needs.node_kind).slurm)
        for needs in (block.resources for block in manifest.blocks)
    }
    asked = {kind: (job["slurm_partition"], job["gpu_model"], job["gpu"]) for kind, job in jobs.items()}
    assert asked == {"plain": ("cpu", None, 0), "old": ("gpu", "a100", 4), "new": ("gpu", "h100", 4)}
    runs = {name: {run.partition("-r")[0] for run in block.runs} for block in manifest.blocks for name in [block.name]}
    assert all(len(settings) == 2 for settings in runs.values()), "settings of one kind share a job, and no others"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"inventory": [EPYC]}, "site.inventory and site.kinds are both given"),
        ({"scheduler": "local"}, "site.kinds: needs site.scheduler=slurm"),
        ({"kinds": [KINDS["kinds"][0]] * 2}, "two kinds of node are called 'plain'"),
        ({"kinds": [{**KINDS["kinds"][0], "nods": 3}]}, "'nodes'"),
        ({"kinds": [{**KINDS["kinds"][0], "slurm": {"partitoin": "x"}}]}, "'partition'"),
        ({"kinds": [{**KINDS["kinds"][1], "slurm": {"gpu_model": "nvidia-a100"}}]}, "site.kinds.0.slurm.gpu_request"),
        (
            {"kinds": [*KINDS["kinds"][:2], {**KINDS["kinds"][2], "slurm": {"extra": "-A x"}}]},
            "site.kinds.2.slurm.extra",
        ),
        ({"kinds": [{**KINDS["kinds"][0], "slurm": {"head": {"minutes": 9}}}]}, "set site.slurm.head"),
    ],
)
def test_a_mistake_in_a_kind_is_named(tmp_path: Path, change: dict[str, object], words: str) -> None:
    site = tmp_path / "conf" / "site" / "mix.yaml"
    site.parent.mkdir(parents=True)
    site.write_text(yaml.safe_dump({**KINDS, **change}))
    with pytest.raises(InputError) as refused:
        make_plan(tmp_path, ["site=mix"], name="wrong")
    assert words in str(refused.value)
    assert not (tmp_path / "sweeps").exists()
