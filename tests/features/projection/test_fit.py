"""The fit recovers known coefficients, and its errors on held-out devices are honest."""

from __future__ import annotations

import numpy as np
import pytest

from accelsweep.features.projection.fit import (
    FAMILY_PRIOR,
    RateTable,
    error_spread,
    fit,
    leave_one_device_out,
    leave_one_family_out,
    refit_with,
)
from accelsweep.records.run_record import NetworkFamily

CONVOLUTION, ATTENTION = NetworkFamily.convolution.value, NetworkFamily.attention.value
TRUE = np.array([2.0, 0.5, 3.0])


def table(factors=(1.0, 1.0, 1.0, 1.0), kinds=(CONVOLUTION, ATTENTION), coefficients=TRUE):
    """Rates of 40 models per device; each device is slower than its parts say by one of `factors`."""
    generator = np.random.default_rng(1)
    parts = np.exp(generator.normal(0.0, 1.5, size=(40, 3)))
    every = np.vstack([parts] * len(factors))
    slower = np.repeat(np.log(factors), 40)
    return RateTable(
        parts=every,
        log_seconds=np.log(every @ coefficients) + slower,
        weights=np.ones(len(every)),
        devices=np.repeat([f"device {number}" for number in range(len(factors))], 40),
        families=np.tile(np.repeat(kinds, 40 // len(kinds)), len(factors)),
        models=np.tile([f"model {number}" for number in range(40)], len(factors)),
    )


def test_the_true_coefficients_are_recovered_whatever_the_prior():
    for prior in (np.ones(3), 3.0 * np.ones(3)):
        assert fit(table(), prior).values == pytest.approx(TRUE, rel=0.02)


def test_a_few_outliers_do_not_move_the_fit():
    odd = table()
    odd.log_seconds[:4] += np.log(20.0)
    assert fit(odd, np.ones(3)).values == pytest.approx(TRUE, rel=0.05)


def test_a_fit_to_few_rates_stays_near_the_prior():
    few = table().select(np.arange(160) < 8)
    drawn, free = (abs(np.log(fit(each, np.ones(3)).values)).sum() for each in (few, table()))
    assert drawn < 0.95 * free


def test_the_term_of_a_family_is_the_shrunk_mean_of_its_residuals():
    slow = table()
    own = slow.families == ATTENTION
    slow.log_seconds[own] += 0.1
    found = fit(slow, np.ones(3))
    residual = float((slow.log_seconds[own] - np.log(slow.parts[own] @ found.values)).mean())
    assert found.families[NetworkFamily.attention] == pytest.approx(residual * own.sum() / (own.sum() + FAMILY_PRIOR))
    assert found.families[NetworkFamily.attention] > found.families[NetworkFamily.convolution]


def test_a_held_out_device_does_not_influence_its_own_projection():
    odd = table((1.0, 1.0, 1.0, 2.0))
    errors = leave_one_device_out(odd, refit_with(np.ones(3)))
    median = np.median(errors[odd.devices == "device 3"])
    assert median == pytest.approx(-np.log(2.0), abs=0.02), "the other devices do not show its slowness"
    assert abs(np.median(errors[odd.devices == "device 0"])) < np.log(2.0)


def test_the_only_family_has_no_hold_out_error():
    assert np.isnan(leave_one_family_out(table(kinds=(CONVOLUTION,)), refit_with(np.ones(3)))).all()
    assert not np.isnan(leave_one_family_out(table(), refit_with(np.ones(3)))).any()


def test_differences_between_devices_widen_the_interval_of_an_unseen_device_only():
    spreads = []
    for factors in ((1.0, 1.0, 1.0, 1.0), (1.0, 1.2, 0.8, 1.5)):
        made, refit = table(factors), refit_with(np.ones(3))
        spreads.append(error_spread(made, leave_one_device_out(made, refit), leave_one_family_out(made, refit), None))
    alike, unlike = spreads
    assert unlike.device > 10 * alike.device
    assert unlike.device > np.log(1.5), "one device in four is off by as much"
    assert unlike.within == pytest.approx(alike.within, abs=0.05)
