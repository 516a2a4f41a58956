"""A model or step of one process is loaded by another, with its batch and its values."""

import pytest
from traced_models import trace

from placement_advisor.processes.calls import RemoteModule

handed_over = RemoteModule("handed_over")


@pytest.mark.parametrize(
    ("kind", "files", "products"),
    [
        ("model", ["batch.pickle", "model.keras", "small.py"], {(8, 4), (8, 1)}),
        ("own class", ["batch.pickle", "small.py", "step"], {(8, 4), (8, 1)}),
        ("function", ["batch.pickle", "step", "train_step.py"], {(8, 1)}),
        ("dataset", ["batch.pickle", "step", "train_step.py"], {(8, 1)}),
    ],
)
def test_what_was_handed_over_is_traced_elsewhere(loader, tmp_path, kind, files, products):
    written = loader.call(handed_over.write, kind, str(tmp_path))
    path = tmp_path / "object" / written.rpartition("/")[2]
    assert sorted(file.name for file in path.parent.iterdir()) == files
    traced = trace(path, tmp_path)
    found = {op.output_bytes for op in traced.graph.ops if op.kind == "MatMul"}
    assert {(4 * rows * columns,) for rows, columns in products} <= found


def test_what_calls_python_cannot_travel(loader, tmp_path):
    said = loader.call(handed_over.write, "python", str(tmp_path))
    assert said.startswith("calls_python calls Python while it runs (EagerPyFunc)"), said
    assert not (tmp_path / "object").exists()
