from dataclasses import replace

import pytest
from golden_files import golden_text
from hypothesis import given
from layer_models import model
from op_graphs import graphs
from summary_graphs import HOST, edge, op, traced_as_tiny, training_step

from placement_advisor.graph.graph_summary import summarize
from placement_advisor.graph.op import CONTROL_PORT
from placement_advisor.graph.op_graph import OpGraph
from placement_advisor.report.steps import render_graph, render_trace
from placement_advisor.tf.answers import LeftOut


def of(*ops):
    return OpGraph(ops, [])


def test_output_is_the_golden_one_but_for_what_is_not_known():
    traced = traced_as_tiny(training_step())
    summary = summarize(traced.graph)
    files = {"model_path": "tiny.py", "graph_file": "tiny.graph.json.gz"}
    assert render_trace(traced, summary, **files) == golden_text("trace_sample.txt")
    text = render_trace(replace(traced, batch_size=None, mode="infer"), summary, **files)
    assert text.startswith("tiny.py: tiny, inference, batch unknown\n")
    left_out = LeftOut(jit_compile=True, steps_per_call=4, summaries=2)
    text = render_trace(replace(traced, left_out=left_out), summary, **files)
    assert "\nleft out     jit_compile=True (XLA ignores devices within a step); steps" in text


@pytest.mark.parametrize(
    ("graph", "lines"),
    [
        # A share with anything missing is never rounded up to all.
        (
            of(*(op(f"o{i}", "MatMul", flops=1) for i in range(3_000)), op("x", "MatMul")),
            ["at least 3.00 kflop per step; known for 99.9 % of the ops that compute"],
        ),
        (
            of(op("o", "Mystery", output_bytes=(None,))),
            [
                *("flops        unknown per step", "bytes        unknown accessed per step"),
                "activations  1 forward tensor, unknown in all",
                "  1  unknown  unknown  unknown  unknown  Mystery",
            ],
        ),
        # Long lists are cut and say so.
        (
            of(*(op(f"h{i}", f"Kind{i}", device_kinds=HOST) for i in range(9))),
            ["ops without a GPU kernel: 9; they run on the host\n", "  and 4 more\n"],
        ),
        (
            of(*(op(f"w{i}", "While", trips=i) for i in range(7))),
            ["control flow: 7\n", "  and 2 more\n"],
        ),
        (
            of(
                op("loop", "While", layer="lstm", trips=10, flops=30, bytes_accessed=1),
                op("choice", "If", flops=10, bytes_accessed=1),
                op("rest", "MatMul", flops=60, bytes_accessed=2),
            ),
            [
                "  While loop, layer lstm, 10 trips, 30.0 % of flops, 25.0 % of bytes\n",
                "  If choice, forward, one branch runs, 10.0 % of flops, 25.0 % of bytes\n",
            ],
        ),
        (
            of(op("loop", "While", trips=3, flops=30)),
            ["  While loop, forward, 3 trips, 100.0 % of flops, bytes unknown\n"],
        ),
        (
            model("in1 -> a", "a -> a2", "in2 -> b", "a2 b -> dot"),
            [
                "towers: 1\n  2 towers meet in dot: a to a2 (2 layers), b (1 layer)\n",
                "parallel branches: none\n",
            ],
        ),
        (
            model("in -> s", "s -> a", "a s -> add"),
            ["  1 branch and a direct way from s to add: a (1 layer)\n"],
        ),
        (
            OpGraph(
                [op("a", "A", output_bytes=(4,)), op("b", "B")],
                [edge("a", "b", 4), edge("a", "b", 0, port=CONTROL_PORT)],
            ),
            ["edges        1 with a tensor, bytes known for 100 %; 1 only orders its ends\n"],
        ),
    ],
)
def test_what_is_cut_or_unknown_says_so(graph, lines):
    text = render_graph(summarize(graph), graph_file="g")
    assert [line for line in lines if line not in text] == []


@given(graphs())
def test_any_graph_can_be_told(graph):
    assert render_graph(summarize(graph), graph_file="g").endswith("\n")


def test_names_cannot_drive_a_terminal():
    summary = summarize(of(op("a\x1b[31m\nb", "While", layer="\x07")))
    text = render_graph(summary, graph_file="a\x1b[31m.gz\nstep")
    assert "graph        a�[31m.gz step, fingerprint" in text
    assert not {"\x1b", "\x07"} & set(text)
