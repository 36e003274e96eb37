"""Pages of the reference are made from the code, so nothing that the code has can be missing there."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.heavy, pytest.mark.usefixtures("generators")]

ROOT = Path(__file__).resolve().parents[2]


def test_every_command_and_option_has_a_row(made_page):
    page = made_page("commands")
    assert "## run\n" in page
    assert "`--cancel-old`" in page
    assert "Open MLflow in the browser" in page
    assert "# the shipped quickstart\naccelsweep run experiment=quickstart\n" in page


def test_a_doubt_has_the_message_and_the_remedy_of_its_own_place():
    import doubts

    raised = list(doubts.raised())
    found = {one.code: one for one in raised}
    assert found["short_window"].message == (
        "the window had {steps} steps in {seconds} s, but {min_steps} steps and {min_seconds} s were requested"
    )
    assert found["missing_repeats"].remedy == "check why the runs failed, then run again"
    assert found["build_differs"].message == "the build tag of {package} differs: {ours}, {theirs}"
    assert len(found) == len(raised), "a code is raised in one place"


def test_every_error_that_ends_a_command_is_listed_with_its_exit_code(made_page):
    page = made_page("errors")
    assert "| `InputError` | The user's input (override, config, name, price) is wrong." in page
    assert "| `StoreUnavailable` |" in page, "subclasses elsewhere count"
    assert "| 130 | Ctrl-C" in page
    assert (
        "| `timed_out` | It reached `limits.run_seconds`, or did not finish a step for `limits.silence_seconds`. | no |"
        in page
    )
    assert page.count("| `InputError` |") > 100


def test_a_kind_of_error_has_the_exit_code_that_its_class_has(made_page):
    import sources

    told = dict(re.findall(r"^\| `(\w+)` \| .* \| (\d*) \|$", made_page("errors"), re.MULTILINE))
    assert {"NewerFile", "RefusedArchive", "BatchSearchNeeded"} <= told.keys()
    homes = {
        node.name: ".".join(["accelsweep", *path.with_suffix("").parts])
        for path, tree in sources.trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and node.name in told
    }
    # In a process of its own, because modules that speak to MLflow set variables of the environment.
    lines = [f"import {', '.join(sorted(set(homes.values())))}"]
    lines += [f"print({name!r}, getattr({home}.{name}, 'exit_code', ''))" for name, home in homes.items()]
    ran = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=True)
    assert dict(line.split(" ") for line in ran.stdout.splitlines()) == told


def test_every_command_that_answers_in_json_is_named(made_page):
    from accelsweep.driver.json_output import all_answers

    (line,) = (line for line in made_page("answers").splitlines() if "take `--json`" in line)
    assert {answer.kind for answer in all_answers()} == set(re.findall(r"`(\w+)`", line))


def test_a_name_that_is_assigned_twice_has_the_value_before_the_call():
    import sources

    tree = ast.parse("def f():\n    m = 'one'\n    g(m)\n    m = 'two'\n    g(m)\n")
    assert [sources.words(call.args[0], names) for call, names in sources.calls(tree)] == ["one", "two"]


def test_every_key_of_every_shipped_file_has_a_row(made_page):
    import config_keys

    page = made_page("config_keys")
    for file in sorted((ROOT / "conf").rglob("*.yaml")):
        if file.parent.name in ("site", "measure", "serving", "model", "data", "optimizer", "trainer", "prices"):
            for key in config_keys.keys_of(file):
                assert key.name == "defaults" or f"| `{file.parent.name}.{key.name}` |" in page
        elif file.parent != ROOT / "conf":
            name = str(file.relative_to(ROOT / "conf").with_suffix("")).partition("/")[2]
            assert f"| `{name}` |" in page
    assert "| `measure.scenario` | `offline` | offline, single\\_stream, multi\\_stream, server |" in page
    said = "samples per step and device; auto: the largest that fits"
    assert f"| `batch_size` | `32` | whole number from 1, or auto | {said} |" in page


def test_every_key_that_the_models_check_has_a_row(made_page):
    import config_keys

    named = set(re.findall(r"^\| `([^`]+)` \|", made_page("config_keys"), re.MULTILINE))
    assert {"site.kinds", "site.slurm.gpu_request", "report.claims", "prices.carbon"} <= config_keys.known()
    assert config_keys.known() - named == set()


def test_every_key_of_ours_has_a_meaning_and_allows_the_words_that_it_names(made_page):
    rows = re.findall(r"^\| `([^`]+)` \| (.*?) \| (.*?) \| (.*) \|$", made_page("config_keys"), re.MULTILINE)
    assert len(rows) > 500
    assert [name for name, _, _, meaning in rows if not meaning.strip()] == []
    with_auto = [(name, allowed) for name, _, allowed, meaning in rows if re.search(r"(?<!=)\bauto:", meaning)]
    assert [name for name, allowed in with_auto if allowed.strip() and "auto" not in allowed] == []
    (accelerator,) = (allowed for name, _, allowed, _ in rows if name == "accelerator")
    assert accelerator == "cpu, cuda, mps, xpu, simulated, or auto, or KIND:MODEL"


def test_a_file_that_this_reader_takes_for_another_is_refused(tmp_path):
    import config_keys

    (tmp_path / "odd.yaml").write_text("? key\n: value\n")
    with pytest.raises(ValueError, match="not read alike"):
        config_keys.keys_of(tmp_path / "odd.yaml")


def test_every_page_of_the_api_names_modules_that_exist():
    import api

    pages = api.pages()
    named = [
        line.removeprefix("::: ") for text in pages.values() for line in text.splitlines() if line.startswith(":::")
    ]
    assert "accelsweep.records.run_record" in named
    for name in named:
        assert (ROOT / "src" / Path(*name.split("."))).with_suffix(".py").is_file()


def test_links_from_the_root_point_into_the_site():
    from links import for_the_site

    assert for_the_site("[a](docs/config.md#axes) [b](CHANGELOG.md) [c](https://x.org/y)") == (
        "[a](config.md#axes) [b](changelog.md) [c](https://x.org/y)"
    )
