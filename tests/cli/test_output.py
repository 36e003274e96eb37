"""What commands print matches the files: plan, status, results, comparison."""

import json
import math
import os
import random
import re
import shutil
from collections import Counter
from dataclasses import replace

import pytest

from accelsweep.analysis.analyse_sweep import analyse
from accelsweep.analysis.collect import collect
from accelsweep.cli.doctor import examine
from accelsweep.cli.runs import resolve_setting
from accelsweep.cli.status import print_status
from accelsweep.cli.sweeps import compare_sweeps, print_config, write_starter
from accelsweep.config.setting import label
from accelsweep.driver.finalize import _results_table, print_results
from accelsweep.driver.plan_preview import estimate_remaining, plan_to_show, preview_plan, show_plan, show_plan_to_run
from accelsweep.driver.request import FIRST_COMMANDS, Request
from accelsweep.driver.run_sweep import run_sweep
from accelsweep.errors import InputError
from accelsweep.executor.result_reuse import CurrentConditions
from accelsweep.planning.plan import make_plan, write_plan
from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import Manifest
from accelsweep.records.run_record import Record
from accelsweep.report.formatting import bare_text
from accelsweep.results import Outcome
from accelsweep.run_config import Run


@pytest.fixture(autouse=True)
def wide(monkeypatch):
    monkeypatch.setenv("COLUMNS", "220")


def test_a_plan_lists_settings_reasons_blocks_and_the_visible_difference(tmp_path, capsys):
    preview_plan(tmp_path, Request(("experiment=quickstart",)), keep_profile=True)
    shown = capsys.readouterr().out
    assert "batch 128, bf16-mixed, 2 processes" in shown
    assert "baseline" in shown
    assert "5 blocks (5 new), 45 runs, 0 settled already" in shown or "cuda x" in shown
    assert "expected power: 8 of 10 such sweeps would show a true difference of" in shown
    assert list(tmp_path.iterdir()) == []


def test_a_plan_of_many_settings_prints_forty_and_says_how_many_more(tmp_path, capsys):
    request = Request(("batch_size=range(1,46)", "accelerator=cpu,mps", "devices=1"))
    preview_plan(tmp_path, request)
    shown = capsys.readouterr().out
    assert "45 settings" in " ".join(shown.split())
    assert sum(f"batch {size}, " in shown for size in range(1, 46)) == 40
    assert "... and 5 more" in shown
    assert "unsupported: 45 x " in shown
    preview_plan(tmp_path, request, as_json=True)
    found = json.loads(capsys.readouterr().out)
    assert (len(found["settings"]), len(found["unsupported"])) == (45, 45)


def test_a_plan_in_which_nothing_can_run_says_so_without_an_empty_table(tmp_path, capsys):
    preview_plan(
        tmp_path, Request(("experiment=quickstart", "accelerator=mps", "devices=1"), name="none"), keep_profile=True
    )
    first, *reasons = capsys.readouterr().out.splitlines()
    assert first == "none, revision 1: nothing to measure, because no setting can run on 1 Apple GPU"
    assert [re.sub(r"\d+ x ", "", line).split(" (")[0] for line in reasons] == [
        "unsupported: the site 'local' has no Apple GPUs"
    ], "said once"


@pytest.mark.parametrize("show_it", [preview_plan, run_sweep])
def test_a_command_that_asks_for_nothing_says_what_to_type_and_writes_nothing(tmp_path, show_it):
    (site := tmp_path / "conf/site/mine.yaml").parent.mkdir(parents=True)
    site.touch()
    with pytest.raises(InputError) as refused:
        show_it(tmp_path, Request())
    first, *commands = str(refused.value).splitlines()
    assert first.startswith("there is nothing to measure: no override is given")
    assert [line.split("  ")[1] for line in commands] == list(FIRST_COMMANDS)
    assert list(tmp_path.rglob("*")) == [tmp_path / "conf", site.parent, site]


def test_a_command_that_asks_for_nothing_names_the_experiments_of_the_folder(tmp_path):
    write_starter(tmp_path)
    with pytest.raises(InputError, match="accelsweep run experiment=mine ") as refused:
        plan_to_show(tmp_path, Request())
    assert str(refused.value).splitlines()[1].startswith("  accelsweep run experiment=mine ")


def test_a_sweep_of_our_own_model_says_that_no_training_script_was_found(tmp_path):
    assert plan_to_show(tmp_path, Request(("batch_size=32,64",))).notes[0].startswith("no training script was found in")
    assert "script" not in "".join(plan_to_show(tmp_path, Request(("model=mlp", "batch_size=32,64"))).notes)


def test_a_bare_command_measures_what_the_folders_own_config_says(tmp_path):
    (tmp_path / "conf" / "model").mkdir(parents=True)
    (tmp_path / "conf" / "model" / "small_cnn.yaml").write_text("_target_: accelsweep.workloads.image_models.MLP\n")
    assert plan_to_show(tmp_path, Request()).manifest.sweep == "sweep"


def test_a_single_setting_has_no_smallest_visible_difference(tmp_path, capsys):
    alone = ["accelerator=cpu", "devices=1", "batch_size=32", "precision=32-true"]
    preview_plan(tmp_path, Request(("experiment=quickstart", *alone)), keep_profile=True)
    told = "expected power: unknown: there is no other setting to compare"
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith(told))
    assert "noise" not in line


def test_time_estimates_use_earlier_sweeps_of_the_folder(example_sweep, capsys):
    """Each run of the example took an hour, and its window was to last a second."""
    paths = example_sweep.latest_records()
    for path in paths:
        Record.read(path).model_copy(update={"wall_seconds": 3601.0}).write(path)
    others = ["accelerator=cpu", "devices=1", "batch_size=32,64", "repeats=1", "measure.min_seconds=1"]
    preview_plan(example_sweep.home, Request(tuple(others), name="other"), keep_profile=True)
    shown = capsys.readouterr().out
    assert "left: 2 runs, about 2 hours (by earlier sweeps in this folder)" in re.findall("left: .*", shown)
    later = json.loads(paths[0].read_text()) | {"format": 2, "version": "99.0"}
    for path in paths:
        path.write_text(json.dumps(later))
    preview_plan(example_sweep.home, Request(tuple(others), name="other"), keep_profile=True)
    assert "(assumed, until a first run has ended)" in capsys.readouterr().out


def test_a_priced_plan_shows_its_cost_even_without_gpus(tmp_path, capsys):
    priced = ["experiment=quickstart", "accelerator=cpu", "devices=1", "prices=dawnbench_2018", "repeats=100"]
    preview_plan(tmp_path, Request(tuple(priced)), keep_profile=True)
    assert re.search(r"^ +about \d\.\d\d USD \(at most \d+\.\d\d\)$", capsys.readouterr().out, re.MULTILINE)


@pytest.fixture
def measured(tmp_path, example_sweep):
    """Return a function that plans on a processor with these overrides, and writes a measured record for each run."""
    earlier = (Record.read(path) for path in example_sweep.root.glob("runs/*/record.json"))
    template = next(record for record in earlier if record.outcome is Outcome.measured)
    home = tmp_path / "home"
    home.mkdir()

    def write(*overrides):
        plan = make_plan(home, ["experiment=quickstart", "accelerator=cpu", "devices=1", *overrides])
        folder, configs = write_plan(home, plan), {setting.name: setting.config for setting in plan.settings}
        generator = random.Random(1)
        for block in plan.manifest.blocks:
            for name in block.runs:
                run = Run.parse(name)
                rate = template.metrics["samples_per_second"]
                noisy = replace(rate, value=rate.value * math.exp(generator.gauss(0, 0.05)))
                own = {"sweep": plan.manifest.sweep, "block": block.name, "run": name, "setting": run.setting}
                own |= {"repeat": run.repeat, "config": configs[run.setting]}
                own |= {"metrics": {**template.metrics, "samples_per_second": noisy}}
                own |= {"fingerprint": CurrentConditions(folder).read_fingerprint(configs[run.setting])}
                template.model_copy(update=own).write(folder.record(name))
        return plan, folder

    return write


def test_runs_measured_with_other_software_count_as_missing(measured, capsys):
    plan, folder = measured("repeats=1")
    home, runs = folder.home, plan.manifest.wanted_runs()
    assert estimate_remaining(home, plan).runs_left == 0
    record = Record.read(folder.record(runs[0]))
    older = replace(record.fingerprint, software={"torch": "1.0", "lightning": "1.0"})
    record.model_copy(update={"fingerprint": older}).write(folder.record(record.run))
    assert estimate_remaining(home, plan).runs_left == 1
    show_plan_to_run(home, plan)
    shown = capsys.readouterr().out
    assert f"{len(runs)} runs, {len(runs) - 1} settled already" in shown
    assert "measured already" in shown, "the table of settings"
    assert "left: 1 run, about" in shown


def test_a_plan_without_runs_left_is_shown_without_its_table_but_says_what_cannot_run(measured, capsys):
    plan, folder = measured("repeats=1", "accelerator=cpu,mps")
    count = len(plan.manifest.wanted_runs())
    show_plan_to_run(folder.home, plan)
    first, *others = capsys.readouterr().out.splitlines()
    assert first == f"quickstart, revision 1: {count} runs, {count} settled already; nothing is left to measure"
    assert [line.partition(":")[0] for line in others] == ["unsupported"]
    assert "Apple GPU" in others[0]


@pytest.mark.parametrize("option", ["auto_repeats", "until_decided"])
def test_a_plan_that_may_grow_is_not_said_to_have_nothing_left(measured, capsys, option):
    plan, folder = measured("repeats=1")
    options = plan.manifest.options.model_copy(update={option: True})
    show_plan_to_run(folder.home, replace(plan, manifest=plan.manifest.model_copy(update={"options": options})))
    first, *_ = capsys.readouterr().out.splitlines()
    assert first.endswith("settled already")


def test_the_visible_difference_uses_the_measured_noise_as_in_the_report(measured, capsys):
    plan, folder = measured("repeats=4")
    show_plan(folder.home, plan)
    shown = capsys.readouterr().out
    seen = analyse(collect(folder), plan.manifest).smallest_visible_effect
    assert f"such sweeps would show a true difference of {seen:.1%} (" in shown
    assert "noise between runs (seen in earlier runs)" in shown


def test_noise_is_assumed_if_there_is_only_one_block(measured, capsys):
    plan, folder = measured("repeats=1")
    show_plan(folder.home, make_plan(folder.home, [*plan.manifest.overrides, "repeats=4"]))
    assert "noise between runs (assumed)" in capsys.readouterr().out


def test_cfg_job_prints_the_composed_config(tmp_path, capsys):
    print_config(tmp_path, ["experiment=quickstart", "batch_size=7"], "job")
    assert "batch_size: 7\n" in capsys.readouterr().out


def test_any_other_cfg_is_refused(tmp_path):
    with pytest.raises(InputError, match="--cfg job"):
        print_config(tmp_path, [], "hydra")


def test_results_count_unsettled_runs_and_name_the_report(example_sweep, capsys):
    analyse(collect(example_sweep), Manifest.read(example_sweep.manifest)).write(example_sweep.findings)
    unsettled = print_results(example_sweep).unsettled
    shown = capsys.readouterr().out
    assert unsettled > 0
    assert f"{unsettled} of" in shown
    assert str(example_sweep.report / "index.html") in shown


def test_each_reason_for_failed_runs_is_among_the_last_lines_with_its_count(example_sweep, capsys):
    """The same reason with other numbers is one reason; those that kept runs from being begun follow."""
    found = analyse(collect(example_sweep), Manifest.read(example_sweep.manifest))
    found.write(example_sweep.findings)
    failed = [
        record
        for path in example_sweep.latest_records()
        if not (record := Record.read(path)).outcome.settled and record.run in found_runs(example_sweep)
    ]
    for number, record in enumerate(failed):
        reason = f"no room for {number} rows\nand a second line"
        record.model_copy(update={"reason": reason}).write(example_sweep.record(record.run))
    print_results(example_sweep)
    last = capsys.readouterr().out.splitlines()
    counts = Counter(record.outcome for record in failed)
    assert counts
    for outcome, count in counts.items():
        runs = f"{count} run{'s' if count > 1 else ''}"
        (line,) = (line for line in last[-4:] if line.startswith(f"{outcome}: {runs}: no room for "))
        assert line.endswith(f"rows; accelsweep runs {example_sweep.name} --outcome {outcome} lists them")


def test_a_long_table_of_results_shows_the_baseline_and_the_fastest(example_sweep):
    findings = analyse(collect(example_sweep), Manifest.read(example_sweep.manifest))
    baseline = next(one for one in findings.settings if one.setting == findings.baseline)
    assert baseline.rate is not None
    faster = [
        baseline.model_copy(
            update={"setting": f"s{n}", "label": f"s{n}", "rate": baseline.rate.model_copy(update={"value": 1e6 + n})}
        )
        for n in range(100)
    ]
    rows = _results_table(findings.model_copy(update={"settings": (*faster, baseline)})).rows
    assert [row[0] for row in rows] == [
        *(f"s{n}" for n in range(61, 100)),
        baseline.label,
        "... and 61 more: see the report",
    ]


def test_a_sweep_in_which_every_run_failed_says_so_once_and_repeats_no_failing_command(measured, capsys):
    plan, folder = measured("batch_size=32,64", "precision=32-true", "repeats=1")
    error = "ValueError: 3 rows are wrong"
    for path in folder.latest_records():
        failed = {"outcome": Outcome.crashed, "reason": error, "metrics": {}}
        Record.read(path).model_copy(update=failed).write(path)
    found = analyse(collect(folder), plan.manifest)
    found.write(folder.findings)
    print_results(folder)
    first, *_, counts, last = capsys.readouterr().out.splitlines()
    advice = found.recommendation
    assert first == f"{advice.headline}  [{advice.certainty}]", "neither a table nor its reasons"
    assert counts == "2 of 2 runs have no final outcome (2 crashed): fix the cause, then run the same command"
    assert last == f"crashed: 2 runs: {error}; accelsweep runs quickstart --outcome crashed lists them"


def test_a_sweep_in_which_nothing_can_run_says_where_to_look(tmp_path, capsys):
    plan = make_plan(tmp_path, ["experiment=quickstart", "accelerator=mps", "devices=1"])
    folder = write_plan(tmp_path, plan)
    found = analyse(collect(folder), plan.manifest)
    found.write(folder.findings)
    assert not print_results(folder).can_run, "so the command ends with 1"
    first, second, report, _ = capsys.readouterr().out.splitlines()
    assert first == f"{found.recommendation.headline}  [{found.recommendation.certainty}]"
    assert second == "to see what can run here: accelsweep doctor"
    assert report.startswith("report: ")


def found_runs(folder):
    return set(Manifest.read(folder.manifest).wanted_runs())


def test_the_final_table_shows_its_numbers_at_any_width_and_label_length(example_sweep, capsys, monkeypatch):
    """At 80 columns, with settings of nine axes, one of which is markup."""
    found = analyse(collect(example_sweep), Manifest.read(example_sweep.manifest))
    long = " | ".join(["[/foo]", *(f"model.layer_{number}.width={number}" for number in range(8))])
    wide = tuple(each.model_copy(update={"label": f"{each.label} | {long}"}) for each in found.settings)
    found.model_copy(update={"settings": wide}).write(example_sweep.findings)
    monkeypatch.setenv("COLUMNS", "80")
    print_results(example_sweep)
    shown = capsys.readouterr().out
    assert "[/foo]" in shown
    rates = [bare_text(setting.rate).split()[0] for setting in wide if setting.rate]
    assert rates
    assert all(rate in shown for rate in rates)
    assert all(str(setting.verdict) in shown for setting in wide if setting.speedup)


def test_status_lists_every_sweep_of_the_folder(example_sweep, capsys):
    print_status(example_sweep.home, None)
    shown = capsys.readouterr().out
    assert shown.splitlines()[0] == f"{example_sweep.name}: no report yet"
    assert "; no driver is running" in shown


def test_status_begins_with_the_headline_of_the_report(example_sweep, capsys):
    found = analyse(collect(example_sweep), Manifest.read(example_sweep.manifest))
    found.write(example_sweep.findings)
    print_status(example_sweep.home, None)
    first, second, *_ = capsys.readouterr().out.splitlines()
    assert first == f"{example_sweep.name}: {found.recommendation.headline}"
    assert second.startswith("  21 of 24 runs settled")


def test_status_and_plan_say_why_results_no_longer_count(measured, capsys):
    _, folder = measured("batch_size=32,64", "repeats=2")
    home = folder.home
    for path in folder.latest_records():
        record = Record.read(path)
        software = record.fingerprint.software | {"torch": "2.1.0"}
        record.model_copy(update={"fingerprint": replace(record.fingerprint, software=software)}).write(path)
    print_status(home, None)
    words = r"10 results no longer count: the software changed \(torch 2\.1\.0, now [0-9.]+\)"
    assert re.search(
        rf"^  {words}; the same `accelsweep run` measures them again$", capsys.readouterr().out, re.MULTILINE
    )
    typed = ("experiment=quickstart", "accelerator=cpu", "devices=1", "batch_size=32,64", "repeats=2")
    preview_plan(home, Request(typed))
    assert re.search(rf" runs, 0 settled already \({words}\)$", capsys.readouterr().out, re.MULTILINE)


def test_status_names_the_setting_and_the_repeat_of_a_doubt(example_sweep, capsys):
    doubtful = next(record for path in example_sweep.latest_records() if (record := Record.read(path)).doubts)
    axes = {setting.name: setting.axes for setting in Manifest.read(example_sweep.manifest).settings}
    print_status(example_sweep.home, None)
    told = f"doubt: {label(axes[doubtful.setting])}, repeat {doubtful.repeat}: {doubtful.doubts[0].message}"
    assert told in capsys.readouterr().out


def test_status_shows_the_remaining_days(example_sweep, capsys):
    for run in Manifest.read(example_sweep.manifest).wanted_runs():
        path = example_sweep.record(run)
        if path.exists():
            Record.read(path).model_copy(update={"wall_seconds": 3600.0 * 26 / 3}).write(path)
    print_status(example_sweep.home, None)
    assert "remaining: 3 runs, about 1 day, 2:00:00" in capsys.readouterr().out


def test_status_names_damage_in_one_sweep_and_continues_with_the_next(example_sweep, capsys):
    """A manifest without JSON, a record that nobody will ever finish writing, an endless progress."""
    before, after = (SweepFolder(example_sweep.home, name) for name in ("aaa", "zzz"))
    shutil.copytree(example_sweep.root, after.root)
    before.root.mkdir()
    before.manifest.write_text("NaN")
    run = next(run for run in Manifest.read(after.manifest).wanted_runs() if after.record(run).exists())
    after.record(run).unlink()
    os.mkfifo(after.record(run))
    assert print_status(example_sweep.home, None) == 1
    shown = capsys.readouterr().out
    assert f"aaa: damaged: {before.manifest}: not a complete JSON document (NaN is not JSON)" in shown
    assert f"{example_sweep.name}: " in shown
    assert f"damaged: {after.record(run)}: not a regular file: something else is in its place" in shown


def test_status_names_a_sweep_of_a_later_version_and_continues_with_the_next(example_sweep, capsys):
    later = SweepFolder(example_sweep.home, "aaa")
    shutil.copytree(example_sweep.root, later.root)
    envelope = json.loads(later.manifest.read_text())
    later.manifest.write_text(json.dumps(envelope | {"format": 2, "version": "99.0"}))
    assert print_status(example_sweep.home, None) == 1
    shown = capsys.readouterr().out
    assert f"aaa: {later.manifest}: written by accelsweep 99.0" in shown
    assert "install accelsweep 99.0" in shown
    assert f"{example_sweep.name}: " in shown


def test_status_of_an_empty_folder_says_how_to_begin(tmp_path, capsys):
    print_status(tmp_path, None)
    assert "accelsweep run experiment=quickstart" in capsys.readouterr().out


def test_a_sweep_compared_with_itself_shows_no_regression(example_sweep, capsys):
    compare_sweeps(example_sweep.home, example_sweep.name, example_sweep.name, "slower:2%")
    shown = capsys.readouterr().out
    assert "slower:2%: 1 of 7 comparisons could not be judged: " in shown, (
        "one of 8 has no rate, and one a single repeat"
    )
    for side in ("before", "after"):
        assert re.search(rf": busy_cpu: {side} \({example_sweep.name}\): ", shown), "whose doubt it is, in words"


def test_a_gate_that_is_not_understood_is_refused_with_an_example(example_sweep):
    with pytest.raises(InputError, match="slower:2%"):
        compare_sweeps(example_sweep.home, example_sweep.name, example_sweep.name, "worse")


def test_a_prefix_of_a_settings_name_is_enough(example_sweep):
    runnable = [
        setting.name for setting in Manifest.read(example_sweep.manifest).settings if setting.unsupported is None
    ]
    assert resolve_setting(example_sweep, runnable[0][:8]) == runnable[0]
    with pytest.raises(InputError, match="matches several settings"):
        resolve_setting(example_sweep, "")


def test_doctor_finds_this_machine_able(tmp_path, capsys):
    assert examine(tmp_path) == 0
    shown = capsys.readouterr().out
    assert "device: " in shown
    assert "FAIL" not in shown


@pytest.mark.parametrize("minutes", [0.0, -1.0, math.nan, math.inf])
def test_doctor_refuses_impossible_waiting_times(minutes, tmp_path):
    with pytest.raises(InputError, match=f"--job {minutes:g}: the number of minutes"):
        examine(tmp_path, ["site=slurm_example"], job_minutes=minutes)


def test_doctor_takes_site_overrides_only_and_reports_missing_slurm_programs(tmp_path, capsys, monkeypatch):
    for wrong in (["batch_size=8"], ["site=slurm_exampl"]):
        with pytest.raises(InputError):
            examine(tmp_path, wrong)
    with pytest.raises(InputError, match="site=NAME"):
        examine(tmp_path, job_minutes=1)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert examine(tmp_path, ["site=slurm_example"]) == 1
    shown = capsys.readouterr().out.splitlines()
    assert any("no sbatch and no squeue" in line for line in shown)
    assert "checks failed; the first was: site slurm_example" in shown[-1]
    assert examine(tmp_path, ["site=local"]) == 0
    assert not list(tmp_path.iterdir())


def test_status_says_if_slurm_was_not_asked(example_sweep, capsys, monkeypatch, tmp_path):
    manifest = Manifest.read(example_sweep.manifest)
    cluster = manifest.site.model_copy(update={"scheduler": "slurm"})
    manifest.model_copy(update={"site": cluster}).write(example_sweep.manifest)
    monkeypatch.setenv("PATH", str(tmp_path))  # no squeue there
    print_status(example_sweep.home, example_sweep.name)
    shown = capsys.readouterr().out
    assert "the queue was not queried: there is no squeue here" in shown


def test_a_gate_passes_only_if_it_could_judge_every_setting(example_sweep, capsys):
    other = SweepFolder(example_sweep.home, "unlike")
    shutil.copytree(example_sweep.root, other.root)
    for path in other.root.glob("runs/*/record.json"):
        path.unlink()
    manifest = Manifest.read(other.manifest)
    manifest.model_copy(update={"sweep": "unlike"}).write(other.manifest)
    assert compare_sweeps(example_sweep.home, example_sweep.name, "unlike", None) == 0, (
        "without a gate, nothing is asked"
    )
    assert compare_sweeps(example_sweep.home, example_sweep.name, "unlike", "slower:2%") == 1
    assert "could not be judged: after: " in capsys.readouterr().out
