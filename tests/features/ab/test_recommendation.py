"""Each setting is compared with the same setting in the first version, and the worst one makes the headline."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import Any

import pytest

from accelsweep.analysis.analyse_sweep import analyse
from accelsweep.config.versions import Version
from accelsweep.plain_json import sha256_text
from accelsweep.records.estimates import Verdict
from accelsweep.records.findings import Certainty, Findings

BLOCKS = 5
NOISE = (0.0, 0.003, -0.002, 0.001, -0.003)
"""Relative noise of a run, by block and setting."""


def version(name: str) -> Version:
    return Version(name=name, kind="commit", digest=sha256_text(name)[:40])


@pytest.fixture
def findings_of(simulated: ModuleType):
    """Return findings from a rate for each (batch size, version); the machine speeds up from block to block."""

    def analyse_rates(rates: Mapping[tuple[int, str], float | None], **fields: Any) -> Findings:
        names = list(dict.fromkeys(name for _, name in rates))
        settings = [{"batch_size": size, "version": name} for size, name in rates]
        configs = {name: {"version": version(name).identity} for name in names}
        manifest = simulated.make_manifest(settings, BLOCKS)
        manifest = manifest.model_copy(update={"compared": tuple(map(version, names))})
        runs = [
            simulated.make_run(
                {"batch_size": size, "version": name},
                block,
                None if rate is None else rate * (1 + block) * (1 + NOISE[(block + index) % BLOCKS]),
                sources={"mine": name},
                config=configs[name],
                **fields,
            )
            for block in range(BLOCKS)
            for index, ((size, name), rate) in enumerate(rates.items())
        ]
        return analyse(runs, manifest)

    return analyse_rates


def verdicts(findings: Findings) -> dict[tuple[int, str], Verdict]:
    return {(setting.axes["batch_size"], setting.axes["version"]): setting.verdict for setting in findings.settings}


RATES = {(64, "main"): 100.0, (64, "HEAD"): 100.0, (256, "main"): 400.0, (256, "HEAD"): 388.0}


def test_each_setting_is_compared_with_the_same_setting_in_the_first_version(findings_of) -> None:
    findings = findings_of(RATES)
    assert verdicts(findings) == {
        (64, "main"): Verdict.baseline,
        (64, "HEAD"): Verdict.same,
        (256, "main"): Verdict.baseline,
        (256, "HEAD"): Verdict.slower,
    }
    assert findings.family == 2
    ratio = next(
        setting for setting in findings.settings if setting.axes == {"batch_size": 256, "version": "HEAD"}
    ).speedup.ratio
    assert ratio.value == pytest.approx(0.97, abs=0.002)


def test_the_headline_names_the_slowest_setting_and_the_rest_follows(findings_of) -> None:
    recommendation = findings_of({**RATES, (256, "HEAD"): 372.0}).recommendation
    assert recommendation.headline.startswith("HEAD is 7.0 % slower at batch 256 [-7.")
    assert "No difference between HEAD and main at batch 64 [" in recommendation.detail
    assert recommendation.certainty is Certainty.sure
    assert len(recommendation.headline.split()) <= 12


def test_an_open_comparison_names_the_command_that_settles_it(findings_of) -> None:
    recommendation = findings_of({**RATES, (256, "HEAD"): 390.4}).recommendation
    assert recommendation.certainty is Certainty.undecided
    assert recommendation.settle is not None
    assert recommendation.settle.startswith(
        "accelsweep ab main HEAD experiment=simulated --name simulated --add-repeats"
    )


def test_a_crashed_version_is_reported_with_its_reason_and_the_others_are_judged(findings_of) -> None:
    rates = {(64, "main"): 100.0, (64, "HEAD"): 93.0, (64, "broken"): None}
    findings = findings_of(rates)
    assert verdicts(findings)[64, "broken"] is Verdict.not_measured
    assert findings.recommendation.headline.startswith("HEAD is 7.0 % slower at batch 64")
    assert "broken was not measured at batch 64. 5 of 5 runs: crashed" in findings.recommendation.detail


def test_disturbed_versions_have_no_verdict_and_are_to_be_retried(findings_of) -> None:
    busy = {"code": "busy_cpu", "message": "busy", "remedy": "stop"}
    recommendation = findings_of(RATES, doubts=[busy]).recommendation
    assert recommendation.certainty is Certainty.disturbed
    assert recommendation.settle == (
        "accelsweep retry simulated --outcome disturbed && "
        "accelsweep ab main HEAD experiment=simulated --name simulated"
    )


def test_the_command_to_measure_one_setting_again_pins_the_commits(findings_of) -> None:
    setting = findings_of(RATES).settings[1]
    main, head = version("main").id, version("HEAD").id
    assert setting.again.startswith(f"accelsweep ab {main} {head} experiment=simulated batch_size=64 --name ")
