from __future__ import annotations

import pickle

import numpy as np
import pytest

from placement_advisor.errors import TestbedError
from placement_advisor.measurement.verification import AppliedUpdate, StepResults
from placement_advisor.tf.verifier import read_results, save_results

ml_dtypes = pytest.importorskip("ml_dtypes")


def _results() -> StepResults:
    return StepResults(
        outputs=(np.float32(0.25), np.array([b"a", b"longer"], object)),
        before={"w": np.arange(6, dtype=np.float32).reshape(2, 3), "empty": np.zeros((0, 4))},
        state={"w": np.full((2, 3), 7, ml_dtypes.bfloat16), "count": np.int64(3)},
        given={
            "w": (
                AppliedUpdate(update="AssignSub", step=0, value=np.array([1 + 2j])),
                AppliedUpdate(update="AssignSub", step=1, value=np.array(True)),
            ),
            "unknown": None,
            "none": (),
        },
    )


def test_results_are_read_as_they_were_written(tmp_path):
    path = tmp_path / "results"
    save_results(path, [_results(), _results()])
    first, second = read_results(path)
    assert first.outputs[0] == np.float32(0.25)
    assert first.outputs[0].dtype == np.float32
    assert first.outputs[1].tolist() == [b"a", b"longer"]
    assert first.before["w"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert first.before["empty"].shape == (0, 4)
    assert first.state["w"].dtype == ml_dtypes.bfloat16
    assert first.state["count"] == 3
    given = first.given["w"]
    assert given is not None
    assert [(one.update, one.step) for one in given] == [("AssignSub", 0), ("AssignSub", 1)]
    assert given[0].value.tolist() == [1 + 2j]
    assert given[1].value.tolist() is True
    assert first.given["unknown"] is None
    assert first.given["none"] == ()
    assert second.state["w"].tolist() == first.state["w"].tolist()


@pytest.mark.parametrize("content", [b"", pickle.dumps([1]), b"PK\x05\x06" + bytes(18)])
def test_what_is_no_file_of_results_is_refused(tmp_path, content):
    path = tmp_path / "results"
    path.write_bytes(content)
    with pytest.raises(TestbedError, match="results of steps cannot be read"):
        read_results(path)


def test_an_array_of_objects_is_not_made(tmp_path):
    import zipfile

    path = tmp_path / "results"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("0", bytes(8))
        archive.writestr(
            "layout.json",
            '[{"outputs": [["0", "object", [1]]], "before": {}, "state": {}, "given": {}}]',
        )
    with pytest.raises(TestbedError, match="results of steps cannot be read"):
        read_results(path)
