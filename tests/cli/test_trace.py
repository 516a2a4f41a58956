"""`advisor trace`, on a real model of two towers."""

import re

import pytest
from cli_answers import refusal, told
from command_runs import Command

from placement_advisor.graph.graph_summary import summarize
from placement_advisor.graph.op_graph import OpGraph, load_graph
from placement_advisor.report.steps import render_graph


def test_a_graph_is_named_as_its_model_and_summarised(advisor, two_towers, tmp_path, monkeypatch):
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    ran = advisor("trace", str(two_towers))
    assert ran.code == 0, ran.err
    (file,) = folder.iterdir()
    graph = OpGraph.load(file)
    head, text = ran.out.split("\nops ", 1)
    summary = summarize(graph)
    assert render_graph(summary, graph_file=file.name).endswith(f"\nops {text}")
    first, chosen, where = head.splitlines()
    assert first == f"{two_towers}: two_towers, training step, batch 32"
    assert chosen.startswith("chosen       model (compiled Functional)")
    assert where == f"graph        two_towers.graph.json.gz, fingerprint {graph.fingerprint}"
    # Two towers of 64 × 64 and 64 × 16 weights with biases, 4 bytes each, and what metrics count.
    weights = 4 * 2 * (64 * 64 + 64 + 64 * 16 + 16)
    assert summary.parameter_bytes.known == pytest.approx(weights, abs=64)
    (towers,) = (line for line in ran.out.splitlines() if "2 towers meet in score" in line)
    assert towers.count("(2 layers)") == 2
    for words in ("bytes known for 100 %", "MatMul", "control flow: none"):
        assert words in ran.out
    assert "advisor: tracing\n" in ran.err
    assert "advisor: writing two_towers.graph.json.gz\n" in ran.err


def test_json_is_all_there_is_on_stdout_and_options_reach_the_tracer(advisor, two_towers, tmp_path):
    file = tmp_path / "g.json.gz"
    file.write_text("of an earlier run")
    ran = advisor(
        "trace", f"{two_towers}:model", "-o", str(file), "--mode", "infer", "--batch-size", "8",
        "--json", "--quiet",
    )  # fmt: skip
    assert ran.err == ""
    content = told(ran, "trace")
    assert content["model"]["mode"] == "infer"
    assert content["model"]["batch_size"] == 8
    assert content["graph_file"] == str(file)
    assert content["trains"] is False
    assert "backward" not in content["ops_by_role"]
    graph, _, traced_as = load_graph(file)
    assert content["graph_fingerprint"] == graph.fingerprint
    assert (traced_as.mode, traced_as.batch_size) == ("infer", 8)
    assert traced_as.inputs
    assert all(re.fullmatch(r"[a-z]+\d+ \[8\b[^]]*\]", each) for each in traced_as.inputs)


def test_a_model_that_fails_leaves_no_file(advisor, write_model, tmp_path):
    path = write_model("raise ValueError('too bad')\n")
    ran = advisor("trace", str(path), "-o", str(tmp_path / "g.json.gz"), "--quiet")
    assert "too bad" in refusal(ran)
    assert not (tmp_path / "g.json.gz").exists()


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("nowhere/g.gz", "nowhere/g.gz: cannot be written: nowhere: No such file or directory"),
        ("model.py", "model.py: is an input of this command and is not overwritten"),
    ],
)
def test_a_file_without_a_place_is_refused_first(advisor, tmp_path, monkeypatch, output, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.py").write_text("raise AssertionError('was run')\n")
    error = refusal(advisor("trace", "model.py", "-o", output))
    assert message in error
    assert "choose another file with -o" in error
    assert "importing TensorFlow" not in error
    assert {path.name for path in tmp_path.iterdir()} <= {"model.py", "temp"}


def test_what_a_script_leaves_behind_is_no_warning_of_the_command(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(
        "import multiprocessing, os, keras, numpy as np\n"
        "lock = multiprocessing.Lock()\n"
        "print(os.environ.get('PYTHONWARNINGS'))\n"
        "model = keras.Sequential([keras.layers.Dense(1)])\n"
        "model.compile('sgd', 'mse')\n"
        "model.fit(np.ones((8, 2)), np.ones((8, 1)), batch_size=4)\n"
    )
    with Command("trace", str(script), temp=tmp_path / "temp", cwd=tmp_path) as command:
        ran = command.wait()
    assert ran.code == 0, ran.err
    assert "batch 4" in ran.out
    assert "leaked" not in ran.err
