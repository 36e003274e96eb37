"""The doubts in a few plain words. The code stays beside them, because it is what one searches for."""

from __future__ import annotations

from accelsweep.core.recorded.record import Doubt

WORDS = {
    "bad_teardown": "a run did not end well",
    "baseline_drift": "the baseline drifted",
    "build_differs": "builds differ",
    "busy_cpu": "other work kept the processor busy",
    "clock_gap": "the machine slept while timing, or its clock was set",
    "cpu_governor": "the processor's clock follows the load",
    "epoch_boundary": "the data began again while timing",
    "few_repeats": "few repeats",
    "fewer_repeats": "some repeats are missing",
    "foreign_process": "other processes used the device",
    "load_refused": "some repeats kept the latency at no load",
    "memory_grows": "memory grew while timing",
    "mixed_hosts": "several machines",
    "no_steps": "the single steps were not kept",
    "noisy_baseline": "the baseline is noisier than the rest",
    "optimizer_batch": "optimiser steps held another batch than was asked for",
    "outlier": "one repeat lies far from the others",
    "page_faults": "data came from disk while timing",
    "power_capped": "the device was at its power limit",
    "processes_stopped": "all processes stood still while timing",
    "shared_timing": "two runs were timed at once",
    "short_window": "the timed window was short",
    "sources_changed": "sources changed during a run",
    "sources_differ": "sources differ",
    "stall": "a step took far longer than the others",
    "swap": "the machine swapped while timing",
    "target_missed": "some repeats missed the target",
    "temperature_drift": "the device warmed up while timing",
    "threads_differ": "repeats had different numbers of threads",
    "throttled": "the device was slowed down",
    "two_levels": "the rate has two levels",
    "uneven_noise": "it is noisier than the rest",
    "unpaired": "compared without common blocks",
    "unlike_nodes": "compared across unlike nodes",
    "unsteady_window": "speed changed while timing",
}
"""Code -> words, for each doubt that accelsweep raises."""


def in_words(doubt: Doubt) -> str:
    """Return a doubt in a few words; one that this version does not know is its code with blanks."""
    return WORDS.get(doubt.code, doubt.code.replace("_", " "))
