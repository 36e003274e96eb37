"""Energy counters: a real difference or a reason, never a zero."""

from __future__ import annotations

import pytest

from accelsweep.measure.energy import GpuEnergy, PackageEnergy, energy_metrics


@pytest.fixture
def powercap(tmp_path):
    def zone(name, microjoules, limit=1_000_000, called="package-0"):
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        (folder / "name").write_text(f"{called}\n")
        (folder / "energy_uj").write_text(f"{microjoules}\n")
        (folder / "max_energy_range_uj").write_text(f"{limit}\n")

    zone("intel-rapl:0", 0)
    zone("intel-rapl:0:0", 0)
    zone("intel-rapl:1", 0)
    return tmp_path, zone


def test_packages_are_added_up_and_their_parts_are_not(powercap):
    folder, zone = powercap
    energy = PackageEnergy(folder)
    energy.start()
    zone("intel-rapl:0", 300_000)
    zone("intel-rapl:0:0", 200_000)
    zone("intel-rapl:1", 400_000)
    energy.stop()
    assert energy.joules == pytest.approx(0.7)
    assert energy.reason is None


def test_the_platforms_counter_which_holds_the_packages_is_not_added_to_them(powercap):
    folder, zone = powercap
    zone("intel-rapl:1", 0, called="psys")
    energy = PackageEnergy(folder)
    energy.start()
    zone("intel-rapl:0", 200_000)
    zone("intel-rapl:1", 350_000, called="psys")
    energy.stop()
    assert energy.joules == pytest.approx(0.2)


def test_a_machine_whose_only_counter_is_the_platforms_has_no_energy_of_packages(powercap):
    folder, zone = powercap
    for name in ("intel-rapl:0", "intel-rapl:1"):
        zone(name, 0, called="psys")
    assert PackageEnergy(folder).reason == "unavailable: the operating system reports no RAPL counters of CPU packages"


def test_a_counter_that_wrapped_around_is_unwrapped(powercap):
    folder, zone = powercap
    zone("intel-rapl:0", 900_000)
    energy = PackageEnergy(folder)
    energy.start()
    zone("intel-rapl:0", 100_000)
    energy.stop()
    assert energy.joules == pytest.approx(0.2)


def test_a_machine_without_counters_says_so(tmp_path):
    energy = PackageEnergy(tmp_path)
    energy.start()
    energy.stop()
    metric = energy_metrics("cpu", [{"package": [energy.joules, energy.reason]}], 9.0)["energy_joules"]
    assert metric.value is None
    assert metric.reason.startswith("unavailable: ")


def test_a_machine_without_the_driver_says_so():
    energy = GpuEnergy("GPU-00000000-0000-0000-0000-000000000000", "cuda")
    energy.start()
    energy.stop()
    assert energy.joules is None
    assert energy.reason.startswith("unavailable: NVML")


def test_boards_and_packages_are_never_added_up():
    ranks = [{"gpu": [10.0, None], "package": [3.0, None]}, {"gpu": [20.0, None]}]
    metrics = energy_metrics("cuda", ranks, 9.0)
    assert metrics["energy_joules"].value == 30.0
    assert metrics["energy_joules"].scope == "GPU boards of all ranks"
    assert metrics["host_energy_joules"].value == 3.0
    assert metrics["energy_joules"].provenance == metrics["host_energy_joules"].provenance == "counter"


def test_one_board_without_a_number_leaves_the_sum_without_one():
    metrics = energy_metrics("cuda", [{"gpu": [10.0, None]}, {"gpu": [None, "unavailable: lost"]}], 9.0)
    assert metrics["energy_joules"].reason == "unavailable: lost"


def test_a_window_too_short_for_the_boards_counter_has_no_energy_of_it():
    metrics = energy_metrics("cuda", [{"gpu": [10.0, None], "package": [3.0, None]}], 0.9)
    assert "measure.min_seconds" in metrics["energy_joules"].reason
    assert metrics["host_energy_joules"].value == 3.0


def test_a_device_without_a_known_counter_has_a_reason():
    assert "mps" in energy_metrics("mps", [{"package": [1.0, None]}], 9.0)["energy_joules"].reason
