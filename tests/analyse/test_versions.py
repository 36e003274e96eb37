"""Versions are compared setting by setting, each with the same setting in the first version."""

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
SHAKE = (0.0, 0.003, -0.002, 0.001, -0.003)
"""The noise of a block's log rate beside its neighbour's."""


def version(name: str) -> Version:
    return Version(name=name, kind="commit", digest=sha256_text(name)[:40])


@pytest.fixture
def findings_of(simulated: ModuleType):
    """A function: findings from the rate of each (batch size, version), where blocks differ by a factor of two."""

    def made(rates: Mapping[tuple[int, str], float | None], **fields: Any) -> Findings:
        names = list(dict.fromkeys(name for _, name in rates))
        settings = [{"batch_size": size, "version": name} for size, name in rates]
        configs = {name: {"version": version(name).identity} for name in names}
        manifest = simulated.make_manifest(settings, BLOCKS)
        manifest = manifest.model_copy(update={"compared": tuple(map(version, names))})
        runs = [
            simulated.make_run(
                {"batch_size": size, "version": name},
                block,
                None if rate is None else rate * (1 + block) * (1 + SHAKE[(block + index) % BLOCKS]),
                sources={"mine": name},
                config=configs[name],
                **fields,
            )
            for block in range(BLOCKS)
            for index, ((size, name), rate) in enumerate(rates.items())
        ]
        return analyse(runs, manifest)

    return made


def verdicts(findings: Findings) -> dict[tuple[int, str], Verdict]:
    return {(setting.axes["batch_size"], setting.axes["version"]): setting.verdict for setting in findings.settings}


RATES = {(64, "main"): 100.0, (64, "HEAD"): 100.0, (256, "main"): 400.0, (256, "HEAD"): 388.0}


def test_each_setting_is_compared_with_itself_in_the_first_version(findings_of) -> None:
    found = findings_of(RATES)
    assert verdicts(found) == {
        (64, "main"): Verdict.baseline,
        (64, "HEAD"): Verdict.same,
        (256, "main"): Verdict.baseline,
        (256, "HEAD"): Verdict.slower,
    }
    assert found.family == 2
    ratio = next(
        setting for setting in found.settings if setting.axes == {"batch_size": 256, "version": "HEAD"}
    ).speedup.ratio
    assert ratio.value == pytest.approx(0.97, abs=0.002)


def test_the_headline_names_the_slowest_setting_and_the_rest_follows(findings_of) -> None:
    told = findings_of({**RATES, (256, "HEAD"): 372.0}).recommendation
    assert told.headline.startswith("HEAD is 7.0 % slower at batch 256 [-7.")
    assert "No difference between HEAD and main at batch 64 [" in told.detail
    assert told.certainty is Certainty.sure
    assert len(told.headline.split()) <= 12


def test_what_is_open_names_the_command_that_settles_it(findings_of) -> None:
    told = findings_of({**RATES, (256, "HEAD"): 390.4}).recommendation
    assert told.certainty is Certainty.not_yet
    assert told.settle is not None
    assert told.settle.startswith("accelsweep ab main HEAD experiment=simulated --name simulated --add-repeats")


def test_a_version_that_broke_is_told_with_its_reason_and_the_others_are_judged(findings_of) -> None:
    rates = {(64, "main"): 100.0, (64, "HEAD"): 93.0, (64, "broken"): None}
    found = findings_of(rates)
    assert verdicts(found)[64, "broken"] is Verdict.not_measured
    assert found.recommendation.headline.startswith("HEAD is 7.0 % slower at batch 64")
    assert "broken was not measured at batch 64. 5 of 5 runs: crashed" in found.recommendation.detail


def test_disturbed_versions_have_no_verdict(findings_of) -> None:
    busy = {"code": "busy_cpu", "message": "busy", "remedy": "stop"}
    told = findings_of(RATES, doubts=[busy]).recommendation
    assert told.certainty is Certainty.disturbed
    assert told.settle == (
        "accelsweep retry simulated --outcome disturbed && "
        "accelsweep ab main HEAD experiment=simulated --name simulated"
    )


def test_a_setting_alone_is_measured_again_in_all_versions_by_their_commits(findings_of) -> None:
    setting = findings_of(RATES).settings[1]
    main, head = version("main").id, version("HEAD").id
    assert setting.again.startswith(f"accelsweep ab {main} {head} experiment=simulated batch_size=64 --name ")
