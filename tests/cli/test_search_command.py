"""`advisor search`, from files alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from command_runs import Ran, run_here
from fiddle_documents import document, edge, node, three_in_a_row
from layer_models import model

from placement_advisor.graph.op_graph import OpGraph
from placement_advisor.results.contracts import load_schema

THROUGHPUT = ("--objective", "throughput")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def save(content: object, name: str = "chain.json") -> str:
    Path(name).write_text(json.dumps(content))
    return name


def searched(*words: str) -> dict[str, Any]:
    ran = run_here("search", *words, "--json")
    assert (ran.code, ran.err) == (0, "")
    content: dict[str, Any] = json.loads(ran.out)
    jsonschema.validate(content, load_schema("search"))
    return content


def refused(*words: str) -> str:
    ran: Ran = run_here("search", *words)
    assert (ran.code, ran.out) == (2, "")
    return ran.err


def test_the_best_pipeline_of_a_file_is_told_in_its_units() -> None:
    content = searched(save(three_in_a_row()), *THROUGHPUT)
    assert content["objective_value"] == 7.0
    assert content["lower_bound"] == pytest.approx(7.0, rel=1e-6)
    assert (content["proven"], content["stopped_by"]) == (True, "proof")
    assert (content["time_unit"], content["contiguous"]) == ("file", True)
    device_of = content["device_of"]
    assert device_of["1"] == device_of["2"] != device_of["3"]
    loads = {device["name"]: device["load"] for device in content["devices"]}
    assert loads == {device_of["1"]: 6.0, device_of["3"]: 7.0}


def test_the_text_begins_with_the_verdict() -> None:
    ran = run_here("search", save(three_in_a_row()), *THROUGHPUT)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines()[0] == (
        "the fullest device of a pipeline (contiguous placement) works 7 simulated: proved, "
        "no such placement is better"
    )


def test_latency_is_that_of_one_sample() -> None:
    content = searched(save(three_in_a_row()))
    assert (content["objective"], content["objective_value"]) == ("latency", 11.0)
    assert content["contiguous"] is None
    assert len(set(content["device_of"].values())) == 1


def test_a_graph_of_ours_is_searched_for_throughput_in_whole_ns() -> None:
    drawn = model("in1 -> a", "in2 -> b", "a b -> dot")
    heavy = [op._replace(flops=10**9, bytes_accessed=10**6) for op in drawn.ops]
    OpGraph(heavy, drawn.edges).save("m.graph.json.gz")
    content = searched("m.graph.json.gz", *THROUGHPUT, "--devices", "3")
    assert content["time_unit"] == "ns"
    assert isinstance(content["objective_value"], int)
    assert content["lower_bound"] <= content["objective_value"]
    assert [device["name"] for device in content["devices"]] == ["worker:0", "worker:1", "worker:2"]
    on_gpus = searched("m.graph.json.gz", *THROUGHPUT, "--hardware", "2xV100-NVLink")
    assert on_gpus["machine"] == "2xV100-NVLink"


def test_seed_and_effort_are_told() -> None:
    content = searched(save(three_in_a_row()), *THROUGHPUT, "--seed", "3", "--effort", "2")
    assert (content["seed"], content["effort_units"], content["time_limit_s"]) == (3, 2.0, None)
    limited = searched("chain.json", *THROUGHPUT, "--time-limit", "5")
    assert (limited["effort_units"], limited["time_limit_s"]) == (None, 5.0)


@pytest.mark.parametrize(
    ("content", "words", "message"),
    [
        (
            three_in_a_row(),
            ("--devices", "3"),
            "chain.json names its own devices",
        ),
        (three_in_a_row(), ("--hardware", "2xT4"), "chain.json names its own devices"),
        ({"a": 1}, (), "chain.json: not in a format that this command reads"),
        (
            document([node(1), node(2)], [edge(1, 2), edge(2, 1)]),
            (),
            "chain.json: edges: a cycle of 2 nodes: 1 → 2 → 1",
        ),
        (
            document([node(1, supportedOnFpga=0, colorClass=1), node(2, colorClass=1)], []),
            (),
            "chain.json: no placement is possible: 1: no device can run it",
        ),
        (
            document([node(i, size=60.0) for i in range(1, 5)], []),
            (),
            "chain.json: no placement is possible: 1, 2, 3: they need 180 bytes and do not fit "
            "the 200 of all devices together",
        ),
        (
            document([node(1, colorClass=1, size=99.0), node(2, colorClass=1, size=2.0)], []),
            (),
            "chain.json: no placement is possible: 1, 2: they have to stay together and need 101 "
            "bytes; the devices for it have 100",
        ),
    ],
)
def test_what_cannot_be_searched_is_refused(
    content: object, words: tuple[str, ...], message: str
) -> None:
    error = refused(save(content), *THROUGHPUT, *words)
    assert error.splitlines()[0] == f"advisor: error: {message}"
    assert "advisor: hint: " in error


def test_a_pipeline_that_memory_forbids_is_refused_where_other_placements_are_possible() -> None:
    # 60 | 40 40 60 does not fit, 60 40 | 40 60 does; in the order 60 40 60 40 no cut does.
    sizes = [60.0, 60.0, 40.0, 40.0]
    chain = document(
        [node(i, size=size) for i, size in enumerate(sizes)], [edge(0, 1), edge(1, 2), edge(2, 3)]
    )
    error = refused(save(chain), *THROUGHPUT)
    assert "no contiguous placement is possible (proved)" in error
    assert searched("chain.json", *THROUGHPUT, "--no-contiguous")["proven"]


def test_options_that_contradict_each_other_are_refused() -> None:
    save(three_in_a_row())
    assert "are about pipelines" in refused("chain.json", "--no-contiguous")
    assert "cannot be used together" in refused(
        "m.graph.json.gz", "--devices", "2", "--hardware", "2xT4"
    )


def test_files_that_are_damaged_are_refused(here: Path) -> None:
    assert "cannot be read" in refused("nowhere.json")
    (here / "half.json").write_text('{"maxFPGAs": 2, ')
    assert "not valid JSON: line 1" in refused("half.json")
    (here / "half.gz").write_bytes(b"\x1f\x8b\x08")
    assert "cut off before its end" in refused("half.gz", *THROUGHPUT)
