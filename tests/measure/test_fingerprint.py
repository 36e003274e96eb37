"""The fingerprint: what makes an old record stand for a new run."""

from __future__ import annotations

import subprocess
import sys

from fake_nvml import FakeGpu, FakeNvml

from accelsweep.devices import cuda
from accelsweep.measure import machine_state as module
from accelsweep.measure.machine_state import fingerprint


def test_local_build_tags_are_split_off_the_public_version(monkeypatch):
    monkeypatch.setattr(module.metadata, "version", {"torch": "2.13.0+cpu", "lightning": "2.6.6"}.__getitem__)
    made = fingerprint({"mine": "abc"})
    assert made.software == {"torch": "2.13.0", "lightning": "2.6.6"}
    assert made.builds == {"torch": "cpu"}
    assert made.sources == {"mine": "abc"}


def test_another_build_of_the_same_version_matches_and_another_version_does_not(monkeypatch):
    versions = {"torch": "2.13.0+cpu", "lightning": "2.6.6"}
    monkeypatch.setattr(module.metadata, "version", versions.__getitem__)
    old = fingerprint({})
    versions["torch"] = "2.13.0+cu130"
    assert old.matches(fingerprint({}))
    versions["torch"] = "2.13.1+cu130"
    assert not old.matches(fingerprint({}))


def test_a_granted_gpu_changes_the_hardware_of_gpu_runs_only(monkeypatch):
    without = fingerprint({}, "cpu"), fingerprint({}, "cuda")
    monkeypatch.setattr(cuda, "nvml", FakeNvml(FakeGpu("GPU-0", "NVIDIA H100 80GB HBM3")).opened)
    assert fingerprint({}, "cpu") == without[0]
    assert fingerprint({}, "cuda") != without[1]


def test_making_it_imports_no_torch():
    code = (
        "import sys; from accelsweep.measure.machine_state import fingerprint; fingerprint({});"
        "sys.exit('torch' in sys.modules or 'lightning' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
