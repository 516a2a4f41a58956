import json
from dataclasses import replace

import pytest
from golden_files import golden_text
from report_samples import PLACEMENT, snapshot_of, towers, towers_graph, write_sample
from sample_analysis import joined, not_applicable, ranged, sample, unreliable
from sample_break_even import with_break_even

from placement_advisor.analysis.analysis_result import AdviceVerdict
from placement_advisor.errors import AdvisorError
from placement_advisor.files.contract import json_text
from placement_advisor.files.output import DETAILS, LOG_FOLDER, OVERVIEW
from placement_advisor.graph.op import Op
from placement_advisor.graph.op_graph import OpGraph
from placement_advisor.measurement.measurement import Interval
from placement_advisor.report.html_file import report_html
from placement_advisor.report.pictures.layer_layout import layer_map
from placement_advisor.report.tensorboard import tab_data

MAP = layer_map(towers_graph())
DEVICES = sample().testbed.cluster.place_names()


def row_of(candidate):
    return tab_data.Candidate.of(candidate, DEVICES)


def details(candidate, devices=DEVICES):
    return tab_data.Details.of(candidate, towers_graph(), MAP, devices)


def table(parts):
    (found,) = [part.table for part in parts if part.table]
    return found


def test_layers_stand_in_the_order_of_the_data_and_of_very_many_those_that_hold_them():
    assert [layer.name for layer in MAP.graph.layers] == ["lookup", "user", "item", "dot"]
    flows = [(flow.source, flow.target) for flow in MAP.graph.flows]
    assert MAP.devices(PLACEMENT) == ("GPU:0", "GPU:0", "GPU:1", "GPU:0")
    cut = MAP.cut_bytes(towers_graph(), PLACEMENT)
    assert {flows[flow]: size for flow, size in cut.items()} == {(0, 2): 1_600, (2, 3): None}
    names = [f"block_{i // 100}/dense_{i}" for i in range(3_000)]
    graph = OpGraph([Op(name, "Relu", layer=name) for name in names], [])
    drawn = layer_map(graph).graph.layers
    assert {layer.name for layer in drawn} == {f"block_{i}" for i in range(30)}
    assert layer_map(OpGraph([towers_graph().op("ids")], [])).graph.layers == ()


def test_the_tab_has_ranges_and_words_for_what_does_not_apply_and_no_broken_profile():
    alone, row, _ = map(row_of, ranged().candidates)
    assert (alone.figures[3], alone.after_runs) == (("–", "–"), None)
    assert (row.figures[3][0].split()[1], row.after_runs) == ("(1.25–2.00)", None)
    _, row, _ = map(row_of, joined().candidates)
    assert row.figures[3][0].split()[1] == "(1.25–2.00)"
    assert row.after_runs == "after 2 runs: 1.56× (1.00–1.60)"
    _, row = map(row_of, not_applicable().candidates)
    assert row.failure == "not applicable: the model has one tower"
    assert (row.is_applicable, row.figures) == (False, ())
    row = unreliable().candidates[1]
    step, copies, exposed, _ = row_of(row).figures
    assert (step, copies[1], exposed[1]) == (("30.1 ms", "30.5 ms"), "–", "–")
    assert details(row).activities == ()
    assert [each.heading for each in details(row).timelines] == ["simulated, step 30.1 ms"]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("tab_overview", tab_data.Overview.of(replace(with_break_even(), findings=()), MAP)),
        ("tab_details", details(sample().candidates[1])),
    ],
)
def test_what_the_tab_is_given_is_the_golden_one(name, content):
    assert json_text(content) == golden_text(f"{name}.json")


def test_the_verdict_is_told_in_a_sentence_with_what_to_do():
    plain = sample()

    def shown(**changes):
        answer = replace(plain.recommendation, **changes)
        return tab_data.Overview.of(replace(plain, recommendation=answer), MAP)

    split = shown()
    assert split.actions[1].startswith("PA201: keep the item tower's part")
    assert shown(basis="simulated").answer == f"{split.answer}, simulated"
    slower = Interval(median=1 / 1.07, low=0.9, high=0.95)
    stays = shown(verdict=AdviceVerdict.STAY_SINGLE, speedup=slower, next_run=None)
    assert stays.answer == "Don't split: the best split, towers, is 7 % slower"
    assert stays.actions[0] == "Keep the step on one device."
    doubt = {"verdict": AdviceVerdict.CANNOT_TELL, "candidate": None, "answer": "cannot tell"}
    assert shown(**doubt).answer == "Cannot tell"


def test_a_finding_has_its_place_and_its_page_and_an_empty_profile_says_so():
    (finding,) = tab_data.Overview.of(sample(), MAP).findings
    assert finding.parts[1].text == "layer item_conv, sample_models/deepconn.py:41"
    assert (finding.parts[-1].markdown or "").startswith("# PA201")
    towers = sample().candidates[1]
    bare = replace(towers.measured, profile=replace(towers.profile, activities=()))
    (empty,) = details(replace(towers, measured=bare)).activities
    assert empty.text == "The profile is empty."


def test_what_is_not_known_or_not_measured_is_none_or_left_out():
    split = replace(sample().candidates[1], predicted=towers(), measured=None)
    assert row_of(split).figures[1][0].endswith(", ≥ 3.20 kB")
    shown = details(split, ("GPU:0", "GPU:1"))
    assert [(name, size) for name, _, size, _ in table(shown.tensors).rows] == [
        ("lookup:0", "1.60 kB"),
        ("lookup:1", "1.60 kB"),
        ("^dot", "0 B"),
        ("item:0", "?"),
    ]
    assert table(shown.copies).head == ("", "GPU:0", "GPU:1", "CPU:0")
    _, to_gpu_0, to_gpu_1 = ([row[to] for row in table(shown.copies).rows] for to in range(3))
    assert "1, ?, " in to_gpu_0[1]
    assert "1, 1.60 kB, " in to_gpu_1[2]
    shown = details(replace(sample().candidates[2], samples=(16, 16)))
    assert (len(shown.timelines), shown.activities) == (1, ())
    assert all(cell.endswith("| –") for row in table(shown.copies).rows for cell in row[1:] if cell)
    assert (shown.layers, shown.cuts) == (None, None)


def test_a_tab_follows_an_analysis_and_details_are_written_again_only_when_there_is_more(tmp_path):
    analysis, tab = sample(), tab_data.Tab(tmp_path, towers_graph())
    tab.show(snapshot_of(analysis, "measuring costs", testbed=None, candidates=()))
    overview = tab_data.read_overview(tmp_path / OVERVIEW)
    assert overview.headline == "Running: measuring costs"
    assert (overview.chosen, overview.devices, overview.findings) == (None, (), ())
    assert overview.no_findings == "Not yet known."
    assert overview.graph.layers[0].name == "lookup"
    tab = tab_data.Tab(tmp_path, towers_graph())
    unmeasured = tuple(replace(c, measured=None) for c in analysis.candidates)
    early = snapshot_of(analysis, "timing", candidates=unmeasured)
    tab.show(early)
    file = tmp_path / DETAILS / "towers.json"
    first = file.stat()
    tab.show(early)
    assert file.stat().st_mtime_ns == first.st_mtime_ns
    tab.show(analysis)
    overview = tab_data.read_overview(tmp_path / OVERVIEW)
    assert len(tab_data.read_details(file, overview).timelines) == 2
    assert [path.name for path in tmp_path.rglob("*.new")] == []


@pytest.fixture
def logdir(tmp_path):
    write_sample(tmp_path / LOG_FOLDER, ["a", "b", "c", "d", "e"])
    return tmp_path / LOG_FOLDER


@pytest.mark.parametrize(
    ("candidate", "change", "told"),
    [
        (None, lambda o: o.update(schema_version=2), "2 is older than the 3 that this advisor"),
        (None, lambda o: o.update(schema_version=4), "4 is newer than the 3 that this advisor"),
        (None, lambda o: o.update(graph=None), "graph: None is not an object"),
        (None, lambda o: o["candidates"][1].update(name="../a"), r"\[1\].name: .* not the name"),
        (None, lambda o: o["candidates"][1].update(name="single"), "candidates: two of the same"),
        (None, lambda o: o["graph"]["layers"][2].update(at=[0]), r"\[2\].at: \[0\] is too short"),
        (None, lambda o: o["graph"]["flows"][0].update(target=5), "graph.flows: 5 is none of 5"),
        (None, lambda o: o["graph"]["flows"][0].update(route=[[0, 0]]), "a way without two ends"),
        ("alternating", lambda d: d.pop("copies"), "no field 'copies'"),
        ("alternating", lambda d: d["layers"].pop(), "layers: 4 of 5 layers"),
        ("alternating", lambda d: d["cuts"].append([9, None]), "cuts: 9 is none of"),
        ("alternating", lambda d: spans(d, 0).append([7, 0, 0, 1]), r"\[0\].spans: 7 is none of 3"),
        ("alternating", lambda d: spans(d, 1).append([0, 99, 0, 1]), r"\[1\].spans: 99 is none of"),
        ("alternating", lambda d: spans(d, 1).append([0, 0, 1]), r"\[0, 0, 1\] is too short"),
    ],
)
def test_what_cannot_be_shown_is_refused_with_its_place(logdir, candidate, change, told):
    path = logdir / (f"{DETAILS}/{candidate}.json" if candidate else OVERVIEW)
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))
    with pytest.raises(AdvisorError, match=told) as refused:
        report_html(logdir.parent)
    assert refused.value.message.startswith(f"{path}: ")


def spans(details, timeline):
    return details["timelines"][timeline]["spans"]
