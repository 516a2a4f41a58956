"""`advisor graph`, from files alone."""

import json

import networkx as nx
import pytest
from cli_answers import apart, refusal
from command_runs import LAUNCH, Ran
from layer_models import model

from placement_advisor.graph.exchange import GraphFormat, graph_text
from placement_advisor.graph.graph_summary import summarize
from placement_advisor.graph.placement import Placement
from placement_advisor.report.steps import render_graph

GRAPH = model("in1 -> a", "in2 -> b", "a b -> dot")


@pytest.fixture
def here(tmp_path, monkeypatch):
    folder = tmp_path / "here"
    folder.mkdir()
    GRAPH.save(folder / "m.graph.json.gz")
    Placement(
        label="towers",
        family="towers",
        device_of={op.name: "worker:0" for op in GRAPH.placed_ops},
        rationale="by hand",
    ).save(folder / "towers.json", GRAPH, ("worker:0", "worker:1"))
    monkeypatch.chdir(folder)
    return folder


def run(*words):
    """Run the command without TensorFlow, which is made impossible to import."""
    return apart("graph", *words, launch=f"import sys; sys.modules['tensorflow'] = None; {LAUNCH}")


def test_the_summary_needs_no_tensorflow(here):
    ran = run("m.graph.json.gz")
    text = render_graph(summarize(GRAPH), graph_file="m.graph.json.gz")
    assert ran == Ran(code=0, out=text, err="")
    assert text.startswith(f"graph        m.graph.json.gz, fingerprint {GRAPH.fingerprint}\nops ")
    assert sorted(path.name for path in here.iterdir()) == ["m.graph.json.gz", "towers.json"]


def test_a_missing_or_foreign_file_is_named(advisor, here):
    (here / "notes.txt").write_text("no graph")
    writes = ("--format", "mermaid", "-o", "m.mmd")
    for words in (("nowhere.gz",), ("notes.txt",), ("notes.txt", *writes)):
        assert f"advisor: error: {words[0]}: " in refusal(advisor("graph", *words))
    onto_itself = ("m.graph.json.gz", "--format", "dot", "-o", "m.graph.json.gz")
    assert "is an input of this command" in refusal(advisor("graph", *onto_itself))
    assert not (here / "m.mmd").exists()
    content = json.loads((here / "towers.json").read_text())
    content["graph_fingerprint"] = content["structure"]["fingerprint"] = "0" * 16
    (here / "other.json").write_text(json.dumps(content))
    words = ("m.graph.json.gz", *writes, "--placement", "other.json")
    refused = refusal(advisor("graph", *words))
    assert "other.json: written for another graph than this one: its ops read other" in refused
    assert not (here / "m.mmd").exists()


@pytest.mark.parametrize(
    ("words", "problem", "hint"),
    [
        (("--placement", "towers.json"), "--placement is for --format", "add --format graphml|"),
        (("--depth", "1"), "--depth is for layers", "use it with --format mermaid"),
        (("--depth", "1", "--format", "dot"), "--depth is for layers", "--format mermaid"),
        (("-o", "m.dot"), "-o is for --format", "add --format graphml|dot|json|mermaid"),
    ],
)
def test_options_that_do_not_go_together_are_refused(words, problem, hint, advisor, here):
    error = refusal(advisor("graph", "m.graph.json.gz", *words))
    assert problem in error
    assert hint in error
    assert not {*here.iterdir()} - {here / "m.graph.json.gz", here / "towers.json"}


@pytest.mark.parametrize("form", GraphFormat)
def test_a_graph_is_written_for_other_programs_without_tensorflow(form, here):
    ran = run("m.graph.json.gz", "--format", form, "--placement", "towers.json")
    device_of = {op.name: "worker:0" for op in GRAPH.ops}
    assert ran == Ran(code=0, out=graph_text(GRAPH, form, device_of), err="")


def test_a_depth_folds_the_layers_of_a_flowchart(advisor, here):
    model("in -> enc/0", "enc/0 -> enc/1", "enc/1 -> dec").save(here / "n.graph.json.gz")
    out = advisor("graph", "n.graph.json.gz", "--format", "mermaid", "--depth", "1").out
    assert ('["enc<br/>' in out, '["enc/0<br/>' in out) == (True, False)


def test_names_in_any_script_are_written_into_files(here):
    model("in -> é").save(here / "e.graph.json.gz")
    for form in ("dot", "graphml"):
        ran = run("e.graph.json.gz", "--format", form, "-o", f"e.{form}")
        assert ran == Ran(code=0, out="", err="")
    assert '"in" -> "é"' in (here / "e.dot").read_text(encoding="utf-8")
    assert list(nx.read_graphml(here / "e.graphml")) == ["in", "é"]
