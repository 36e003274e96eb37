"""The processor has one name, and the cores and memory that its process may use, in plan and record alike."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from accelsweep.devices import cpu, linux
from accelsweep.devices.cpu import (
    CpuKind,
    cpu_flags,
    cpu_model,
    emulated_formats,
    host_facts,
    memory_bytes,
    model_in_cpuinfo,
    number_format,
)
from accelsweep.measure.machine_state import fingerprint, host_state
from accelsweep.run_environment import MachineState

ROOT = Path(__file__).parents[2]


def test_in_a_container_of_two_of_64_cores_plan_and_record_say_two(groups, affinity):
    affinity(64)
    groups("1:cpu:/box\n", {"cpu/box/cpu.cfs_quota_us": "200000", "cpu/box/cpu.cfs_period_us": "100000"})
    (planned,) = CpuKind().inventory()
    facts = host_facts()
    assert planned.count == facts["cores_usable"] == facts["cgroup_cpu_quota"] == 2
    assert len(linux.allowed_cores()) == 64


@pytest.mark.parametrize(
    ("membership", "file"),
    [
        ("0::/box\n", "box/memory.max"),
        ("4:memory:/box\n", "memory/box/memory.limit_in_bytes"),
        ("4:memory:/docker/4f2a\n", "memory/memory.limit_in_bytes"),
    ],
)
def test_plan_and_record_state_the_memory_limit_of_a_container_and_the_fingerprint_does_not(groups, membership, file):
    """So records stay reusable when their container gets another limit."""
    groups(membership, {})
    unlimited, before = memory_bytes(), fingerprint({}, "cpu")
    assert unlimited == psutil.virtual_memory().total
    groups(membership, {file: 8 * 2**20})
    (planned,) = CpuKind().inventory()
    assert planned.memory_bytes == host_facts()["memory_bytes"] == 8 * 2**20
    assert fingerprint({}, "cpu") == before


@pytest.mark.parametrize("limit", ["max", "9223372036854771712", 2**59])
def test_a_group_with_no_limit_or_one_above_the_machine_limits_nothing(groups, limit):
    groups("0::/\n", {"memory.max": limit})
    assert memory_bytes() == psutil.virtual_memory().total


def test_the_tightest_memory_limit_of_nested_groups_counts(groups):
    groups("0::/pod/box\n", {"pod/memory.max": 5 * 2**20, "pod/box/memory.max": 9 * 2**20})
    assert memory_bytes() == 5 * 2**20


def test_a_machine_has_an_identity_that_does_not_reveal_the_systems(tmp_path, monkeypatch):
    monkeypatch.setattr(cpu, "MACHINE_ID", tmp_path / "machine-id")
    assert host_facts()["machine"] is None
    identities = []
    for machine_id in ("3d1219c7c4c5404aaa1f6d2a48adfda4", "7d1219c7c4c5404aaa1f6d2a48adfda4", ""):
        (tmp_path / "machine-id").write_text(f"{machine_id}\n")
        identities.append(host_facts()["machine"])
        assert identities[-1] == host_facts()["machine"]
    first, second, empty = identities
    assert empty is None
    assert first != second
    assert len(first) == 16
    assert first not in "3d1219c7c4c5404aaa1f6d2a48adfda4"


@pytest.mark.parametrize(
    ("lines", "name"),
    [
        (
            "processor\t: 0\nmodel\t\t: 1\nmodel name\t: AMD EPYC 7B13\nprocessor\t: 1\nmodel name\t: other\n",
            "AMD EPYC 7B13",
        ),
        (
            "processor\t: 0\nCPU part\t: 0xd08\n\nModel\t\t: Raspberry Pi 4 Model B Rev 1.4\n",
            "Raspberry Pi 4 Model B Rev 1.4",
        ),
        ("processor\t: 0\nCPU part\t: 0xd0c\n", None),
        ("model name\t:\n", None),
    ],
)
def test_the_name_is_the_first_of_cpuinfo_or_what_python_knows(tmp_path, lines, name):
    (tmp_path / "cpuinfo").write_text(lines)
    assert model_in_cpuinfo(tmp_path / "cpuinfo") == (name or platform.processor() or platform.machine())
    assert model_in_cpuinfo(tmp_path / "none") == (platform.processor() or platform.machine())


X86 = "processor\t: 0\nvmx flags\t: vnmi\nflags\t\t: fpu avx2 avx512f {} rdpid\nbugs\t\t: spectre_v1\n"
ARM = "processor\t: 0\nFeatures\t: fp asimd fphp asimdhp {} i8mm\nCPU part\t: 0xd0c\n"


@pytest.mark.parametrize(
    ("lines", "flags", "emulated"),
    [
        (X86.format("avx512_bf16"), ("avx2", "avx512_bf16", "avx512f"), ("fp16",)),
        (X86.format("amx_bf16 avx512_fp16"), ("amx_bf16", "avx2", "avx512_fp16", "avx512f"), ()),
        (X86.format("avx_vnni"), ("avx2", "avx512f"), ("bf16", "fp16")),
        (ARM.format("bf16"), ("asimd", "asimdhp", "bf16"), ()),
        (ARM.format("sha2"), ("asimd", "asimdhp"), ("bf16",)),
        ("processor\t: 0\n", None, ()),
        (None, None, ()),
    ],
)
def test_a_format_is_emulated_without_its_flags_and_nothing_is_known_without_any(tmp_path, lines, flags, emulated):
    if lines is not None:
        (tmp_path / "cpuinfo").write_text(lines)
    assert cpu_flags(tmp_path / "cpuinfo") == flags
    assert emulated_formats(flags, {}) == emulated


@pytest.mark.parametrize(
    ("variables", "emulated"),
    [
        ({"ONEDNN_MAX_CPU_ISA": "avx2"}, ("bf16", "fp16")),
        ({"ONEDNN_MAX_CPU_ISA": "AVX512_CORE"}, ("bf16", "fp16")),
        ({"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16"}, ("fp16",)),
        ({"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_AMX"}, ()),
        ({"ONEDNN_MAX_CPU_ISA": "DEFAULT", "DNNL_MAX_CPU_ISA": "AVX2"}, ()),
        ({"DNNL_MAX_CPU_ISA": "AVX2"}, ("bf16", "fp16")),
        ({"ATEN_CPU_CAPABILITY": "avx2"}, ()),
    ],
)
def test_onednns_limit_switches_instructions_off(variables, emulated):
    assert emulated_formats(("avx512_bf16", "avx512_fp16"), variables) == emulated


def test_torch_has_no_instructions_for_bf16_where_it_is_said_to_be_emulated_by_a_limit():
    """A process reads the limit once: each is set in a fork of one that has only imported torch."""
    if platform.machine() != "x86_64" or "avx512_bf16" not in (cpu_flags() or ()):
        pytest.skip("this processor emulates bf16 anyway")
    limits = ("", "AVX2", "no-such-set")
    program = f"""
import os, torch
for limit in {limits}:
    if (child := os.fork()) == 0:
        os.environ.update({{"ONEDNN_MAX_CPU_ISA": limit}} if limit else {{}})
        print(torch.ops.mkldnn._is_mkldnn_bf16_supported(), flush=True)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
"""
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    for limit, supported in zip(limits, printed, strict=True):
        variables = {"ONEDNN_MAX_CPU_ISA": limit} if limit else {}
        assert ("bf16" in emulated_formats(cpu_flags(), variables)) == (supported == "False"), limit


@pytest.mark.parametrize(
    ("precision", "name"),
    [("bf16-mixed", "bf16"), ("bf16-true", "bf16"), ("16-true", "fp16"), ("32-true", "fp32"), ("64-true", "fp64")],
)
def test_a_precision_has_a_narrowest_format(precision, name):
    assert number_format(precision) == name


def test_plan_and_record_agree_on_what_is_emulated(monkeypatch):
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    monkeypatch.setattr(cpu, "cpu_flags", lambda: ("avx512_bf16",))
    (planned,) = CpuKind().inventory()
    state = MachineState.of(host_state())
    assert planned.emulates == emulated_formats(state.cpu_flags, state.variables) == ("bf16", "fp16")


def test_plan_and_record_have_one_name_for_the_processor():
    (planned,) = CpuKind().inventory()
    assert planned.model == cpu_model() == host_facts()["cpu_model"] == fingerprint({}, "cpu").hardware["host"]
    assert planned.memory_bytes == host_facts()["memory_bytes"] > 2**20


def test_only_this_package_asks_the_system_for_cores_groups_and_the_processors_name():
    """Any other reading would disagree with plan and record in a container."""
    readings = ("cpu_count(", "sched_getaffinity(", "/proc/cpuinfo", "/proc/self/cgroup", "virtual_memory(")
    files = [*(ROOT / "src").rglob("*.py"), *(ROOT / "benchmarks").rglob("*.py")]
    readers = [file for file in files if any(reading in file.read_text() for reading in readings)]
    assert {file.relative_to(ROOT).parts[:3] for file in readers} == {("src", "accelsweep", "devices")}
