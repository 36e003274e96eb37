"""What several records say of their origin together."""

from accelsweep.tracking.sweep_snapshot import common


def test_a_value_that_all_share_stands_alone_and_values_that_differ_stand_side_by_side():
    first = {"torch": "2.13.0", "mlflow.source.git.dirty": "false"}
    second = {"torch": "2.13.0", "mlflow.source.git.dirty": "true", "mlflow.source.git.commit": "abc"}
    assert common([first, second, first]) == {
        "torch": "2.13.0",
        "mlflow.source.git.dirty": "false, true",
        "mlflow.source.git.commit": "abc",
    }


def test_no_records_say_nothing():
    assert common([]) == {}
