"""The script behind `make package` passes pip's package sources on to uv."""

import runpy
from pathlib import Path
from typing import Any

import pytest

INSTALL: dict[str, Any] = runpy.run_path(str(Path(__file__).parents[1] / "install.py"))


@pytest.fixture(autouse=True)
def only_these_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of pip's settings that is the only one, apart from those of the whole system."""
    for name in ("PIP_FIND_LINKS", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_NO_INDEX", "INSTALLER"):
        monkeypatch.delenv(name, raising=False)
    file = tmp_path / "pip.conf"
    monkeypatch.setenv("PIP_CONFIG_FILE", str(file))
    return file


def uv_options() -> list[str]:
    options: list[str] = INSTALL["uv_options"](INSTALL["pip_settings"]())
    return options


def test_uv_looks_for_packages_where_pip_would(only_these_settings: Path) -> None:
    only_these_settings.write_text(
        "[global]\nindex-url = https://mirror.example/simple\nextra-index-url =\n    https://a.example\n    https://b.example\n"
        "trusted-host = mirror.example\n[install]\nfind-links = /wheels /more-wheels\n"
    )
    options = " ".join(uv_options())
    assert "--index-url https://mirror.example/simple" in options
    assert "--extra-index-url https://a.example --extra-index-url https://b.example" in options
    assert "--find-links /wheels --find-links /more-wheels" in options
    assert "--allow-insecure-host mirror.example" in options


def test_a_variable_wins_over_pip_s_file(only_these_settings: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    only_these_settings.write_text("[install]\nindex-url = https://file.example\n[global]\nno-index = true\n")
    monkeypatch.setenv("PIP_INDEX_URL", "https://variable.example")
    monkeypatch.setenv("PIP_NO_INDEX", "false")
    options = uv_options()
    assert options[options.index("--index-url") + 1] == "https://variable.example"
    assert "--no-index" not in options


def test_among_several_sources_uv_chooses_the_newest_version_as_pip_does(only_these_settings: Path) -> None:
    only_these_settings.touch()
    assert uv_options()[:2] == ["--index-strategy", "unsafe-best-match"]


def test_where_uv_cannot_install_pip_does_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    # No source is left, so neither of them finds the requirement, and pip is the last to say so.
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    assert INSTALL["main"](["no-such-package"]) != 0
    printed = capfd.readouterr().err
    assert "uv could not install this (see above); trying pip" in printed
    assert "No matching distribution found for no-such-package" in printed


def test_pip_installs_alone_when_it_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("INSTALLER", "pip")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    assert INSTALL["main"](["no-such-package"]) != 0
    printed = capfd.readouterr().err
    assert "uv" not in printed
    assert "No matching distribution found for no-such-package" in printed
