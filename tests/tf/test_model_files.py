"""Models that were saved or handed over by another process; and what a path is taken for."""

from pathlib import Path

import numpy as np
import pytest
import traced_models

from placement_advisor.errors import ModelError
from placement_advisor.processes.calls import RemoteModule
from placement_advisor.tf.load.model_source import SourceKind, source_kind, split_name

loaded_workload = RemoteModule("loaded_workload")
written_files = RemoteModule("written_files")


@pytest.fixture(scope="module")
def files(loader, tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    loader.call(written_files.write_saved, str(folder))
    return folder


@pytest.fixture
def trace(loader, files):
    """Return a function that loads and traces one of the files."""

    return lambda file, **asked: loader.call(loaded_workload.trace, str(files / file), asked)


def test_a_compiled_keras_file_is_trained_on_made_up_ids_and_classes(trace):
    found = trace("compiled.keras")
    assert (found["name"], found["mode"], found["batch_size"]) == ("classifier", "train", 32)
    assert found["chosen"] == (
        "the saved model (compiled Functional), batches made up for its inputs, batch 32 assumed"
    )
    assert found["input_names"] == ("ids", "target")
    assert found["shapes"] == [[(32, 5), (32,)]]
    assert {"SparseSoftmaxCrossEntropyWithLogits", "AssignSubVariableOp"} <= found["kinds"]
    for ids, classes in found["batches"]:
        assert ids.min() >= 0
        assert ids.max() < 9
        assert classes.min() >= 0
        assert classes.max() < 3


def test_a_keras_file_that_is_not_compiled_is_used(trace):
    found = trace("plain.keras", batch_size=6)
    assert (found["mode"], found["shapes"]) == ("infer", [[(6, 5)]])
    assert found["chosen"].endswith("batches made up for its inputs")
    assert [value.shape for value in found["returned"]] == [(6, 3)]


def test_a_saved_model_is_called_through_its_default_signature_at_a_known_batch(trace):
    found = trace("exported")
    assert (found["mode"], found["batch_size"]) == ("infer", 32)
    assert found["chosen"] == (
        "serving_default (signature), batches made up for its signature, batch 32 assumed"
    )
    assert found["input_names"] == ("ids",)
    assert max(ids.max() for (ids,) in found["batches"]) in range(2, 9)  # Bounded by the table.
    assert [value.shape for value in found["returned"]] == [(32, 3)]


def test_signatures_are_the_only_one_or_chosen_by_name(trace):
    found = trace("one_signature", batch_size=2)
    assert found["name"] == "double"
    np.testing.assert_allclose(found["returned"][0], 2 * found["batches"][-1][0])
    found = trace("two_signatures", name="total")
    assert found["shapes"] == [[(4, 128)]]
    assert found["chosen"].endswith("unknown sizes taken as 128")


def test_a_loop_of_tf1_in_a_saved_model_is_traced_in_the_open(trace):
    found = trace("tf1", batch_size=2)
    assert {"Enter", "Exit", "MatMul", "ReadVariableOp"} <= found["kinds"]
    rows = found["batches"][-1][0]
    np.testing.assert_allclose(found["returned"][0], 8 * rows @ np.ones((4, 2)) + 1, rtol=1e-5)


def test_a_frozen_graph_computes_its_only_end_from_its_placeholders(trace):
    found = trace("frozen.pb")
    assert (found["name"], found["mode"], found["batch_size"]) == ("frozen", "infer", 32)
    assert found["chosen"] == (
        "frozen graph with outputs sum:0, batches made up for its placeholders, batch 32 assumed"
    )
    assert (found["input_names"], found["has_devices"]) == (("rows",), True)
    assert {"Enter", "Exit", "MatMul"} <= found["kinds"]
    rows = found["batches"][-1][0]
    np.testing.assert_allclose(found["returned"][0], 8 * rows @ np.ones((4, 2)) + 1, rtol=1e-5)


def test_a_frozen_graph_is_asked_for_outputs_and_needs_only_their_placeholders(trace):
    found = trace("two_ends.pb", outputs=("first",))
    assert (found["input_names"], found["shapes"]) == (("used",), [[(2, 3)]])
    assert not found["has_devices"]
    np.testing.assert_allclose(found["returned"][0], -found["batches"][-1][0])


REFUSED = [
    ("two_ends.pb", {}, "which outputs? 2 ops are read by no other: first, second"),
    ("two_ends.pb", {"outputs": ("second",)}, "unused has an unknown number of dimensions"),
    ("two_ends.pb", {"outputs": ("fist",)}, "no output is called 'fist'"),
    ("frozen.pb", {"outputs": ("sum:1",)}, "no output is called 'sum:1'"),
    ("frozen.pb", {"arguments": ("--data", "d")}, "it is not a script, so it takes no arguments"),
    ("frozen.pb", {"mode": "train"}, "a frozen graph cannot be trained"),
    ("not_frozen.pb", {}, "not frozen: it holds variables such as 'weights'"),
    ("renamed.pb", {}, "a SavedModel's graph, without its variables"),
    ("damaged.pb", {}, "not a graph"),
    ("damaged.keras", {}, "damaged, or no Keras file"),
    ("own_class.keras", {}, "Keras cannot load it: Could not locate class 'Own'. Make sure"),
    ("plain.keras", {"outputs": ("sum",)}, "--outputs names what a frozen graph (.pb) computes"),
    ("plain.keras", {"mode": "train"}, "the saved model is not compiled"),
    ("plain.keras", {"name": "net"}, "holds one model, none called 'net'"),
    ("damaged", {}, "not a SavedModel that TensorFlow reads"),
    ("two_signatures", {}, "no signature 'serving_default'; it has double, total"),
    ("one_signature", {"name": "half"}, "no signature is called 'half'; it has double"),
    ("one_signature", {"mode": "train"}, "double is a signature, which cannot be trained"),
    ("two_signatures", {"name": "total", "batch_size": 3}, "have a fixed batch of 4, not 3"),
]


@pytest.mark.parametrize(("file", "options", "reason"), REFUSED)
def test_a_file_is_refused_with_its_name_and_the_reason(trace, file, options, reason):
    with pytest.raises(ModelError) as caught:
        trace(file, **options)
    assert f"{file}: " in caught.value.message
    assert reason in caught.value.message


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
    written = loader.call(written_files.write_handed_over, kind, str(tmp_path))
    path = tmp_path / "object" / written.rpartition("/")[2]
    assert sorted(file.name for file in path.parent.iterdir()) == files
    traced = traced_models.trace(path, tmp_path)
    found = {op.output_bytes for op in traced.graph.ops if op.kind == "MatMul"}
    assert {(4 * rows * columns,) for rows, columns in products} <= found


def test_what_calls_python_cannot_travel(loader, tmp_path):
    said = loader.call(written_files.write_handed_over, "python", str(tmp_path))
    assert said.startswith("calls_python calls Python while it runs (EagerPyFunc)"), said
    assert not (tmp_path / "object").exists()


@pytest.mark.parametrize(
    ("words", "path", "name"),
    [
        ("model.py", "model.py", None),
        ("model.py:net", "model.py", "net"),
        ("model.py:trainer.step", "model.py", "trainer.step"),
        ("model.py:", "model.py", None),
        ("run:3/model.py", "run:3/model.py", None),
        ("run:3/model.py:net", "run:3/model.py", "net"),
    ],
)
def test_a_name_follows_the_last_colon_unless_the_path_exists(
    tmp_path, monkeypatch, words, path, name
):
    monkeypatch.chdir(tmp_path)
    Path("run:3").mkdir()
    Path("run:3/model.py").touch()
    Path("model.py").touch()
    assert split_name(words) == (path, name)


@pytest.mark.parametrize("words", ["", ":net"])
def test_a_name_alone_is_refused(words):
    with pytest.raises(ModelError, match="no file given"):
        split_name(words)


def test_a_file_is_known_by_its_suffix_and_a_saved_model_by_what_is_in_it(tmp_path):
    for name, kind in (
        ("model.py", SourceKind.PYTHON),
        ("model.keras", SourceKind.KERAS),
        ("frozen.pb", SourceKind.FROZEN_GRAPH),
    ):
        (tmp_path / name).touch()
        assert source_kind(tmp_path / name) is kind
    (tmp_path / "saved_model.pb").touch()
    assert source_kind(tmp_path) is SourceKind.SAVED_MODEL


def test_a_part_of_a_saved_model_and_its_versions_are_answered_with_their_directory(tmp_path):
    for version in ("1", "2"):
        (tmp_path / version).mkdir()
        (tmp_path / version / "saved_model.pb").touch()
    with pytest.raises(ModelError, match="part of a SavedModel") as caught:
        source_kind(tmp_path / "1" / "saved_model.pb")
    assert str(tmp_path / "1") in str(caught.value.hint)
    with pytest.raises(ModelError, match="holds several SavedModels") as caught:
        source_kind(tmp_path)
    assert str(tmp_path / "2") in str(caught.value.hint)


@pytest.mark.parametrize("name", ["model.onnx", "model.pt", "notes"])
def test_another_file_is_answered_with_what_is_read(tmp_path, name):
    (tmp_path / name).touch()
    with pytest.raises(ModelError, match=f"{name}: not a model file") as caught:
        source_kind(tmp_path / name)
    assert ".keras" in str(caught.value.hint)
