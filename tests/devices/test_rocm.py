"""AMD's GPUs behind a fake AMD SMI, which follows the documentation of its Python interface: never run on hardware."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from accelsweep.devices.device_kind import READING_KEYS, STATE_KEYS
from accelsweep.devices.rocm import AmdSmiTelemetry, AmdSmiUnavailable, RocmKind

VRAM, GFX, MEM, HOTSPOT, CURRENT = "vram", "gfx", "mem", "hotspot", "current"


class FakeAmdSmi:
    """Two equal devices. `old` is a driver before ROCm 6.2, whose energy counter has another key."""

    AmdSmiMemoryType = SimpleNamespace(VRAM=VRAM)
    AmdSmiClkType = SimpleNamespace(GFX=GFX, MEM=MEM)
    AmdSmiTemperatureType = SimpleNamespace(HOTSPOT=HOTSPOT)
    AmdSmiTemperatureMetric = SimpleNamespace(CURRENT=CURRENT)

    def __init__(self, *, old: bool = False) -> None:
        self.old, self.opened, self.closed = old, 0, 0

    def amdsmi_init(self):
        self.opened += 1

    def amdsmi_shut_down(self):
        self.closed += 1

    def amdsmi_get_processor_handles(self):
        return [0, 1]

    def amdsmi_get_gpu_device_bdf(self, handle):
        return f"0000:{'0C' if handle == 0 else '2A'}:00.0"

    def amdsmi_get_gpu_asic_info(self, _):
        return {"market_name": "AMD Instinct MI300X"}

    def amdsmi_get_gpu_memory_total(self, _, kind):
        assert kind == VRAM
        return 192 * 2**30

    def amdsmi_get_gpu_memory_usage(self, _, kind):
        assert kind == VRAM
        return 3 * 2**30

    def amdsmi_get_gpu_driver_info(self, _):
        return {"driver_name": "amdgpu", "driver_version": "6.12.12"}

    def amdsmi_get_clock_info(self, _, kind):
        return {"clk": 2100 if kind == GFX else 1300, "max_clk": 2100}

    def amdsmi_get_temp_metric(self, *_):
        return 55

    def amdsmi_get_power_info(self, _):
        return {"current_socket_power": 700, "average_socket_power": "N/A", "power_limit": 750}

    def amdsmi_get_gpu_activity(self, _):
        return {"gfx_activity": 93, "umc_activity": 41, "mm_activity": "N/A"}

    def amdsmi_get_violation_status(self, _):
        return {"acc_counter": 1000, "acc_ppt_pwr": 20, "acc_socket_thrm": "N/A"}

    def amdsmi_get_gpu_process_list(self, _):
        raise RuntimeError("AMDSMI_STATUS_NO_PERM")

    def amdsmi_get_energy_count(self, _):
        return {"power" if self.old else "energy_accumulator": 2_000_000, "counter_resolution": 15.3}


@pytest.fixture
def library(monkeypatch):
    def put(**options):
        fake = FakeAmdSmi(**options)
        monkeypatch.setitem(sys.modules, "amdsmi", fake)
        for name in ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"):
            monkeypatch.delenv(name, raising=False)
        return fake

    return put


def test_amds_gpus_are_cuda_devices_with_another_driver(library):
    library()
    (device,) = RocmKind().inventory()
    assert (device.accelerator, device.model, device.count) == ("cuda", "AMD Instinct MI300X", 2)
    assert [(gpu.name, gpu.identity) for gpu in RocmKind().gpus()] == [("0", "0000:0c:00.0"), ("1", "0000:2a:00.0")]
    assert RocmKind().fingerprint() == {"device": "AMD Instinct MI300X", "driver": "6.12.12"}


@pytest.mark.parametrize(("hip", "cuda", "left"), [("1", "0", ["1"]), (None, "1,0", ["1", "0"]), ("-1", None, [])])
def test_hips_variable_has_precedence_over_cudas(library, monkeypatch, hip, cuda, left):
    library()
    for name, value in (("HIP_VISIBLE_DEVICES", hip), ("CUDA_VISIBLE_DEVICES", cuda)):
        if value is not None:
            monkeypatch.setenv(name, value)
    assert [gpu.name for gpu in RocmKind().gpus()] == left
    assert set(RocmKind().visibility_variables(left).values()) == {",".join(left)}


@pytest.mark.parametrize("old", [True, False])
def test_its_state_has_the_same_keys_and_units_as_nvidias(library, old):
    fake = library(old=old)
    state = AmdSmiTelemetry().state("0000:0C:00.0")
    assert tuple(state) == STATE_KEYS
    assert (state["watts"], state["celsius"], state["sm_mhz"], state["memory_mhz"]) == (700, 55, 2100, 1300)
    assert state["held_back"] == {"power cap": [20, 1000], "heat": None, "memory's heat": None}
    assert state["foreign_processes"] is None
    assert AmdSmiTelemetry().joules("0000:2a:00.0") == pytest.approx(30.6)
    assert fake.opened == fake.closed == 2


def test_during_a_session_the_library_is_opened_once(library):
    fake = library()
    with RocmKind().telemetry_session():
        for _ in range(3):
            assert tuple(AmdSmiTelemetry().readings("0000:0C:00.0")) == READING_KEYS
        assert (fake.opened, fake.closed) == (1, 0)
    assert (fake.opened, fake.closed) == (1, 1)


def test_without_the_library_there_is_a_reason_and_no_device(monkeypatch):
    monkeypatch.setitem(sys.modules, "amdsmi", None)
    with pytest.raises(AmdSmiUnavailable, match="ROCm's package amdsmi cannot be imported"):
        AmdSmiTelemetry().state("0000:0c:00.0")
    assert RocmKind().inventory() == ()


def test_transformer_engine_is_refused_by_name():
    assert "has no ROCm backend" in RocmKind().unsupported_precision("transformer-engine-float16")
    assert RocmKind().unsupported_precision("bf16-mixed") is None
