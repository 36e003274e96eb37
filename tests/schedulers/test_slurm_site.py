"""A drafted site file holds what sinfo and sacctmgr report, and can be planned with."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from accelsweep.cli.sweeps import quickstart_overrides, write_draft
from accelsweep.config.site import Site
from accelsweep.errors import AccelsweepError, InputError
from accelsweep.features.detach.backends import DriverJobOptions
from accelsweep.planning.plan import make_plan
from accelsweep.schedulers import slurm, slurm_site
from accelsweep.schedulers.protocol import JobOffer

SINFO = """\
gpu*|2|64|515000|gpu:a100:4(S:0-1)|2-00:00:00|ib|up|old[1-2]
long|2|64|515000|gpu:a100:4(S:0-1)|7-00:00:00|ib|up|old[1-2]
gpu*|1|96|1030000+|gpu:nvidia_h100-80gb:8,gpu:1g.10gb:7|30:00|(null)|up|new1
cpu|16|48|128000|(null)|infinite|(null)|up|c[01-16]
3090|1|16|64000|gpu:3090:8|infinite|(null)|up|g1
gone|4|48|128000|(null)|infinite|(null)|drain|c[17-20]
"""


def no_accounts(*_command: str, **_options: float) -> str:
    raise AccelsweepError("there is no sacctmgr here")


def slurm_with(sinfo: str, accounts: Callable[..., str] = no_accounts) -> Callable[..., str]:
    """Return an `ask` that returns this text for `sinfo`, and the result of `accounts` for other commands."""
    return lambda *command, **options: sinfo if command[0] == "sinfo" else accounts(*command, **options)


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster without accounting; tests/slurm/test_accounts.py uses a real one that has it."""
    monkeypatch.setattr(slurm_site, "ask", slurm_with(SINFO))
    monkeypatch.setattr(slurm_site, "offer", lambda _options: JobOffer(True, "", ""))
    monkeypatch.setattr(slurm, "ask", no_accounts)


SACCTMGR = """\
physics|chemistry||normal|
physics|physics||high,normal|normal
physics|physics|long|normal|
"""


@pytest.mark.usefixtures("answer")
def test_the_draft_lists_the_users_accounts_partitions_and_qualities_of_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def ask(*command: str, **_options: float) -> str:
        asked.append(" ".join(command))
        return SACCTMGR if command[0] == "sacctmgr" else "ClusterName             = big\n"

    monkeypatch.setattr(slurm_site, "ask", slurm_with(SINFO, ask))
    write_draft(tmp_path, "mine", ["slurm"])
    text = (tmp_path / "conf/site/mine.yaml").read_text()
    slurm = Site.model_validate(yaml.safe_load(text)).slurm
    assert (slurm.account, slurm.qos) == ("physics", None)
    for words in (
        "account: physics  # or chemistry\n",
        "  # account chemistry: qos normal\n",
        "  # account physics: qos high, normal (normal by default)\n",
        "  # account physics: qos normal, in the partition long only\n",
    ):
        assert words in text
    assert "cluster=big" in asked[-1]


@pytest.mark.usefixtures("answer")
def test_without_accounting_the_draft_says_where_to_look(tmp_path: Path) -> None:
    write_draft(tmp_path, "mine", ["slurm"])
    text = (tmp_path / "conf/site/mine.yaml").read_text()
    assert "account: null             # the value for sbatch --account" in text
    assert "qos" not in text


@pytest.mark.usefixtures("answer")
def test_each_set_of_nodes_is_a_kind_and_the_draft_can_be_planned_with(tmp_path: Path) -> None:
    write_draft(tmp_path, "mine", ["slurm"])
    text = (tmp_path / "conf/site/mine.yaml").read_text()
    site = Site.model_validate(yaml.safe_load(text))
    kinds = {kind.name: kind for kind in site.kinds}
    assert list(kinds) == ["a100", "nvidia_h100-80gb", "cpu", "3090"]
    old, new, plain, number = kinds.values()
    assert (old.nodes, old.slurm.partition, old.slurm.max_minutes) == (2, "long", 7 * 24 * 60)
    assert [(one.accelerator, one.count) for one in old.inventory] == [("cpu", 64), ("cuda", 4)]
    assert (new.slurm.gpu_request, new.slurm.max_minutes) == ("per_node", 30)
    assert (plain.nodes, plain.slurm.partition, plain.slurm.max_minutes) == (16, "cpu", None)
    assert (number.slurm.partition, number.slurm.gpu_model, number.inventory[1].model) == ("3090", "3090", "3090")
    for words in ("old[1-2], features ib", "# or gpu", "also have 7 x 1g.10gb"):
        assert words in text
    overrides = ["site=mine", "accelerator=cpu,cuda:a100,cuda:3090", "+baseline.accelerator=cpu"]
    plan = make_plan(tmp_path, overrides, name="drafted")
    assert {block.resources.node_kind for block in plan.manifest.blocks} == {"cpu", "a100", "3090"}


@pytest.mark.usefixtures("answer")
@pytest.mark.parametrize(
    ("name", "schedulers", "words"),
    [
        ("mine", [], "--from-slurm or --from-grid-engine"),
        ("mine", ["slurm", "grid_engine"], "--from-slurm or --from-grid-engine"),
        ("../up", ["slurm"], "is not a site name"),
        ("taken", ["slurm"], "already exists and was left unchanged"),
    ],
)
def test_an_impossible_draft_is_an_error_and_writes_nothing(
    tmp_path: Path, name: str, schedulers: list[str], words: str
) -> None:
    taken = tmp_path / "conf/site/taken.yaml"
    taken.parent.mkdir(parents=True)
    taken.write_text("name: taken\n")
    with pytest.raises(InputError) as refused:
        write_draft(tmp_path, name, schedulers)
    assert words in str(refused.value)
    assert [path.name for path in taken.parent.iterdir()] == ["taken.yaml"]
    assert taken.read_text() == "name: taken\n"


def test_names_that_are_bare_numbers_in_a_site_file_are_read_as_text(tmp_path: Path) -> None:
    site = tmp_path / "conf/site/typed.yaml"
    site.parent.mkdir(parents=True)
    site.write_text(
        "name: 2026\nscheduler: slurm\nprobe: false\nkinds:\n  - name: 3090\n    inventory:\n"
        "      - {accelerator: cpu, model: 9654, count: 8}\n      - {accelerator: cuda, model: 3090, count: 2}\n"
    )
    plan = make_plan(tmp_path, ["site=typed", "accelerator=cuda:3090"], name="typed")
    assert [block.resources.node_kind for block in plan.manifest.blocks][:1] == ["3090"]


OVERLAPPING = """\
debug|6|32|128000|gpu:a100:4|30:00|(null)|up|n[1-6]
gpu*|4|32|128000|gpu:a100:4|2-00:00:00|(null)|up|n[1-4]
long|2|32|128000|gpu:a100:4|7-00:00:00|(null)|up|n[1-2]
private|3|32|128000+|gpu:a100:4|infinite|(null)|up|n[4-6]
"""


def drafted(monkeypatch: pytest.MonkeyPatch, home: Path, sinfo: str, refused: str = "", scontrol: str = "") -> Site:
    """Return the site that is drafted if Slurm refuses jobs in the partition `refused`."""

    def offer(options: str) -> JobOffer:
        return JobOffer(
            f"--partition={refused} " not in options, "User's group not permitted to use this partition", ""
        )

    monkeypatch.setattr(slurm_site, "ask", slurm_with(sinfo))
    monkeypatch.setattr(slurm_site, "offer", offer)
    monkeypatch.setattr(slurm, "ask", lambda *command: scontrol if command[2] == "partition" else "")
    write_draft(home, "mine", ["slurm"])
    return Site.model_validate(yaml.safe_load((home / "conf/site/mine.yaml").read_text()))


@pytest.mark.usefixtures("answer")
def test_overlapping_partitions_are_one_kind_in_the_widest_with_a_long_enough_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = drafted(monkeypatch, tmp_path, OVERLAPPING)
    assert [(kind.nodes, kind.slurm.partition) for kind in site.kinds] == [(4, "gpu"), (2, "private")]
    text = (tmp_path / "conf/site/mine.yaml").read_text()
    assert "# or debug, long, private" in text
    assert "# n5,n6" in text, "those that no earlier kind has"
    driver = DriverJobOptions.model_validate(site.slurm.driver)
    assert (driver.partition, driver.minutes) == ("gpu", 1440)


@pytest.mark.usefixtures("answer")
def test_a_partition_that_refuses_the_user_is_drafted_only_if_there_is_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = drafted(monkeypatch, tmp_path, OVERLAPPING, refused="gpu")
    assert [(kind.nodes, kind.slurm.partition) for kind in site.kinds] == [(2, "long"), (1, "debug"), (3, "private")]
    alone = drafted(monkeypatch, tmp_path / "alone", OVERLAPPING.splitlines()[1], refused="gpu")
    assert [kind.slurm.partition for kind in alone.kinds] == ["gpu"]
    assert "# Slurm rejects your jobs there: User's group" in (tmp_path / "alone/conf/site/mine.yaml").read_text()


PARTITIONS = """\
PartitionName=gpu AllowGroups=ALL DefMemPerNode=UNLIMITED MaxMemPerNode=UNLIMITED
PartitionName=private AllowGroups=ALL DefMemPerCPU=16 MaxMemPerNode=UNLIMITED
PartitionName=debug AllowGroups=ALL DefMemPerNode=900 MaxMemPerNode=UNLIMITED
"""


@pytest.mark.usefixtures("answer")
def test_a_kind_whose_partition_has_too_little_default_memory_states_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = drafted(monkeypatch, tmp_path, OVERLAPPING, scontrol=PARTITIONS)
    assert [kind.slurm.mem_mb for kind in site.kinds] == [None, 4000]
    assert "the partition's default, 512 MB" in (tmp_path / "conf/site/mine.yaml").read_text()


@pytest.mark.parametrize(
    ("output", "cpus", "memory"),
    [
        ("DefMemPerNode=UNLIMITED", 8, None),
        ("DefMemPerNode=900", 8, 900),
        ("DefMemPerCPU            = 100", 8, 800),
        ("", 8, None),
    ],
)
def test_default_memory_is_per_node_or_per_cpu(output: str, cpus: int, memory: int | None) -> None:
    assert slurm.read_default_memory(output).of(cpus) == memory


@pytest.mark.parametrize(
    ("names", "single"),
    [
        ("gpu1", ["gpu1"]),
        ("gpu[1-2,5],cpu1", ["gpu1", "gpu2", "gpu5", "cpu1"]),
        ("n[08-10]", ["n08", "n09", "n10"]),
        ("r[1-2]n[1-2]", ["r1n1", "r1n2", "r2n1", "r2n2"]),
    ],
)
def test_node_lists_in_slurms_notation_are_expanded(names: str, single: list[str]) -> None:
    assert slurm_site.expanded(names) == single


@pytest.mark.usefixtures("answer")
@pytest.mark.parametrize(
    ("sinfo", "words"),
    [
        (SINFO, ["accelerator=cpu,cuda:a100,cuda:nvidia_h100-80gb,cuda:3090"]),
        (OVERLAPPING.splitlines()[1], ["accelerator=cpu,cuda"]),
        (OVERLAPPING, ["accelerator=cpu:a100,cuda:a100,cuda:a100-2", "baseline.accelerator=cpu:a100"]),
        ("cpu|16|48|128000|(null)|infinite|(null)|up|c[01-16]", ["accelerator=cpu"]),
        (
            "a|1|48|128000|(null)|infinite|(null)|up|c1\nb|1|8|64000|(null)|infinite|(null)|up|c2",
            ["accelerator=cpu:cpu", "baseline.accelerator=cpu:cpu"],
        ),
    ],
)
def test_the_printed_command_plans_the_quickstart_on_the_draft_with_a_cpu_baseline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], sinfo: str, words: list[str]
) -> None:
    drafted(monkeypatch, tmp_path, sinfo)
    assert quickstart_overrides((tmp_path / "conf/site/mine.yaml").read_text()) == words
    (printed,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("accelsweep plan ")]
    overrides = [word for word in shlex.split(printed) if "=" in word]
    plan = make_plan(tmp_path, overrides, name="first")
    baseline = plan.manifest.baseline
    assert next(setting.config.accelerator for setting in plan.settings if setting.name == baseline) == "cpu"
