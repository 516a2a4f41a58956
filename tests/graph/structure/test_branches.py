from __future__ import annotations

import math
from typing import TYPE_CHECKING

from hypothesis import given
from layer_models import model
from op_graphs import graphs

from placement_advisor.graph.layer_structure import (
    MAX_BRANCH_VISITS,
    ParallelBranches,
    parallel_branches,
)
from placement_advisor.graph.layer_view import layer_view

if TYPE_CHECKING:
    from placement_advisor.graph.op_graph import OpGraph


def found(graph: OpGraph) -> list[tuple[str, str, tuple[tuple[str, ...], ...], bool]]:
    return [(b.fork, b.join, b.branches, b.direct) for b in parallel_branches(layer_view(graph))]


def test_an_inception_block_has_a_branch_per_chain() -> None:
    graph = model(
        "in -> stem",
        "stem -> a",
        "stem -> b1",
        "b1 -> b2",
        "stem -> c",
        "a b2 c -> cat",
        "cat -> d",
    )
    assert parallel_branches(layer_view(graph)) == (
        ParallelBranches(
            fork="stem", join="cat", branches=(("a",), ("b1", "b2"), ("c",)), direct=False
        ),
    )


def test_a_residual_unit_has_one_branch_and_a_direct_way() -> None:
    graph = model("in -> x", "x -> conv", "conv -> relu", "relu x -> add", "add -> end")
    assert found(graph) == [("x", "add", (("conv", "relu"),), True)]


def test_attention_within_a_residual_unit_is_found_beside_it() -> None:
    # Queries and keys meet in the scores, values only after them.
    graph = model(
        "in -> x", "x -> norm", "norm -> q", "norm -> k", "norm -> v",
        "q k -> scores", "scores v -> mix", "mix x -> add",
    )  # fmt: skip
    assert found(graph) == [
        ("x", "add", (("norm", "q", "k", "v", "scores", "mix"),), True),
        ("norm", "mix", (("q", "k", "scores"), ("v",)), False),
    ]


def test_a_branch_may_read_a_mask_from_before_the_fork() -> None:
    graph = model("in -> x", "x -> a", "x mask -> b", "a b -> sum", "in2 -> mask")
    assert found(graph) == [("x", "sum", (("a",), ("b",)), False)]


def test_a_chain_has_no_branches_and_densely_wired_layers_are_one() -> None:
    assert found(model("in -> a", "a -> b", "b -> c")) == []
    dense = model("in -> x", "x -> a", "x a -> b", "x a b -> c", "a b c -> end", "x -> a")
    assert [branches for *_, branches, _ in found(dense)] == [
        (("a", "b", "c"),) if fork == "x" else branches for fork, _, branches, _ in found(dense)
    ]


def test_branches_that_never_meet_are_left_out() -> None:
    assert found(model("in -> x", "x -> a", "x -> b")) == []


def test_of_thousands_of_regions_within_one_another_the_longest_are_left_out() -> None:
    depth = 1_500
    down = [f"d{i} -> d{i + 1}" for i in range(depth)]
    up = [f"d{depth} d{depth - 1} -> u{depth - 1}"]
    up += [f"u{i + 1} d{i} -> u{i}" for i in reversed(range(depth - 1))]
    regions = parallel_branches(layer_view(model("in -> d0", *down, *up)))
    # The regions hold 1, 3, 5, … layers: the first n hold n * n.
    assert len(regions) == math.isqrt(MAX_BRANCH_VISITS) + 1
    assert regions[-1].branches == ((f"d{depth}",),)


@given(graphs())
def test_no_tensor_goes_from_one_branch_to_another_or_past_the_join(graph: OpGraph) -> None:
    view = layer_view(graph)
    for region in parallel_branches(view):
        branch_of = {layer: i for i, layers in enumerate(region.branches) for layer in layers}
        assert len(branch_of) == sum(map(len, region.branches))
        assert not {region.fork, region.join} & set(branch_of)
        assert len(region.branches) + region.direct >= 2
        for source, target in view.edges:
            if source in branch_of:
                assert branch_of.get(target, region.join) in (
                    branch_of[source],
                    region.join if target == region.join else None,
                )
