"""What a block's job asks for, and which nodes a setting runs on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from tiny_sweep import config_with

from accelsweep.config.site import Site
from accelsweep.config.sweep_options import Limits
from accelsweep.devices.device_kind import Device
from accelsweep.errors import InputError
from accelsweep.planning.plan import make_plan
from accelsweep.planning.resources import (
    allocated_gpus,
    combined,
    device_models_for,
    fits_in,
    idle_resources,
    max_runs_within,
    minutes,
    required_resources,
    resource_class,
    site_for,
    threads_per_rank,
    trial_jobs,
)
from accelsweep.planning.unsupported import why_unsupported
from accelsweep.run_config import SettingConfig
from accelsweep.schedulers.protocol import Resources
from accelsweep.schedulers.slurm import job_resources

NODE = (Device(accelerator="cpu", model="CPU", count=32), Device(accelerator="cuda", model="GPU", count=8))
CLUSTER = Site(
    name="cluster",
    scheduler="slurm",
    nodes=4,
    inventory=NODE,
    slurm={"cpus_per_gpu": 3, "gpu_model": "h100", "mem_mb": 64000},
)


def config(accelerator="cpu", devices=1, num_nodes=1, threads=None):
    return config_with(accelerator=accelerator, devices=devices, num_nodes=num_nodes, threads=threads)


def test_gpus_are_counted_over_all_nodes_and_cores_per_task():
    need = required_resources(config("cuda", 4, 2), CLUSTER)
    assert (need.nodes, need.tasks, need.gpus, need.cpus) == (2, 2, 8, 12)
    assert (need.gpu_model, need.mem_mb) == ("h100", 64000)


def test_a_cpu_setting_asks_for_no_gpu_model():
    need = required_resources(config("cpu", 2, threads=4), CLUSTER)
    assert (need.gpus, need.gpu_model, need.cpus) == (0, None, 8)


def test_no_more_cores_are_asked_for_than_a_node_has():
    assert required_resources(config("cpu", 8, threads=16), CLUSTER).cpus == 32


@pytest.mark.parametrize(
    ("setting", "threads"),
    [
        (config("cpu"), 32),
        (config("cpu", 3), 10),
        (config("cuda", 4), 3),
        (config("cuda", 4, 2), 3),
        (config("cuda", 4, threads=5), 5),
        (config("cpu", 8, threads=16), 16),
    ],
)
def test_a_rank_on_a_cluster_has_the_threads_that_its_setting_asks_for(setting, threads):
    """Independently of its block; and a CPU setting uses a node, not one of its cores."""
    assert threads_per_rank(setting, CLUSTER) == threads


def test_a_rank_on_a_cluster_has_no_more_threads_than_its_share_of_a_node():
    small = CLUSTER.model_copy(update={"inventory": (replace(NODE[0], count=8), NODE[1])})
    assert threads_per_rank(config("cuda", 4), small) == 2
    assert threads_per_rank(config("cpu", 16), small) == 1


def test_ranks_share_the_cores_of_one_machine_unless_the_setting_says_how_many():
    local = Site(name="local", inventory=NODE)
    assert (threads_per_rank(config("cuda", 4), local), threads_per_rank(config(threads=2), local)) == (None, 2)


def test_an_allocation_has_the_maximum_of_each_resource():
    both = combined([Resources(cpus=8), Resources(cpus=2, gpus=4, gpu_model="h100", nodes=2, tasks=2)], 3, Limits())
    assert (both.cpus, both.gpus, both.nodes, both.tasks, both.gpu_model) == (8, 4, 2, 2, "h100")
    assert both.minutes == minutes(3, Limits())


@pytest.mark.parametrize(
    ("setting", "answer"),
    [(Resources(), True), (Resources(gpus=2), True), (Resources(gpus=4), False), (Resources(cpus=9), False)],
)
def test_a_setting_fits_if_the_allocation_has_enough_of_everything(setting, answer):
    assert fits_in(setting, Resources(gpus=2, cpus=8)) is answer


def test_gpus_of_a_setting_must_be_on_its_node():
    two_nodes = Resources(nodes=2, gpus=4, cpus=8)
    assert fits_in(Resources(gpus=2), two_nodes)
    assert not fits_in(Resources(gpus=4), two_nodes)
    assert fits_in(Resources(gpus=4, nodes=2), two_nodes)


def test_minutes_are_the_time_limits_plus_start_up():
    limits = Limits(run_seconds=595, stop_grace_seconds=5)
    assert minutes(3, limits) == 32
    assert max_runs_within(limits, 32) == 3
    assert max_runs_within(limits, 31.9) == 2
    assert max_runs_within(limits, 1) == 0


def test_one_machine_has_one_class_and_a_cluster_one_per_kind_of_job():
    local = Site(name="local", inventory=NODE)
    assert resource_class(config("cpu"), local) == resource_class(config("cuda", 8), local)
    assert resource_class(config("cuda", 4), CLUSTER) != resource_class(config("cuda", 8, 2), CLUSTER)


def test_settings_with_fewer_devices_share_a_job_on_exclusive_nodes():
    """On shared nodes they get separate jobs: a setting with one GPU would leave the other seven idle."""
    shared = CLUSTER.model_copy(update={"slurm": CLUSTER.slurm.model_copy(update={"exclusive": False})})
    one, all_of_it = config("cuda", 1), config("cuda", 8)
    assert resource_class(one, CLUSTER) == resource_class(all_of_it, CLUSTER)
    assert resource_class(one, shared) != resource_class(all_of_it, shared)


@pytest.mark.parametrize(("nodes", "has_a_place"), [(1, True), (2, True), (3, False), (16, False)])
def test_a_one_node_baseline_never_idles_more_than_half_of_the_nodes(nodes, has_a_place):
    assert fits_in(Resources(gpus=1), Resources(nodes=nodes, gpus=8 * nodes)) is has_a_place


@pytest.mark.parametrize(
    ("jobs", "asked", "words"),
    [
        ({}, Resources(cpus=1), "whole nodes: 8 CPUs are allocated, 1 is used; site.slurm.exclusive=false shares them"),
        (
            {},
            Resources(nodes=2, tasks=2, cpus=4, gpus=4),
            "whole nodes: 16 CPUs are allocated, 8 are used, 8 GPUs are allocated, 4 are used; "
            "site.slurm.exclusive=false shares them",
        ),
        ({}, Resources(cpus=8, gpus=4), ""),
        ({"exclusive": False}, Resources(cpus=1), ""),
    ],
)
def test_idle_resources_of_exclusive_nodes_are_described(jobs, asked, words):
    inventory = [{"accelerator": "cpu", "model": "CPU", "count": 8}]
    inventory += [{"accelerator": "cuda", "model": "H100", "count": 4}] if asked.gpus else []
    site = Site.model_validate({"name": "box", "scheduler": "slurm", "inventory": inventory, "slurm": jobs})
    assert idle_resources(asked, site) == words


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
def test_a_setting_runs_on_the_kind_of_node_that_has_its_device(accelerator: str, kind: str) -> None:
    served = site_for(setting(accelerator), MIX)
    assert served.name == f"mix: {kind}"
    assert served.slurm == MIX.of_kind(kind).slurm


def test_a_kind_of_node_inherits_job_options_from_the_site() -> None:
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
def test_a_setting_without_exactly_one_kind_of_node_is_refused(accelerator: str, words: str) -> None:
    with pytest.raises(InputError) as refused:
        why_unsupported(setting(accelerator), MIX)
    assert words in str(refused.value)


def test_a_missing_device_model_is_unsupported_and_names_the_available_ones() -> None:
    here = Site(name="here", inventory=(Device(**EPYC), Device(**A100), Device(**H100)))
    assert why_unsupported(setting("cuda:h100", devices=8), here) is None
    assert why_unsupported(setting("cuda:a100", devices=8), here) is not None
    reason = why_unsupported(setting("cuda:l4"), here)
    assert reason == "the site 'here' has no cuda:l4; it has: NVIDIA A100-SXM4-80GB, NVIDIA H100 80GB HBM3"


@pytest.mark.parametrize(("whole", "own", "bounding"), [(None, 4, "mix: new"), (4, 8, "mix"), (4, None, "mix")])
def test_gpu_limits_of_the_kind_and_of_the_site_both_apply(whole, own, bounding) -> None:
    *others, new = KINDS["kinds"]
    limited = {**new, "slurm": {**new["slurm"], "max_gpus": own}}
    site = Site.model_validate({**KINDS, "slurm": {**KINDS["slurm"], "max_gpus": whole}, "kinds": [*others, limited]})
    reason = why_unsupported(setting("cuda:new"), site)
    assert reason is not None
    assert reason.endswith(f"would keep 8 from others; site.slurm.max_gpus of the site '{bounding}' allows 4")
    assert why_unsupported(setting("cuda:old"), site) is None


def test_a_run_uses_only_devices_of_its_model() -> None:
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
        ({"inventory": [EPYC]}, "site.inventory and site.kinds are both set"),
        ({"scheduler": "local"}, "site.kinds: requires site.scheduler=slurm"),
        ({"kinds": [KINDS["kinds"][0]] * 2}, "two kinds of node are named 'plain'"),
        ({"kinds": [{**KINDS["kinds"][0], "nods": 3}]}, "'nodes'"),
        ({"kinds": [{**KINDS["kinds"][0], "slurm": {"partitoin": "x"}}]}, "'partition'"),
        ({"kinds": [{**KINDS["kinds"][1], "slurm": {"gpu_model": "nvidia-a100"}}]}, "site.kinds.0.slurm.gpu_request"),
        (
            {"kinds": [*KINDS["kinds"][:2], {**KINDS["kinds"][2], "slurm": {"extra": "-A x"}}]},
            "site.kinds.2.slurm.extra",
        ),
        ({"kinds": [{**KINDS["kinds"][0], "slurm": {"driver": {"minutes": 9}}}]}, "set site.slurm.driver"),
    ],
)
def test_a_mistake_in_a_kind_of_node_is_named(tmp_path: Path, change: dict[str, object], words: str) -> None:
    site = tmp_path / "conf" / "site" / "mix.yaml"
    site.parent.mkdir(parents=True)
    site.write_text(yaml.safe_dump({**KINDS, **change}))
    with pytest.raises(InputError) as refused:
        make_plan(tmp_path, ["site=mix"], name="wrong")
    assert words in str(refused.value)
    assert not (tmp_path / "sweeps").exists()


def test_trial_jobs_cover_a_device_a_node_and_all_nodes_of_each_kind():
    cpu, gpu = ({"accelerator": kind, "model": "m", "count": 8} for kind in ("cpu", "cuda"))
    site = Site.model_validate({
        "name": "mine", "scheduler": "slurm", "slurm": {"max_minutes": 60, "cpus_per_gpu": 2},
        "kinds": [
            {"name": "plain", "inventory": [cpu], "nodes": 1},
            {"name": "a100", "inventory": [cpu, {**gpu, "count": 4}], "nodes": 2, "slurm": {"gpu_model": "a100"}},
        ],
    })  # fmt: skip
    found = [(size.node_kind, size.nodes, size.cpus, size.gpus, size.gpu_model) for size in trial_jobs(site)]
    assert found == [
        ("plain", 1, 8, 0, None),
        ("a100", 1, 2, 1, "a100"),
        ("a100", 1, 8, 4, "a100"),
        ("a100", 2, 8, 8, "a100"),
    ]
    assert {size.minutes for size in trial_jobs(site)} == {60}
    alike = Site(name="mine", scheduler="slurm", nodes=1, inventory=site.kinds[1].inventory)
    assert [(size.cpus, size.gpus) for size in trial_jobs(alike)] == [(8, 0), (1, 1), (4, 4)]


@pytest.mark.parametrize(
    ("override", "parts"),
    [
        ("++site.slurm.acount=me", ["site.slurm.acount", "'account'"]),
        ("site.slurm.mem_mb=300", ["site.slurm.mem_mb=300", "at least 1500"]),
        ("site.slurm.gpu_model='h100:4'", ["site.slurm.gpu_model", "sinfo"]),
        ("site.slurm.extra='--gres=gpu:1'", ["generic resources (GRES)", "use devices, and site.slurm.gpu_model"]),
        ("site.slurm.extra='--reservation=mine --mem 5G'", ["must not set the memory", "site.slurm.mem_mb"]),
        ("site.slurm.extra='-A mine'", ["must not set the account", "use site.slurm.account"]),
        (
            "site.slurm.gpu_model=nvidia_a100-sxm4-80gb",
            ["executor plugin", "gpu_request to per_node", "gpu_model to null", "site.slurm.constraint or"],
        ),
        ("site.slurm.max_minutes=5", ["site.slurm.max_minutes=5", "limits.run_seconds"]),
        ("site.probe=true", ["site.probe", "machine that plans"]),
        ("site.slurm.max_jobs=0", ["site.slurm.max_jobs=0", "at least 1"]),
        ("site.slurm.exclusive=perhaps", ["site.slurm.exclusive", "bool"]),
    ],
)
def test_a_mistake_in_the_site_is_named_with_its_key(home, override, parts):
    with pytest.raises(InputError) as caught:
        make_plan(home, ["site=slurm_example", "accelerator=cuda", override])
    assert all(part in str(caught.value) for part in parts), caught.value


def test_the_partitions_time_limit_bounds_blocks(home):
    command = ["experiment=quickstart", "site=slurm_example", "accelerator=cpu", "devices=1"]
    whole = make_plan(home, command).manifest
    cut = make_plan(home, [*command, "site.slurm.max_minutes=35"]).manifest
    assert len(cut.blocks) > len(whole.blocks)
    assert all(block.resources.minutes <= 35 for block in cut.blocks)


def test_more_gpus_than_max_gpus_are_unsupported(home):
    command = ["site=slurm_example", "accelerator=cuda", "devices=2,4", "site.slurm.max_gpus=2"]
    shared = make_plan(home, [*command, "site.slurm.exclusive=false"]).manifest.settings
    assert [setting.unsupported for setting in shared] == [
        None,
        "4 GPUs are requested; site.slurm.max_gpus of the site 'slurm_example' allows 2",
    ]
    [whole, _] = make_plan(home, command).manifest.settings
    assert "and 1 exclusive node would keep 8 from others" in whole.unsupported


def test_a_job_on_exclusive_nodes_allocates_all_their_gpus(home):
    site = make_plan(home, ["site=slurm_example", "accelerator=cuda"]).manifest.site
    shared = site.model_copy(update={"slurm": site.slurm.model_copy(update={"exclusive": False})})
    no_other = site.model_copy(update={"slurm": site.slurm.model_copy(update={"cpu_partition": None})})
    one, wide, none = Resources(gpus=1), Resources(nodes=2, tasks=2, gpus=2), Resources()
    assert [allocated_gpus(needs, site) for needs in (one, wide, none)] == [8, 16, 0]
    assert [allocated_gpus(needs, shared) for needs in (one, wide, none)] == [1, 2, 0]
    assert allocated_gpus(none, no_other) == 8, "a GPU node on which only the processor works"


def test_a_cpu_setting_asks_for_gpus_only_in_tests(home):
    command = ["site=slurm_example", "accelerator=cpu"]
    assert make_plan(home, command).manifest.blocks[0].resources.gpus == 0
    fake = make_plan(home, [*command, "site.slurm.fake_gpus=2"]).manifest.blocks[0].resources
    assert (fake.gpus, fake.gpu_model) == (2, "h100")
