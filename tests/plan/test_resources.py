"""What a block asks its allocation for."""

from dataclasses import replace

import pytest
from tiny_sweep import config_with

from accelsweep.config.site import Site
from accelsweep.config.sweep_options import Limits
from accelsweep.devices.device_kind import Device
from accelsweep.planning.resources import (
    combined,
    fits_in,
    idle_resources,
    max_runs_within,
    minutes,
    required_resources,
    resource_class,
    threads_per_rank,
)
from accelsweep.schedulers.protocol import Resources

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
def test_a_rank_on_a_cluster_has_the_threads_that_its_own_setting_asks_for(setting, threads):
    """Whatever its block was given; and a CPU setting is measured on a node, not on one of its cores."""
    assert threads_per_rank(setting, CLUSTER) == threads


def test_a_rank_on_a_cluster_has_no_more_threads_than_its_share_of_a_node():
    small = CLUSTER.model_copy(update={"inventory": (replace(NODE[0], count=8), NODE[1])})
    assert threads_per_rank(config("cuda", 4), small) == 2
    assert threads_per_rank(config("cpu", 16), small) == 1


def test_ranks_share_the_cores_of_one_machine_unless_the_setting_says_how_many():
    local = Site(name="local", inventory=NODE)
    assert (threads_per_rank(config("cuda", 4), local), threads_per_rank(config(threads=2), local)) == (None, 2)


def test_an_allocation_offers_the_most_of_each():
    both = combined([Resources(cpus=8), Resources(cpus=2, gpus=4, gpu_model="h100", nodes=2, tasks=2)], 3, Limits())
    assert (both.cpus, both.gpus, both.nodes, both.tasks, both.gpu_model) == (8, 4, 2, 2, "h100")
    assert both.minutes == minutes(3, Limits())


@pytest.mark.parametrize(
    ("setting", "answer"),
    [(Resources(), True), (Resources(gpus=2), True), (Resources(gpus=4), False), (Resources(cpus=9), False)],
)
def test_a_setting_fits_where_nothing_is_short(setting, answer):
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


def test_a_job_that_holds_whole_nodes_is_shared_by_settings_with_fewer_devices():
    """On shared nodes they have jobs of their own: a setting with one GPU would keep the other seven idle."""
    shared = CLUSTER.model_copy(update={"slurm": CLUSTER.slurm.model_copy(update={"exclusive": False})})
    one, all_of_it = config("cuda", 1), config("cuda", 8)
    assert resource_class(one, CLUSTER) == resource_class(all_of_it, CLUSTER)
    assert resource_class(one, shared) != resource_class(all_of_it, shared)


@pytest.mark.parametrize(("nodes", "has_a_place"), [(1, True), (2, True), (3, False), (16, False)])
def test_a_baseline_of_one_node_never_leaves_more_than_half_of_the_nodes_idle(nodes, has_a_place):
    assert fits_in(Resources(gpus=1), Resources(nodes=nodes, gpus=8 * nodes)) is has_a_place


@pytest.mark.parametrize(
    ("jobs", "asked", "words"),
    [
        ({}, Resources(cpus=1), "whole nodes: 8 CPUs are held, 1 is used; site.slurm.exclusive=false shares them"),
        (
            {},
            Resources(nodes=2, tasks=2, cpus=4, gpus=4),
            "whole nodes: 16 CPUs are held, 8 are used, 8 GPUs are held, 4 are used; "
            "site.slurm.exclusive=false shares them",
        ),
        ({}, Resources(cpus=8, gpus=4), ""),
        ({"exclusive": False}, Resources(cpus=1), ""),
    ],
)
def test_a_plan_says_what_whole_nodes_hold_and_do_not_use(jobs, asked, words):
    inventory = [{"accelerator": "cpu", "model": "CPU", "count": 8}]
    inventory += [{"accelerator": "cuda", "model": "H100", "count": 4}] if asked.gpus else []
    site = Site.model_validate({"name": "box", "scheduler": "slurm", "inventory": inventory, "slurm": jobs})
    assert idle_resources(asked, site) == words
