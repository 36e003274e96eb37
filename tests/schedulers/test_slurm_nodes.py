"""Choosing nodes by `--nodes`: all that can be measured, or a list; errors name the node and the reason."""

from __future__ import annotations

import pytest

from accelsweep.config.site import Slurm
from accelsweep.errors import InputError
from accelsweep.schedulers import slurm
from accelsweep.schedulers.protocol import JobOffer, Resources
from accelsweep.schedulers.slurm import chosen_nodes

SINFO = """\
gpu1|gpu*|up|idle|none
gpu1|spare|up|idle|none
gpu2|gpu*|up|mixed-|none
gpu3|gpu*|up|down*|Not responding|for long
gpu4|gpu*|up|drained|bad board
gpu5|gpu*|up|idle|none
cpu1|cpu|up|allocated|none
old1|old|down|idle|none
"""
GPU = Slurm(partition="gpu")


@pytest.fixture(autouse=True)
def answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slurm's answers, where gpu5 has other GPUs. tests/slurm uses a real Slurm."""

    def ask(*command: str) -> str:
        if command[0] == "sinfo":
            return SINFO
        if "," not in command[-1] and "[" in command[-1]:
            return "gpu1\ngpu2\n" if command[-1] == "gpu[1-2]" else ""
        return command[-1].replace(",", "\n")

    def offer(options: str) -> JobOffer:
        if "--nodelist=gpu2" in options:  # a temporary refusal excludes no node
            return JobOffer(False, "AssocMaxSubmitJobLimit", "", temporary=True)
        return JobOffer("--nodelist=gpu5" not in options, "Requested node configuration is not available", "")

    monkeypatch.setattr(slurm, "ask", ask)
    monkeypatch.setattr(slurm, "offer", offer)


def test_all_selects_the_usable_nodes_of_the_partition_and_reports_the_others() -> None:
    chosen = chosen_nodes("all", Resources(), GPU)
    assert chosen.names == ("gpu1", "gpu2")
    assert chosen.left_out == (
        "node gpu3 is left out: down: Not responding|for long",
        "node gpu4 is left out: drained: bad board",
        "node gpu5 is left out: Requested node configuration is not available",
    )
    assert chosen_nodes("all", Resources(), Slurm()).names == chosen.names, "the default partition"


def test_a_list_is_in_slurms_notation_and_each_node_counts_once() -> None:
    assert chosen_nodes("gpu[1-2]", Resources(), GPU).names == ("gpu1", "gpu2")
    assert chosen_nodes("gpu2,gpu1,gpu2", Resources(), GPU).names == ("gpu2", "gpu1")
    assert chosen_nodes("gpu1,cpu1", Resources(), Slurm(partition="gpu,cpu")).names == ("gpu1", "cpu1")


@pytest.mark.parametrize(
    ("asked", "slurm", "why"),
    [
        ("gpu1,gpo2", GPU, r"there is no node 'gpo2' \(did you mean 'gpu2'\?\); partition gpu has gpu1, gpu2, gpu3"),
        ("gpu1,cpu1", GPU, r"cpu1 is not in partition gpu but in cpu"),
        ("gpu3", GPU, r"gpu3 cannot be measured \(down: Not responding\|for long\): remove it"),
        ("gpu5", GPU, r"gpu5 cannot be measured \(Requested .* not available\)"),
        ("gpu[", GPU, r"--nodes names no node"),
        (
            "all",
            Slurm(partition="gpuu"),
            r"no partition 'gpuu' \(did you mean 'gpu'\?\), .* it has: gpu, spare, cpu, old",
        ),
        ("all", Slurm(partition="old"), r"partition old is down: choose another"),
    ],
)
def test_nodes_that_cannot_be_measured_are_an_error_with_the_reason(asked: str, slurm: Slurm, why: str) -> None:
    with pytest.raises(InputError, match=why):
        chosen_nodes(asked, Resources(), slurm)
