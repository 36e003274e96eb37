"""Published files become rows with their source; damaged files and other formats are refused with the line at fault."""

import json

import pytest
from published_files import LAMBDA_ROWS, MILABENCH, MLPERF, PUBLISHED, TIMM_ROWS

from accelsweep.errors import InputError
from accelsweep.features.imports.model import ExternalResults
from accelsweep.features.imports.readers import READERS, external_file, read_external, read_published

TIMM, _ = PUBLISHED["timm"]
LAMBDA = "pytorch-train-throughput-fp16.csv"
NEWER_LAMBDA, NEWER_ROWS = PUBLISHED["lambda"]


@pytest.fixture
def rows(tmp_path):
    """Write a file in the format of `source` and return its rows."""

    def read(source, name, text, device=None):
        path = tmp_path / name
        path.write_text(text)
        return read_published(path, source, device).rows

    return read


def test_timm_rows_take_precision_and_device_from_the_file_name(rows):
    first, second = rows("timm", TIMM, TIMM_ROWS)
    assert (first.model, first.task, first.value, first.unit) == ("resnet50", "inference", 4000.5, "1/s")
    assert (first.board, first.devices, first.precision, first.batch_size) == ("rtx4090", 1, "amp", 256)
    assert (first.image_size, second.image_size) == (224, 288)
    assert first.circumstances == "1 x rtx4090, amp, batch 256, 224 pixels, layout nhwc, torch 2.4.0"


def test_timm_rows_state_task_torch_version_and_compilation(rows):
    train = TIMM_ROWS.replace("infer_", "train_")
    (row, *_) = rows("timm", "benchmark-train-amp-nchw-pt112-cu113-rtx3090-dynamo.csv", train)
    assert (row.task, row.conditions) == ("training", {"layout": "nchw", "torch": "1.12", "compiled": "yes"})
    (row, *_) = rows("timm", "benchmark-infer-fp32-nchw-pt240-cpu-i9_10940x.csv", TIMM_ROWS)
    assert (row.device, row.board) == ("i9_10940x", None)


def test_lambda_rows_have_a_unit_per_model_and_skip_models_without_a_rate(rows):
    found = rows("lambda", LAMBDA, LAMBDA_ROWS)
    assert [(row.model, row.value, row.unit, row.board, row.devices) for row in found] == [
        ("gnmt", 86080, "tokens/s", "rtx3090", 1),
        ("resnet50", 905, "1/s", "rtx3090", 1),
        ("resnet50", 5179, "1/s", "h100-sxm", 2),
    ]
    assert {row.precision for row in found} == {"fp16"}


def test_the_second_lambda_format_encodes_devices_in_the_system_name(rows):
    found = rows("lambda", NEWER_LAMBDA, NEWER_ROWS)
    assert [(row.model, row.device, row.board, row.devices) for row in found] == [
        ("ssd", "H200 140GB SXM", "h200", 8),
        ("resnet50", "H200 140GB SXM", "h200", 8),
        ("resnet50", "GH200 96GB", "gh200", 1),
    ]


def test_an_mlperf_log_becomes_one_time_to_target(rows):
    (row,) = rows("mlperf", "result_0.txt", MLPERF)
    assert (row.model, row.value, row.unit) == ("resnet", 1279.241, "s")
    assert (row.device, row.board, row.devices) == ("MI325X", "mi325x", 8)
    assert row.conditions["global batch"] == "3264"


def test_a_milabench_summary_needs_a_device_and_failed_benchmarks_are_skipped(rows):
    (row,) = rows("milabench", "summary.json", json.dumps(MILABENCH), device="NVIDIA L40S")
    assert (row.model, row.value, row.board, row.devices) == ("resnet50", 212.5, "l40s", 2)
    with pytest.raises(InputError, match="--device"):
        rows("milabench", "summary.json", json.dumps(MILABENCH))


@pytest.mark.parametrize(
    ("source", "name", "text", "words"),
    [
        ("timm", "mine.csv", TIMM_ROWS, "not a timm file name"),
        ("timm", TIMM, LAMBDA_ROWS, "has no column 'model'"),
        ("timm", TIMM, TIMM_ROWS[:-9], "line 4: 2 values for 6 columns"),
        ("timm", TIMM, TIMM_ROWS.replace("4000.5", "fast"), "line 2: 'fast' is not a number"),
        ("timm", TIMM, TIMM_ROWS.replace("4000.5", "nan"), "line 2: 'nan' is not a rate"),
        ("timm", TIMM, TIMM_ROWS.replace("256.0", "25.5"), "not an integer"),
        ("timm", TIMM, TIMM_ROWS.replace("resnet50", ""), "model"),
        ("timm", TIMM, "", "it has: nothing"),
        ("lambda", "throughput.csv", LAMBDA_ROWS, "does not end in fp16.csv"),
        ("lambda", NEWER_LAMBDA, NEWER_ROWS.replace("8xH200", "many"), "is not a Lambda system"),
        ("mlperf", "result_0.txt", MLPERF.replace("success", "aborted"), "ended as 'aborted'"),
        ("mlperf", "result_0.txt", MLPERF[:-40], "invalid JSON"),
        ("mlperf", "result_0.txt", "loading\n", "no submission_benchmark"),
        ("mlperf", "result_0.txt", MLPERF.replace("1280241", "0"), "wrong order"),
        ("mlperf", "result_0.txt", MLPERF.replace('"value": "resnet", ', ""), "submission_benchmark has no value"),
        ("mlperf", "result_0.txt", MLPERF.replace("1280241", "9" * 400), "have no times"),
        ("lambda", NEWER_LAMBDA, NEWER_ROWS.replace("8xH200", "9" * 5000 + "xH200"), "is not a Lambda system"),
        ("milabench", "summary.json", '{"a": {"train_rate": {"mean": 1}, "per_gpu": 2}}', "per_gpu"),
        ("milabench", "summary.json", "{", "invalid JSON"),
        ("milabench", "summary.json", "[1]", "not a milabench summary"),
        ("milabench", "summary.json", '{"a": {"b": 1}}', "no benchmark has a train_rate"),
        ("tim", TIMM, TIMM_ROWS, "did you mean 'timm'"),
    ],
)
def test_a_damaged_file_or_another_format_is_refused_with_the_cause(rows, source, name, text, words):
    with pytest.raises(InputError) as caught:
        rows(source, name, text, device="l4" if source == "milabench" else None)
    assert words in str(caught.value)


@pytest.mark.parametrize("source", READERS)
def test_a_binary_file_is_refused(tmp_path, source):
    path = tmp_path / {"timm": TIMM, "lambda": LAMBDA}.get(source, "file")
    path.write_bytes(b"\x7fELF\xff\xfe")
    with pytest.raises(InputError, match="not UTF-8 text"):
        read_published(path, source, "l4")


def test_imported_rows_are_read_by_name_and_a_misspelt_name_gets_a_suggestion(tmp_path, rows):
    found = ExternalResults(source="timm", file=TIMM, sha256="0", rows=rows("timm", TIMM, TIMM_ROWS))
    with pytest.raises(InputError, match="there are none"):
        read_external(tmp_path, "timm-4090")
    found.write(external_file(tmp_path, "timm-4090"))
    assert read_external(tmp_path, "timm-4090") == found
    with pytest.raises(InputError, match="did you mean 'timm-4090'"):
        read_external(tmp_path, "timm-4080")
