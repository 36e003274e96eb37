"""One sentence says who was refused, what, and what mends it; a silent store is told in the system's words."""

from __future__ import annotations

import pytest
import requests
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import PERMISSION_DENIED, UNAUTHENTICATED

from accelsweep.tracking.store import refusal, why

URI = "http://bob:hunter2@mlflow.example"


def test_a_wrong_password_is_told_from_a_missing_permission() -> None:
    unknown = refusal(URI, MlflowException("401", UNAUTHENTICATED), None, "quick")
    lacking = refusal(URI, MlflowException("403", PERMISSION_DENIED), "quick", "quick")
    assert unknown is not None
    assert lacking is not None
    assert "no user 'bob' with this password" in unknown
    assert "'bob' may not write to the experiment 'quick'" in lacking
    assert "grant EDIT to 'bob'" in lacking
    for said in (unknown, lacking):
        assert said.startswith("MLflow at http://***@mlflow.example refused us: ")
        assert said.endswith("All records are safe")
        assert "hunter2" not in said


def test_before_there_is_an_experiment_it_is_the_making_of_one_that_is_refused() -> None:
    said = refusal(URI, MlflowException("403", PERMISSION_DENIED), None, "quick")
    assert said is not None
    assert "'bob' may not make an experiment. " in said


def test_artifacts_are_refused_by_the_same_sentence() -> None:
    answer = requests.Response()
    answer.status_code = 403
    said = refusal(URI, requests.HTTPError("403 Client Error", response=answer), "quick", "quick")
    assert said is not None
    assert "'bob' may not write to the experiment 'quick'" in said


@pytest.mark.parametrize("error", [ConnectionError("gone"), MlflowException("500"), requests.HTTPError("no response")])
def test_any_other_error_is_no_refusal(error: Exception) -> None:
    assert refusal(URI, error, "quick", "quick") is None


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            MlflowException(
                "API request to http://me:secret@host/api failed with HTTPConnectionPool(host='host', port=1): "
                "Max retries exceeded with url: /api (Caused by NewConnectionError('<urllib3 object>: Failed to"
                " establish a new connection: [Errno 111] Connection refused'))"
            ),
            "Connection refused",
        ),
        (OSError(28, "No space left on device", "/a/b"), "[Errno 28] No space left on device: '/a/b'"),
        (MlflowException("first\nsecond http://me:secret@host"), "first"),
        (TimeoutError(), "TimeoutError"),
    ],
)
def test_a_silent_store_is_told_in_short(error: Exception, words: str) -> None:
    assert why(error) == words
