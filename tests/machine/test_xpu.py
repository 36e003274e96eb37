"""Intel's GPUs, as the kernel's files show them: a folder of the test's own stands in for /sys/class/drm."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from accelsweep.devices import xpu
from accelsweep.devices.xpu import XpuKind, visible_gpus

CARDS = {
    "card0": ("0000:00:02.0", "0x8086", "0x46a6", {}),  # inside the processor: no memory of its own
    "card1": ("0000:8b:00.0", "0x8086", "0x0bd5", {"device/tile0/physical_vram_size_bytes": "0x1000000000"}),
    "card2": ("0000:3a:00.0", "0x8086", "0x1234", {"lmem_total_bytes": "17179869184"}),
    "card3": ("0000:01:00.0", "0x10de", "0x2330", {}),
}


@pytest.fixture
def cards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    def put() -> None:
        for card, (address, vendor, device, files) in CARDS.items():
            pci = tmp_path / "pci" / address
            pci.mkdir(parents=True)
            (tmp_path / "drm" / card).mkdir(parents=True)
            (tmp_path / "drm" / card / "device").symlink_to(pci)
            for name, text in {"device/vendor": vendor, "device/device": device, **files}.items():
                file = tmp_path / "drm" / card / name
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(f"{text}\n")

    monkeypatch.setattr(xpu, "DRM", tmp_path / "drm")
    monkeypatch.delenv("ZE_AFFINITY_MASK", raising=False)
    return put


def test_discrete_intel_gpus_are_found_in_the_order_of_their_pci_addresses(cards):
    cards()
    assert XpuKind().named() == {"0": "0000:3a:00.0", "1": "0000:8b:00.0"}
    found = [(device.model, device.count, device.memory_bytes) for device in XpuKind().inventory()]
    assert found == [("Intel GPU 0x1234", 1, 2**34), ("Intel Data Center GPU Max 1550", 1, 2**36)]


@pytest.mark.parametrize(("mask", "left"), [("1", ["1"]), ("0.1", ["0"]), ("", []), ("0,7", ["0"])])
def test_the_mask_of_level_zero_is_read(cards, monkeypatch, mask, left):
    cards()
    monkeypatch.setenv("ZE_AFFINITY_MASK", mask)
    assert [gpu.name for gpu in visible_gpus()] == left


def test_a_run_is_shown_its_own_gpu_and_a_machine_without_any_gets_no_variable(cards):
    assert XpuKind().variables([]) == {}
    cards()
    assert XpuKind().variables(["1"]) == {"ZE_AFFINITY_MASK": "1", "ZE_ENABLE_PCI_ID_DEVICE_ORDER": "1"}
    assert XpuKind().variables([])["ZE_AFFINITY_MASK"] == ""
