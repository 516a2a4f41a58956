"""The contract of `advisor trace --json`, on steps made by hand and on any others."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from layer_models import model
from op_graphs import graphs
from summary_graphs import op, training_step

from placement_advisor.files.contract import plain
from placement_advisor.graph.graph_summary import (
    BRANCH_KINDS,
    LARGEST_TENSORS,
    LOOP_KINDS,
    summarize,
)
from placement_advisor.graph.op_graph import OpGraph, Role
from placement_advisor.results.contracts import load_schema
from placement_advisor.results.trace import Trace
from placement_advisor.tf.answers import Traced

SCHEMA = load_schema("trace")
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)


def told(graph: OpGraph, **changes: Any) -> dict[str, Any]:
    """Return what the command prints of a graph, as a program reads it."""
    traced = Traced(
        graph=graph,
        name="tiny",
        mode="train",
        chosen="model (compiled Functional), batches from `dataset`",
        batch_size=4,
        tensorflow_version="2.21.0",
        members={},
    )
    content = plain(
        Trace.of(
            replace(traced, **changes),
            summarize(graph),
            model_path="tiny.py",
            graph_file="tiny.graph.json.gz",
        )
    )
    read: dict[str, Any] = json.loads(json.dumps(content, allow_nan=False))
    assert read == content
    return read


@pytest.fixture
def content() -> dict[str, Any]:
    return told(training_step())


def structured() -> OpGraph:
    """Two towers, one of them of three alike layers, and a residual unit behind them."""
    return model(
        "in1 -> a1", "a1 -> a2", "a2 -> a3", "in2 -> b", "a3 b -> dot", "dot -> f", "f dot -> add"
    )


def test_a_step_that_has_something_of_everything_fits_the_schema(content: dict[str, Any]) -> None:
    VALIDATOR.validate(content)
    for field in ("largest_tensors", "kinds", "host_only", "control_flow"):
        assert content[field], field


def test_structure_fits_the_schema_and_is_told_layer_by_layer() -> None:
    content = told(structured())
    VALIDATOR.validate(content)
    assert content["joins"] == [{"layer": "dot", "towers": [["a1", "a2", "a3"], ["b"]]}]
    assert content["parallel_branches"] == [
        {"fork": "dot", "join": "add", "branches": [["f"]], "direct": True}
    ]
    assert content["repeated_blocks"][0] == {"blocks": [["a1"], ["a2"], ["a3"]]}


def test_every_number_is_there_and_null_for_what_is_unknown(content: dict[str, Any]) -> None:
    assert content["schema_version"] == 1
    assert content["model"] == {
        "path": "tiny.py",
        "name": "tiny",
        "mode": "train",
        "chosen": "model (compiled Functional), batches from `dataset`",
        "batch_size": 4,
        "left_out": [],
    }
    assert content["graph_fingerprint"] == training_step().fingerprint
    assert content["ops"] == 13
    assert content["ops_by_role"]["variable"] == 3
    # Gradients of 100 and an update of 16 beside a product of 300; the loop is unknown.
    assert content["flops"] == {"amount": 416, "parts": 8, "unknown": 1}
    loop = next(kind for kind in content["kinds"] if kind["kind"] == "While")
    assert loop["flops"] == {"amount": None, "parts": 1, "unknown": 1}
    assert loop["flops_share"] is None
    assert content["control_flow"][0]["trips"] is None


def test_a_sum_says_what_is_missing_from_it(content: dict[str, Any]) -> None:
    # All 15 edges with a tensor but that of the loop: 64, 16, 4, 32, 16, 8, 16, 32 and 32 bytes.
    assert content["edge_bytes"] == {"amount": 220, "parts": 15, "unknown": 1}
    assert content["control_edges"] == 1


def test_an_empty_step_and_one_without_a_batch_fit_the_schema() -> None:
    empty = told(OpGraph([], []), batch_size=None, mode="infer")
    VALIDATOR.validate(empty)
    assert empty["model"]["batch_size"] is None
    assert empty["flops"] == {"amount": 0, "parts": 0, "unknown": 0}
    assert empty["flops_known_bytes_share"] is None


@given(graphs())
def test_any_step_fits_the_schema(graph: OpGraph) -> None:
    VALIDATOR.validate(told(graph))


def test_the_schema_knows_the_roles_the_loops_and_branches_and_the_length_of_the_list() -> None:
    fields = SCHEMA["properties"]
    roles = [role.value for role in Role]
    assert fields["ops_by_role"]["propertyNames"]["enum"] == roles
    tensors = fields["largest_tensors"]
    assert tensors["items"]["properties"]["role"]["enum"] == roles
    assert tensors["maxItems"] == LARGEST_TENSORS
    composite = fields["control_flow"]["items"]["properties"]
    assert composite["role"]["enum"] == roles
    assert set(composite["kind"]["enum"]) == LOOP_KINDS | BRANCH_KINDS


def test_a_branch_has_no_trips() -> None:
    content = told(OpGraph([op("choice", "StatelessIf", flops=10)], []))
    VALIDATOR.validate(content)
    assert content["control_flow"] == [
        {
            "op": "choice",
            "kind": "StatelessIf",
            "role": "forward",
            "layer": None,
            "trips": None,
            "flops_share": 1.0,
            "bytes_accessed_share": None,
        }
    ]
