"""What a block asks its allocation for."""

import pytest

from accelsweep.core.plans import Device, Limits, Resources, Site
from accelsweep.plan.resources import fits, minutes, most_runs, needs, resource_class, together

NODE = (Device(accelerator="cpu", model="CPU", count=32), Device(accelerator="cuda", model="GPU", count=8))
CLUSTER = Site(
    name="cluster",
    scheduler="slurm",
    nodes=4,
    inventory=NODE,
    slurm={"cpus_per_gpu": 3, "gpu_model": "h100", "mem_mb": 64000},
)


def config(accelerator="cpu", devices=1, num_nodes=1, threads=None):
    return {"accelerator": accelerator, "devices": devices, "num_nodes": num_nodes, "threads": threads}


def test_gpus_are_counted_over_all_nodes_and_cores_per_task():
    need = needs(config("cuda", 4, 2), CLUSTER)
    assert (need.nodes, need.tasks, need.gpus, need.cpus) == (2, 2, 8, 12)
    assert (need.gpu_model, need.mem_mb) == ("h100", 64000)


def test_a_cpu_cell_asks_for_no_gpu_model():
    need = needs(config("cpu", 2, threads=4), CLUSTER)
    assert (need.gpus, need.gpu_model, need.cpus) == (0, None, 8)


def test_no_more_cores_are_asked_for_than_a_node_has():
    assert needs(config("cpu", 8, threads=16), CLUSTER).cpus == 32


def test_an_allocation_offers_the_most_of_each():
    both = together([Resources(cpus=8), Resources(cpus=2, gpus=4, gpu_model="h100", nodes=2, tasks=2)], 3, Limits())
    assert (both.cpus, both.gpus, both.nodes, both.tasks, both.gpu_model) == (8, 4, 2, 2, "h100")
    assert both.minutes == minutes(3, Limits())


@pytest.mark.parametrize(
    ("cell", "answer"),
    [(Resources(), True), (Resources(gpus=2), True), (Resources(gpus=4), False), (Resources(cpus=9), False)],
)
def test_a_cell_fits_where_nothing_is_short(cell, answer):
    assert fits(cell, Resources(gpus=2, cpus=8)) is answer


def test_gpus_of_a_cell_must_be_on_its_node():
    two_nodes = Resources(nodes=2, gpus=4, cpus=8)
    assert fits(Resources(gpus=2), two_nodes)
    assert not fits(Resources(gpus=4), two_nodes)
    assert fits(Resources(gpus=4, nodes=2), two_nodes)


def test_minutes_are_the_time_limits_plus_start_up():
    limits = Limits(run_seconds=595, stop_grace_seconds=5)
    assert minutes(3, limits) == 32
    assert most_runs(limits, 32) == 3
    assert most_runs(limits, 31.9) == 2
    assert most_runs(limits, 1) == 0


def test_one_machine_has_one_class_and_a_cluster_one_per_kind_of_job():
    local = Site(name="local", inventory=NODE)
    assert resource_class(config("cpu"), local) == resource_class(config("cuda", 8), local)
    assert resource_class(config("cuda", 4), CLUSTER) != resource_class(config("cuda", 8), CLUSTER)
