"""`advisor graph`, from files alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from command_runs import _ROOT, LAUNCH, Ran
from layer_models import model

from placement_advisor.graph.graph_summary import summarize
from placement_advisor.graph.placement import Placement, placed_ops
from placement_advisor.report.trace_summary import render_graph

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PNG = b"\x89PNG\r\n"
GRAPH = model("in1 -> a", "in2 -> b", "a b -> dot")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a graph file and a placement file for it."""
    folder = tmp_path / "here"
    folder.mkdir()
    GRAPH.save(folder / "m.graph.json.gz")
    Placement(
        label="towers",
        family="towers",
        device_of={op.name: "worker:0" for op in placed_ops(GRAPH)},
        rationale="by hand",
    ).save(folder / "towers.json", GRAPH, ("worker:0", "worker:1"))
    monkeypatch.chdir(folder)
    return folder


def run(*words: str) -> Ran:
    """Run the command without TensorFlow, which is made impossible to import."""
    code = f"import sys; sys.modules['tensorflow'] = None; {LAUNCH}"
    ran = subprocess.run(
        [sys.executable, "-c", code, "graph", *words],
        env={**os.environ, "PYTHONPATH": str(_ROOT)},
        capture_output=True,
        text=True,
        timeout=100,
    )
    return Ran(code=ran.returncode, out=ran.stdout, err=ran.stderr)


def test_the_summary_is_printed_without_tensorflow(here: Path) -> None:
    ran = run("m.graph.json.gz")
    text = render_graph(summarize(GRAPH), graph_file="m.graph.json.gz")
    assert ran == Ran(code=0, out=text, err="")
    assert text.startswith(f"graph        m.graph.json.gz, fingerprint {GRAPH.fingerprint}\nops ")


def test_layers_are_drawn_without_tensorflow_and_nothing_is_printed(here: Path) -> None:
    assert run("m.graph.json.gz", "--png", "m.png") == Ran(code=0, out="", err="")
    assert (here / "m.png").read_bytes().startswith(PNG)
    assert sorted(path.name for path in here.iterdir()) == [
        "m.graph.json.gz", "m.png", "towers.json",
    ]  # fmt: skip


def test_a_placement_changes_the_picture(advisor: Callable[..., Ran], here: Path) -> None:
    for words in (("plain.png",), ("placed.png", "--placement", "towers.json")):
        assert advisor("graph", "m.graph.json.gz", "--png", *words).code == 0
    assert (here / "plain.png").read_bytes() != (here / "placed.png").read_bytes()


def refusal(ran: Ran) -> str:
    assert ran.code == 2
    assert ran.out == ""
    assert "Traceback" not in ran.err
    return ran.err


def test_a_missing_or_foreign_file_is_named(advisor: Callable[..., Ran], here: Path) -> None:
    (here / "notes.txt").write_text("no graph")
    for words in (("nowhere.gz",), ("notes.txt",), ("notes.txt", "--png", "m.png")):
        assert f"advisor: error: {words[0]}: " in refusal(advisor("graph", *words))
    assert not (here / "m.png").exists()


def test_a_placement_for_another_graph_is_refused(advisor: Callable[..., Ran], here: Path) -> None:
    content = json.loads((here / "towers.json").read_text())
    content["graph_fingerprint"] = content["structure"]["fingerprint"] = "0" * 16
    (here / "other.json").write_text(json.dumps(content))
    words = ("m.graph.json.gz", "--png", "m.png", "--placement", "other.json")
    assert "other.json: written for graph 0000000000000000" in refusal(advisor("graph", *words))
    assert not (here / "m.png").exists()


def test_a_placement_for_the_same_graph_under_other_names_holds(
    advisor: Callable[..., Ran], here: Path
) -> None:
    content = json.loads((here / "towers.json").read_text())
    content["graph_fingerprint"] = "0" * 16
    (here / "other.json").write_text(json.dumps(content))
    words = ("m.graph.json.gz", "--png", "m.png", "--placement", "other.json")
    assert advisor("graph", *words).code == 0


@pytest.mark.parametrize("content", ["", "[]", "{}", "\udcff", '{"graph_fingerprint": 1}'])
def test_a_file_that_is_no_placement_is_refused(
    content: str, advisor: Callable[..., Ran], here: Path
) -> None:
    (here / "bad.json").write_text(content, errors="surrogateescape")
    words = ("m.graph.json.gz", "--png", "m.png", "--placement", "bad.json")
    assert "advisor: error: bad.json: " in refusal(advisor("graph", *words))


def test_a_picture_that_cannot_be_written_is_refused(
    advisor: Callable[..., Ran], here: Path
) -> None:
    error = refusal(advisor("graph", "m.graph.json.gz", "--png", "nowhere/m.png"))
    assert "nowhere/m.png: cannot be written: nowhere: No such file or directory" in error
    assert "choose another file with --png" in error
    error = refusal(advisor("graph", "m.graph.json.gz", "--png", "m.graph.json.gz"))
    assert "is read, so it cannot be written" in error


@pytest.mark.parametrize("words", [("--placement", "towers.json"), ("--depth", "1")])
def test_options_of_a_picture_need_one(
    words: tuple[str, str], advisor: Callable[..., Ran], here: Path
) -> None:
    error = refusal(advisor("graph", "m.graph.json.gz", *words))
    assert f"{words[0]} is for a picture" in error
    assert "add --png OUT.png" in error
