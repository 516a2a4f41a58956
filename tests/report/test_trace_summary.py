from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from hypothesis import given
from layer_models import model
from op_graphs import graphs
from summary_graphs import HOST, edge, op, training_step

from placement_advisor.graph.graph_summary import summarize
from placement_advisor.graph.op_graph import CONTROL_PORT, OpGraph
from placement_advisor.report.trace_summary import render_summary, render_trace
from placement_advisor.tf.answers import Traced

GOLDEN = Path(__file__).parent / "golden" / "trace_sample.txt"
TRACED = Traced(
    graph=training_step(),
    name="tiny",
    mode="train",
    chosen="model (compiled Functional), batches from `dataset`",
    batch_size=4,
    tensorflow_version="2.21.0",
    members={},
)


def rendered(traced: Traced) -> str:
    return render_trace(
        traced,
        summarize(traced.graph),
        model_path="tiny.py",
        graph_file="tiny.graph.json.gz",
    )


def test_output_is_the_golden_one() -> None:
    assert rendered(TRACED) == GOLDEN.read_text(encoding="utf-8")


def test_a_batch_that_is_not_known_is_said_to_be_unknown() -> None:
    text = rendered(replace(TRACED, batch_size=None, mode="infer"))
    assert text.startswith("tiny.py: tiny, inference, batch unknown\n")


def test_a_share_with_anything_missing_is_never_rounded_up_to_all() -> None:
    ops = [op(f"o{i}", "MatMul", flops=1) for i in range(3_000)]
    text = render_summary(summarize(OpGraph([*ops, op("last", "MatMul")], [])))
    assert "at least 3.00 kflop per step; known for 99.9 % of the ops that compute" in text


def test_what_nothing_is_known_of_is_unknown() -> None:
    text = render_summary(summarize(OpGraph([op("o", "Mystery", output_bytes=(None,))], [])))
    assert "flops        unknown per step" in text
    assert "bytes        unknown accessed per step" in text
    assert "activations  1 forward tensor, unknown in all" in text
    assert "  1  unknown  unknown  unknown  unknown  Mystery" in text


def test_long_lists_are_cut_and_say_so() -> None:
    host = [op(f"h{i}", f"Kind{i}", device_kinds=HOST) for i in range(9)]
    loops = [op(f"w{i}", "While", trips=i) for i in range(7)]
    text = render_summary(summarize(OpGraph([*host, *loops], [])))
    assert "ops without a GPU kernel: 9; they run on the host\n" in text
    assert "  and 4 more\n" in text
    assert "control flow: 7\n" in text
    assert "  and 2 more\n" in text


def test_a_loop_tells_its_trips_and_its_share_and_a_branch_that_one_runs() -> None:
    ops = [
        op("loop", "While", layer="lstm", trips=10, flops=30, bytes_accessed=1),
        op("choice", "If", flops=10, bytes_accessed=1),
        op("rest", "MatMul", flops=60, bytes_accessed=2),
    ]
    text = render_summary(summarize(OpGraph(ops, [])))
    assert "  While loop, layer lstm, 10 trips, 30.0 % of flops, 25.0 % of bytes\n" in text
    assert "  If choice, forward, one branch runs, 10.0 % of flops, 25.0 % of bytes\n" in text


def test_structure_is_told_by_first_layers_and_counts() -> None:
    text = render_summary(summarize(model("in1 -> a", "a -> a2", "in2 -> b", "a2 b -> dot")))
    assert "towers: 1\n  2 towers meet in dot: a to a2 (2 layers), b (1 layer)\n" in text
    assert "parallel branches: none\n" in text
    text = render_summary(summarize(model("in -> s", "s -> a", "a s -> add")))
    assert "  1 branch and a direct way from s to add: a (1 layer)\n" in text


def test_a_loop_of_which_only_the_flops_are_known_says_what_is_not() -> None:
    text = render_summary(summarize(OpGraph([op("loop", "While", trips=3, flops=30)], [])))
    assert "  While loop, forward, 3 trips, 100.0 % of flops, bytes unknown\n" in text


def test_a_single_edge_that_only_orders_is_told_as_one() -> None:
    edges = [edge("a", "b", 4), edge("a", "b", 0, CONTROL_PORT)]
    text = render_summary(
        summarize(OpGraph([op("a", "A", output_bytes=(4,)), op("b", "B")], edges))
    )
    assert "edges        1 with a tensor, bytes known for 100 %; 1 only orders its ends\n" in text


def test_names_cannot_drive_a_terminal() -> None:
    text = render_summary(summarize(OpGraph([op("a\x1b[31m\nb", "While", layer="\x07")], [])))
    assert "\x1b" not in text
    assert "\x07" not in text


@given(graphs())
def test_any_graph_can_be_told(graph: OpGraph) -> None:
    assert render_summary(summarize(graph)).endswith("\n")
