"""Intel's GPUs, as the kernel lists them in /sys/class/drm, here a temporary folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from accelsweep.devices import xpu
from accelsweep.devices.xpu import XpuKind

CARDS = {
    "card0": ("0000:00:02.0", "0x8086", "0x46a6", {}),  # integrated: no memory of its own
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


def test_discrete_intel_gpus_are_numbered_by_pci_address(cards):
    cards()
    assert [(gpu.name, gpu.identity) for gpu in XpuKind().gpus()] == [("0", "0000:3a:00.0"), ("1", "0000:8b:00.0")]
    inventory = [(device.model, device.count, device.memory_bytes) for device in XpuKind().inventory()]
    assert inventory == [("Intel GPU 0x1234", 1, 2**34), ("Intel Data Center GPU Max 1550", 1, 2**36)]


@pytest.mark.parametrize(("mask", "left"), [("1", ["1"]), ("0.1", ["0"]), ("", []), ("0,7", ["0"])])
def test_the_affinity_mask_of_level_zero_is_read(cards, monkeypatch, mask, left):
    cards()
    monkeypatch.setenv("ZE_AFFINITY_MASK", mask)
    assert [gpu.name for gpu in XpuKind().gpus()] == left


def test_a_run_is_shown_its_own_gpu_and_without_gpus_no_variable_is_set(cards):
    assert XpuKind().visibility_variables([]) == {}
    cards()
    assert XpuKind().visibility_variables(["1"]) == {"ZE_AFFINITY_MASK": "1", "ZE_ENABLE_PCI_ID_DEVICE_ORDER": "1"}
    assert XpuKind().visibility_variables([])["ZE_AFFINITY_MASK"] == ""


def test_a_torch_older_than_intels_gpus_has_none_and_can_be_forked(monkeypatch):
    monkeypatch.delattr(torch, "xpu")
    assert XpuKind().is_initialised() is False
    assert "it was built without XPU" in str(XpuKind().unavailable_reason())
