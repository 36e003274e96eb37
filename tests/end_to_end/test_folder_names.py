"""A working folder with an odd name: everything works in it, and nothing is written beside it."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from home import TINY, Home
from polling import until
from shared_fork_server import beside_the_server

pytestmark = pytest.mark.real

ODD = "x?y #z%20'q\"&{w}[v]$H\\"
"""What addresses, shells, Snakemake's wildcards and globs take for something else, in one name."""


def asked(address: str, path: str, body: dict[str, object]) -> dict[str, object]:
    request = Request(
        f"{address}/api/2.0/mlflow/{path}", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urlopen(request) as answer:
        return dict(json.load(answer))


@pytest.mark.long  # test_store_uri.py opens a store in a folder of each such name
def test_all_commands_work_in_a_folder_with_an_odd_name(tmp_path: Path, leases: str) -> None:
    home = Home(tmp_path / ODD, ACCELSWEEP_LEASES=leases, **beside_the_server())
    home.experiment("tiny", TINY)
    for arguments in (
        ("run", "experiment=tiny", "repeats=1"),
        ("run", "experiment=tiny", "repeats=1"),
        ("publish", "tiny"),
        ("report", "tiny"),
        ("export", "tiny"),
        ("import", "tiny.zip", "--name", "other"),
        ("publish", "other"),
    ):
        ended = home.accelsweep(*arguments)
        assert ended.returncode == 0, ended.stdout
        assert "MLflow is incomplete" not in ended.stdout
    server = home.start("ui", "--no-open")
    assert server.stdout is not None
    lines: list[str] = []
    until(lambda: lines.append(server.stdout.readline()) or "http://" in lines[-1])  # type: ignore[union-attr,func-returns-value]
    address = "http://" + lines[-1].partition(" http://")[2].partition("/#")[0].split()[0]
    found = asked(address, "runs/search", {"experiment_ids": ["1", "2"], "filter": "tags.kind = 'report'"})["runs"]
    assert isinstance(found, list)
    assert len(found) == 2
    page = f"{address}/get-artifact?path=report/index.html&run_uuid={found[0]['info']['run_id']}"
    with urlopen(page) as answer:
        assert b"<html" in answer.read(1000)
    home.end_processes()
    assert [path.name for path in tmp_path.iterdir()] == [ODD], "nothing lies beside it"
