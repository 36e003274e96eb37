"""The state of the machine before and after a run."""

from __future__ import annotations

from accelsweep.measure import machine_state as environment_room
from accelsweep.measure.machine_state import DeviceWatch, environment, governor, host_state
from accelsweep.plain_json import canonical_json


def test_it_is_json_and_names_the_machine():
    seen = host_state()
    canonical_json(seen)
    assert seen["cores_usable"] >= 1
    assert seen["memory_bytes"] > 0
    assert seen["cpu_model"]


def test_the_memory_that_is_free_is_that_of_the_containers_too(monkeypatch):
    monkeypatch.setattr("accelsweep.devices.memory_limits.cgroup_free_memory", lambda: 5)
    assert host_state()["memory_available_bytes"] == 5


def test_only_telling_variables_are_kept(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    monkeypatch.setenv("ZE_FLAT_DEVICE_HIERARCHY", "FLAT")
    monkeypatch.setenv("MY_SECRET_TOKEN", "hush")
    variables = host_state()["variables"]
    assert variables["OMP_NUM_THREADS"] == "3"
    assert (variables["CUDA_VISIBLE_DEVICES"], variables["ZE_FLAT_DEVICE_HIERARCHY"]) == ("1", "FLAT")
    assert "MY_SECRET_TOKEN" not in variables


def test_the_governor_is_that_of_every_core_that_may_be_used(tmp_path, monkeypatch):
    monkeypatch.setattr(environment_room, "allowed_cores", lambda: {0, 1, 5})
    assert governor(tmp_path) is None
    for core, name in enumerate(["performance", "powersave", "ondemand"]):
        folder = tmp_path / f"cpu{core}" / "cpufreq"
        folder.mkdir(parents=True)
        (folder / "scaling_governor").write_text(f"{name}\n")
    assert governor(tmp_path) == "performance, powersave"


def test_a_device_that_cannot_be_asked_has_a_reason():
    (device,) = environment(("GPU-00000000-0000-0000-0000-000000000000",), "cuda")["devices"]
    assert device["reason"].startswith("NVML")


def test_a_device_is_read_as_the_window_opens_and_as_it_closes(monkeypatch):
    """Idle before and after, throttled only while it works: the window's own two readings see it."""
    monkeypatch.setattr(environment_room, "device_state", lambda uuid, _: {"uuid": uuid, "reading": next(readings)})
    readings = iter([1, 2])
    watch = DeviceWatch("GPU-0", "cuda")
    watch.start()
    watch.stop()
    assert watch.states == {
        "opened": {"devices": [{"uuid": "GPU-0", "reading": 1}]},
        "closed": {"devices": [{"uuid": "GPU-0", "reading": 2}]},
    }


def test_variables_that_name_a_secret_are_not_kept_and_addresses_lose_their_login(monkeypatch):
    hidden = ["TORCH_HUB_TOKEN", "NCCL_AUTH_KEY", "PYTORCH_SECRET_FILE", "OMP_PASSWORD", "TORCH_CREDENTIAL_PATH"]
    for name in hidden:
        monkeypatch.setenv(name, "hunter2")
    monkeypatch.setenv("TORCH_KEYED_CACHE", "1")
    monkeypatch.setenv("TORCH_MIRROR", "https://me:hunter2@host/hub")
    variables = host_state()["variables"]
    assert not variables.keys() & set(hidden)
    assert variables["TORCH_KEYED_CACHE"] == "1"
    assert variables["TORCH_MIRROR"] == "https://***@host/hub"
