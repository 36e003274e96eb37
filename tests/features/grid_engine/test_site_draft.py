"""A drafted site file holds what qhost and qconf print, and can be planned with."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from accelsweep.cli.sweeps import write_draft
from accelsweep.config.site import Site
from accelsweep.errors import AccelsweepError
from accelsweep.features.grid_engine import site as drafting
from accelsweep.planning.plan import make_plan
from accelsweep.schedulers.slurm_site import DraftedKind, site_file

QUEUE = """\
   <queue name='{name}'>
     <queuevalue qname='{name}' name='qtype_string'>{kind}</queuevalue>
     <queuevalue qname='{name}' name='slots_used'>0</queuevalue>
     <queuevalue qname='{name}' name='slots'>{slots}</queuevalue>
     <queuevalue qname='{name}' name='slots_resv'>0</queuevalue>
     <queuevalue qname='{name}' name='state_string'>{state}</queuevalue>
   </queue>
"""
HOST = """\
 <host name='{name}'>
   <hostvalue name='arch_string'>lx-amd64</hostvalue>
   <hostvalue name='num_proc'>64</hostvalue>
   <hostvalue name='mem_total'>{memory}</hostvalue>
{queues} </host>
"""


def qhost() -> str:
    def host(name: str, memory: str, *queues: tuple[str, int, str, str]) -> str:
        told = (QUEUE.format(name=name, slots=slots, state=state, kind=kind) for name, slots, state, kind in queues)
        return HOST.format(name=name, memory=memory, queues="".join(told))

    hosts = [
        host("global", "-"),
        host("g1", "503.6G", ("gpu.q", 64, "", "BIP"), ("short.q", 64, "a", "BP")),
        host("g2", "503.7G", ("gpu.q", 64, "", "BIP"), ("short.q", 64, "", "BP")),
        host("c1", "125.2G", ("all.q", 32, "", "BIP")),
        host("c2", "125.2G", ("all.q", 32, "au", "BIP")),
        host("login", "15.0G", ("hand.q", 4, "", "I")),
    ]
    return f"<?xml version='1.0'?>\n<qhost>\n{''.join(hosts)}</qhost>\n"


ANSWERS = {
    "qconf -sc": """\
#name               shortcut   type        relop requestable consumable default  urgency
arch                a          RESTRING    ==    YES         NO         NONE     0
ngpus               ngpus      INT         <=    YES         JOB        0        0
gpu_type            gpu_type   RESTRING    ==    YES         NO         NONE     0
h_vmem              h_vmem     MEMORY      <=    YES         YES        8G       0
# >#< starts a comment but comments are not saved across edits --------
""",
    "qconf -se g1": "hostname g1\ncomplex_values        slots=64, \\\n      ngpus=4,gpu_type=a100\nload_scaling NONE\n",
    "qconf -se g2": "hostname g2\ncomplex_values        ngpus=4,gpu_type=a100\n",
    "qconf -se c1": "hostname c1\ncomplex_values        NONE\n",
    "qconf -sq gpu.q": "qname gpu.q\npe_list  mpi smp,[g1=mpi smp]\nh_rt  48:00:00,[g1=24:00:00]\n",
    "qconf -sq short.q": "qname short.q\npe_list  smp\nh_rt  3600\n",
    "qconf -sq all.q": "qname all.q\npe_list  mpi\nh_rt  INFINITY\n",
    "qconf -sp mpi": "pe_name mpi\nallocation_rule    $round_robin\n",
    "qconf -sp smp": "pe_name smp\nallocation_rule    $pe_slots\n",
    "qhost -q -xml": qhost(),
}


def test_alike_nodes_become_a_kind_and_the_draft_can_be_planned_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drafting, "ask", lambda *command: ANSWERS[" ".join(command)])
    write_draft(tmp_path, "mine", ["grid_engine"])
    text = (tmp_path / "conf/site/mine.yaml").read_text()
    site = Site.model_validate(yaml.safe_load(text))
    gpu, plain = site.kinds
    assert gpu.grid_engine is not None
    assert plain.grid_engine is not None
    assert (gpu.name, gpu.nodes, gpu.grid_engine.queue, gpu.grid_engine.max_minutes) == ("a100", 2, "gpu.q", 48 * 60)
    assert [(device.accelerator, device.model, device.count) for device in gpu.inventory] == [
        ("cpu", "CPU", 64),
        ("cuda", "a100", 4),
    ]
    assert gpu.inventory[0].memory_bytes == int(503.6 * 2**30)
    assert (gpu.grid_engine.parallel_environment, gpu.grid_engine.gpu_model) == ("smp", "a100")
    assert gpu.grid_engine.gpu_resource == "ngpus"
    assert (plain.name, plain.nodes, plain.grid_engine.queue, plain.grid_engine.max_minutes) == (
        "cpu",
        1,
        "all.q",
        None,
    )
    for words in ("# g1, g2", "# or short.q", "all.q has no parallel environment"):
        assert words in text
    for words in ("c2", "login", "hand.q"):
        assert words not in text
    overrides = ["site=mine", "accelerator=cpu,cuda:a100", "+baseline.accelerator=cpu"]
    plan = make_plan(tmp_path, overrides, name="drafted")
    assert {block.resources.node_kind for block in plan.manifest.blocks} == {"cpu", "a100"}


def test_kinds_of_the_same_name_are_numbered() -> None:
    kind = DraftedKind("cpu", "c1", 1, 8, 2**30, 0, None, ["queue: all.q"])
    drafted = yaml.safe_load(site_file("mine", "grid_engine", "qhost", ["scratch: null"], [kind] * 3))
    assert [each["name"] for each in drafted["kinds"]] == ["cpu", "cpu-2", "cpu-3"]


def test_a_cluster_without_a_usable_node_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = ANSWERS | {"qhost -q -xml": "<qhost></qhost>"}
    monkeypatch.setattr(drafting, "ask", lambda *command: answers[" ".join(command)])
    with pytest.raises(AccelsweepError, match="no node with a queue that accepts jobs"):
        write_draft(tmp_path, "mine", ["grid_engine"])
    assert list(tmp_path.iterdir()) == []
