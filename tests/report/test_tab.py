"""What the tab Placement is given: a user tower and an item tower that meet in a product."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from sample_analysis import HOSTILE, US, joined, not_applicable, ranged, sample, unreliable
from sample_break_even import with_break_even
from simulated_steps import PLACEMENT, towers, towers_graph

from placement_advisor.analysis.assemble import review_of
from placement_advisor.files.log_files import DETAILS, OVERVIEW
from placement_advisor.graph.op_graph import Op, OpGraph
from placement_advisor.report.pictures.layer_map import layer_map
from placement_advisor.report.tensorboard.tab import Tab

if TYPE_CHECKING:
    from pathlib import Path

    from placement_advisor.analysis.analysis_result import Analysis
    from placement_advisor.analysis.recorder import Review


def review(analysis: Analysis, **changes: Any) -> Review:
    return replace(review_of(analysis), **changes)


def read(folder: Path, name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / name).read_text())
    return content


def test_layers_stand_in_the_order_of_the_data_and_have_their_flows() -> None:
    layers = layer_map(towers_graph())
    assert [layer.name for layer in layers.layers] == ["lookup", "user", "item", "dot"]
    flows = {(flow.source, flow.target): flow for flow in layers.flows}
    assert {ends: flow.size_bytes for ends, flow in flows.items()} == {
        (0, 1): 1_600,
        (0, 2): 1_600,
        (1, 3): 4_000,
        (2, 3): None,
    }
    for (source, target), flow in flows.items():
        assert flow.route[0] == layers.layers[source].middle
        assert flow.route[-1] == layers.layers[target].middle
    assert len({layer.middle for layer in layers.layers}) == 4


def test_layers_have_their_devices_and_what_crosses_between_them() -> None:
    layers = layer_map(towers_graph())
    assert layers.devices(PLACEMENT) == ("GPU:0", "GPU:0", "GPU:1", "GPU:0")
    cut = layers.cut_bytes(towers_graph(), PLACEMENT)
    ends = {flow: (layers.flows[flow].source, layers.flows[flow].target) for flow in cut}
    assert {ends[flow]: size for flow, size in cut.items()} == {(0, 2): 1_600, (2, 3): None}


def test_of_a_profile_that_breaks_a_law_the_tab_is_given_nothing(tmp_path: Path) -> None:
    Tab(tmp_path, towers_graph()).show(review(unreliable()))
    _, row, _ = read(tmp_path, OVERVIEW)["candidates"]
    assert row["measured"]["copies"] is None
    assert row["measured"]["exposed_ns"] is None
    details = read(tmp_path / DETAILS, "towers.json")
    assert details["activities"] is None
    assert details["timelines"]["measured"] is None
    assert details["timelines"]["simulated"] is not None


def test_the_tab_is_given_ranges_of_what_is_simulated_and_words_for_what_does_not_apply(
    tmp_path: Path,
) -> None:
    Tab(tmp_path, towers_graph()).show(review(ranged()))
    alone, row, _ = read(tmp_path, OVERVIEW)["candidates"]
    assert alone["predicted_range"] is None
    assert row["predicted_range"] == [1.25, 2.0]
    assert row["predicted_after_runs"] is None
    Tab(tmp_path, towers_graph()).show(review(joined()))
    alone, row, _ = read(tmp_path, OVERVIEW)["candidates"]
    assert alone["predicted_after_runs"] is None
    assert row["predicted_range"] == [1.25, 2.0]
    assert row["predicted_after_runs"] == {"runs": 2, "median": 1.5625, "low": 1.0, "high": 1.6}
    Tab(tmp_path, towers_graph()).show(review(not_applicable()))
    _, row = read(tmp_path, OVERVIEW)["candidates"]
    assert row["failure"] == "not applicable: the model has one tower"


def test_a_graph_without_forward_ops_has_an_empty_map() -> None:
    graph = towers_graph()
    assert layer_map(type(graph)([graph.op("ids")], [])).layers == ()


def test_of_very_many_layers_those_that_hold_them_are_shown() -> None:
    names = [f"block_{i // 100}/dense_{i}" for i in range(3_000)]
    graph = OpGraph([Op(name=name, kind="Relu", layer=name) for name in names], [])
    assert {layer.name for layer in layer_map(graph).layers} == {f"block_{i}" for i in range(30)}


def test_the_overview_has_verdict_figures_and_findings(tmp_path: Path) -> None:
    Tab(tmp_path, towers_graph()).show(review(sample()))
    overview = read(tmp_path, OVERVIEW)
    assert overview["doing"] is None
    assert overview["verdict"]["headline"].startswith("split: towers, 1.69")
    single, split, crashed = overview["candidates"]
    assert single["predicted"]["step_ns"] == 52_000 * US
    assert split["predicted"] == {
        "step_ns": 30_100 * US,
        "copies": 4,
        "bytes": 1_416_384,
        "bytes_are_a_floor": False,
        "exposed_ns": 1_500 * US,
    }
    low, high = (split["measured_speedup"][end] for end in ("low", "high"))
    assert low < split["measured_speedup"]["median"] < high
    assert crashed["measured"] is None
    assert crashed["failure_kind"] == "crashed"
    assert split["peak_memory"] == [
        {"device": "worker:0", "bytes": 12_100_000},
        {"device": "worker:1", "bytes": 8_200_000},
    ]
    assert overview["as_is"] == {"name": "as-is", "step_ns": 29_400 * US}
    assert overview["input"] is None
    (finding,) = overview["findings"]
    assert finding["where"] == "layer item_conv, sample_models/deepconn.py:41"
    assert finding["page"].startswith("# PA201")


def test_details_have_lanes_bars_and_copies_of_both_steps(tmp_path: Path) -> None:
    Tab(tmp_path, towers_graph()).show(review(sample()))
    details = read(tmp_path, f"{DETAILS}/towers.json")
    assert details["lanes"] == [
        "worker:0",
        "worker:1",
        "worker:0 → worker:1",
        "worker:1 → worker:0",
    ]
    simulated = details["timelines"]["simulated"]
    assert simulated["step_ns"] == 30_100 * US
    assert simulated["copies"] == [2, 3]
    bars = [[lane, simulated["names"][name], *ends] for lane, name, *ends in simulated["spans"]]
    assert bars[0] == [0, "lookup", 0, 2_000 * US]
    assert [2, "lookup", 2_000 * US, 2_300 * US] in bars
    assert details["timelines"]["measured"]["step_ns"] == round(30_100 * US * 1.04)
    there, back = details["copies"]["simulated"]
    assert (there["source"], there["count"], there["bytes"]) == ("worker:0", 2, 168_192)
    assert back["time_ns"] == 1_500 * US
    assert details["tensors"][0] == {
        "tensor": "item_conv_grad:0",
        "source": "worker:1",
        "target": "worker:0",
        "bytes": 1_240_000,
        "time_ns": 1_100 * US,
    }


def test_the_overview_says_how_fast_the_dataset_is(tmp_path: Path) -> None:
    Tab(tmp_path, towers_graph()).show(review(with_break_even()))
    assert read(tmp_path, OVERVIEW)["input"].startswith("input: 12,800 samples/s alone; the step")


def test_details_have_what_took_the_time_of_the_profiled_steps(tmp_path: Path) -> None:
    Tab(tmp_path, towers_graph()).show(review(sample()))
    activities = read(tmp_path, f"{DETAILS}/towers.json")["activities"]
    # Ops take 54.08 ms a step, 13.52 ms of that item_conv, copies 2.18 ms.
    assert activities["parts"] == ("Compute 96 %, copies 4 % of all activity in 10 profiled steps.")
    first, *_ = activities["rows"]
    assert first["cells"] == [
        "24.03%",
        "135 ms",
        "10",
        "13.5 ms",
        "12.2 ms",
        "17.6 ms",
        "item_conv",
    ]
    assert not first["is_copy"]
    assert [row["cells"][-1] for row in activities["rows"] if row["is_copy"]] == [
        "[gRPC copy worker:1 → worker:0]",
        "[gRPC copy worker:0 → worker:1]",
    ]


def test_of_an_empty_profile_there_is_nothing_but_that_it_is_empty(tmp_path: Path) -> None:
    towers = sample().candidates[1]
    assert towers.measured is not None
    assert towers.measured.profile is not None
    profile = replace(towers.measured.profile, activities=())
    empty = replace(towers, measured=replace(towers.measured, profile=profile))
    Tab(tmp_path, towers_graph()).show(review(sample(), candidates=(empty,)))
    activities = read(tmp_path, f"{DETAILS}/towers.json")["activities"]
    assert (activities["parts"], activities["rows"]) == ("The profile is empty.", [])


def test_bytes_of_unknown_size_are_null_and_what_lacks_them_is_a_floor(tmp_path: Path) -> None:
    split = replace(sample().candidates[1], predicted=towers().schedule)
    Tab(tmp_path, towers_graph()).show(review(sample(), candidates=(split,)))
    (shown,) = read(tmp_path, OVERVIEW)["candidates"]
    assert (shown["predicted"]["bytes"], shown["predicted"]["bytes_are_a_floor"]) == (3_200, True)
    details = read(tmp_path, f"{DETAILS}/towers.json")
    assert [(each["tensor"], each["bytes"]) for each in details["tensors"]] == [
        ("lookup:0", 1_600),
        ("lookup:1", 1_600),
        ("^dot", 0),
        ("item:0", None),
    ]
    ways = {(each["source"], each["target"]): each for each in details["copies"]["simulated"]}
    assert ways["GPU:1", "GPU:0"]["bytes"] is None
    assert ways["CPU:0", "GPU:1"]["bytes"] == 1_600
    assert not ways["CPU:0", "GPU:1"]["bytes_are_a_floor"]


def test_what_was_not_measured_is_null(tmp_path: Path) -> None:
    Tab(tmp_path, towers_graph()).show(review(sample()))
    details = read(tmp_path, f"{DETAILS}/alternating.json")
    assert details["timelines"]["measured"] is None
    assert details["copies"]["measured"] is None
    assert details["activities"] is None


def test_a_split_of_the_batch_has_no_layers_on_one_device_each(tmp_path: Path) -> None:
    analysis = sample()
    split = replace(analysis.candidates[1], samples=(16, 16))
    Tab(tmp_path, towers_graph()).show(review(analysis, candidates=(split,)))
    details = read(tmp_path, f"{DETAILS}/towers.json")
    assert details["layers"] is None
    assert details["cuts"] is None


def test_before_anything_is_known_there_is_the_model_and_what_is_done(tmp_path: Path) -> None:
    tab = Tab(tmp_path, towers_graph())
    early = {"testbed": None, "candidates": (), "recommendation": None, "findings": ()}
    tab.show(review(sample(), doing="measuring costs", **early))
    overview = read(tmp_path, OVERVIEW)
    assert overview["doing"] == "measuring costs"
    assert overview["verdict"] is None
    assert overview["devices"] == []
    assert overview["graph"]["layers"][0]["name"] == "lookup"


def test_details_are_written_again_only_when_there_is_more(tmp_path: Path) -> None:
    analysis = sample()
    tab = Tab(tmp_path, towers_graph())
    unmeasured = tuple(replace(c, measured=None) for c in analysis.candidates)
    tab.show(review(analysis, candidates=unmeasured, doing="timing"))
    file = tmp_path / DETAILS / "towers.json"
    first = file.stat()
    tab.show(review(analysis, candidates=unmeasured, doing="timing"))
    assert file.stat().st_mtime_ns == first.st_mtime_ns
    tab.show(review(analysis))
    assert read(tmp_path, f"{DETAILS}/towers.json")["timelines"]["measured"] is not None
    assert [path.name for path in tmp_path.rglob("*.new")] == []


@pytest.mark.parametrize("layer", [HOSTILE, "ünï/cödé"])
def test_names_are_kept_as_they_are(tmp_path: Path, layer: str) -> None:
    Tab(tmp_path, towers_graph(layer)).show(review(sample()))
    assert read(tmp_path, OVERVIEW)["graph"]["layers"][1]["name"] == layer
