from dataclasses import replace

import numpy as np
import pytest
import sample_analysis
from drawn_pictures import count, pixels, unreadable, words
from hypothesis import given
from hypothesis import strategies as st
from layer_models import model
from report_samples import made_up
from summary_graphs import edge, op

from placement_advisor.analysis.analysis_result import Candidate
from placement_advisor.graph.layer_view import layer_view
from placement_advisor.graph.op import Role
from placement_advisor.graph.op_graph import OpGraph
from placement_advisor.measurement.measurement import Span
from placement_advisor.report.pictures import canvas
from placement_advisor.report.pictures.layer_layout import best_layout, layer_parts
from placement_advisor.report.pictures.result_plots import draw_comparison
from placement_advisor.report.pictures.timeline_plot import (
    Bar,
    busy_ns,
    draw_timeline,
    merge,
    plot_timelines,
    rows_of,
    steps_of,
)
from placement_advisor.report.statements import in_own_timelines, in_timeline
from placement_advisor.simulator.schedule import OpRun

_NAMES = ("sample", "unmeasured", "hostile", "four_devices", "not_applicable", "unreliable")
SAMPLES = {name: getattr(sample_analysis, name)() for name in (*_NAMES, "ranged")}
LONG = "_x" + "W" * 190
MADE_UP = {
    "40 candidates": made_up(candidates=40),
    "40 candidates that did not run": made_up(candidates=40, ran=False),
    "names of 200 characters in words": made_up(behind_names="/block_W" * 24),
    "names of 200 characters in one word": made_up(behind_names=LONG, devices=8),
    "one device": made_up(devices=1),
    "eight devices": made_up(devices=8),
    "64 devices": made_up(devices=64),
    "1 µs": made_up(step_ns=1_000),
    "100 s": made_up(step_ns=100_000_000_000),
    "no candidate": made_up(candidates=0),
}
ANY = SAMPLES | MADE_UP
HEAD = round(canvas.HEAD_IN * canvas.DPI)


def _timeline(analysis):
    return draw_timeline(analysis, in_timeline(analysis))


@pytest.mark.parametrize("name", ANY)
def test_all_text_of_a_picture_can_be_read_and_the_picture_fits_a_screen(name):
    analysis = ANY[name]
    own = [draw_timeline(analysis, [c]) for c in in_own_timelines(analysis)[:1]]
    for figure in (_timeline(analysis), draw_comparison(analysis), *own):
        assert unreadable(figure) == []
        width, height = figure.canvas.get_width_height()
        assert width == 1_200
        assert height <= 1_200


@pytest.mark.parametrize(("candidates", "own"), [(4, []), (6, ["split-4", "split-5"])])
def test_files_are_written_for_single_and_the_best_and_for_each_of_the_rest(
    tmp_path, candidates, own
):
    plot_timelines(made_up(candidates=candidates), tmp_path)
    written = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.png"))
    assert written == ["timeline.png", *(f"timelines/{name}.png" for name in own)]
    assert (tmp_path / "timelines").exists() == bool(own)


def test_pictures_show_what_ran_and_a_picture_of_its_own_what_crashed():
    plain = SAMPLES["sample"]
    nowhere = Candidate(name="nowhere", family="nowhere", rationale="made up")
    analysis = replace(plain, candidates=(*plain.candidates, nowhere))
    for figure in (_timeline(analysis), draw_comparison(analysis)):
        assert {"single", "towers"} <= set(words(figure))
        assert not {"alternating", "nowhere"} & set(words(figure))
    shown = words(draw_timeline(plain, in_own_timelines(plain)))
    assert {"failed: crashed", "simulated, step 51.0 ms"} <= set(shown)
    assert not any(word.startswith("measured, ") for word in shown)


@pytest.mark.parametrize("draw", [_timeline, draw_comparison])
def test_without_a_run_all_is_labelled_simulated_and_nothing_measured(draw):
    shown = words(draw(SAMPLES["unmeasured"]))
    assert shown.count("alternating") == 1
    assert any(word.endswith(", simulated") for word in shown)
    assert not any("measured" in word for word in shown)


def test_all_rows_share_one_axis_of_time():
    figure = _timeline(made_up(candidates=3, step_ns=100_000_000))
    (ax,) = figure.axes
    # The longest takes 120 ms; the end of a step is a dashed line.
    ends_ns = sorted({float(line.get_xdata()[0]) for line in ax.lines})
    assert ends_ns == [100_000_000, 110_000_000, 120_000_000]
    assert ax.get_xlim()[1] == pytest.approx(120_000_000, rel=0.01)


def test_compute_and_copies_take_as_many_pixels_as_time(tmp_path):
    analysis = SAMPLES["sample"]
    plot_timelines(replace(analysis, candidates=(analysis.candidates[1],)), tmp_path)
    drawn = pixels(tmp_path / "timeline.png", top=HEAD)
    # Simulated 52.0 ms of compute and 2.1 ms of copies; measured is both times 1.04. The strip of
    # compute is 0.56 of a row high, that of copies 0.26.
    share = count(drawn, canvas.COPY_COLOR) / count(drawn, canvas.COMPUTE_COLOR)
    assert share == pytest.approx(2.1 / 52.0 * 0.26 / 0.56, rel=0.2)


def test_ops_shorter_than_the_launches_between_them_are_drawn_for_as_long_as_they_take(tmp_path):
    """Else 1,000 kernels of 1 µs, with 4 µs of launching before each, look like 5 ms of work."""
    plain = sample_analysis.elsewhere()
    single = plain.candidates[0]
    times = [
        {"ready_ns": at, "start_ns": at + 4_000, "end_ns": at + 5_000, "launch": (at, at + 4_000)}
        for at in range(0, 5_000_000, 5_000)
    ]
    runs = tuple(OpRun(op="op", device="worker:0", **each) for each in times)
    computes = {"worker:0": 1_000_000}
    schedule = replace(single.predicted, runs=runs, step_ns=5_000_000, compute_ns=computes)
    analysis = replace(plain, candidates=(replace(single, predicted=schedule),))
    plot_timelines(analysis, tmp_path)
    drawn = pixels(tmp_path / "timeline.png", top=HEAD)
    blue, launching = count(drawn, canvas.COMPUTE_COLOR), count(drawn, canvas.LAUNCH_COLOR)
    # A fifth of the strip is blue; behind it launches take four fifths.
    assert blue / (blue + launching) == pytest.approx(0.2 / 0.8, rel=0.15)
    assert {"the host launches ops", "1.00 ms"} <= set(words(_timeline(analysis)))
    assert "the host launches ops" not in words(_timeline(SAMPLES["sample"]))


def test_of_more_devices_than_fit_the_busiest_are_shown_and_the_rest_counted():
    analysis = MADE_UP["64 devices"]
    shown = words(draw_timeline(analysis, in_own_timelines(analysis)))
    rows = len([word for word in shown if word.startswith("worker:")]) // 2
    assert 30 < rows < 64
    assert any(word.endswith(f"; the busiest {rows} of 64 devices") for word in shown)
    # It is the busiest of single, and the first of the rest.
    assert words(_timeline(analysis)).count("worker:0") == 8
    whole = words(_timeline(MADE_UP["eight devices"]))
    assert whole.count("worker:7") == 8
    assert not any("busiest" in word for word in whole)


def test_a_bar_of_the_comparison_is_cut_into_compute_exposed_copies_and_idle():
    ax, *_ = draw_comparison(SAMPLES["unmeasured"]).axes
    widths_ms = [round(bar.get_width() / 1e6, 3) for bar in ax.patches]
    # single computes always; towers computes 28.0 ms on worker:0, which waits for copies of
    # item_conv (0.4 ms) and of its gradient (1.1 ms from 27.5, computing until 27.2).
    assert widths_ms[:6] == [52.0, 0, 0, 28.0, 1.5, 0.6]
    # A measured bar is as long as the step without the profiler.
    ax, *_ = draw_comparison(SAMPLES["sample"]).axes
    widths_ms = [bar.get_width() / 1e6 for bar in ax.patches]
    single, towers = SAMPLES["sample"].candidates[:2]
    assert sum(widths_ms[3:6]) == pytest.approx(np.median(single.measured.step_ns) / 1e6)
    assert sum(widths_ms[9:12]) == pytest.approx(np.median(towers.measured.step_ns) / 1e6)
    # The profiled step is the simulated one, slowed down: its parts have the same shares.
    assert widths_ms[10] / sum(widths_ms[9:12]) == pytest.approx(1.5 / 30.1, rel=0.01)


def test_a_step_whose_profile_breaks_a_law_stays_whole_and_says_so(tmp_path):
    analysis = SAMPLES["unreliable"]
    broken = replace(analysis, candidates=analysis.candidates[:2])
    figure = draw_comparison(broken)
    assert "no profile to rely on" in words(figure)
    canvas.save(figure, tmp_path / "comparison.png")
    assert count(pixels(tmp_path / "comparison.png"), canvas.COPY_COLOR) < 400  # The legend alone.
    said = "measured speed-up 1.69× (95 % 1.64–1.72), no profile to rely on"
    assert {said, "measured baseline"} <= set(words(_timeline(analysis)))


def _span(start_ns, end_ns, name="op"):
    return Span(lane="GPU:0", name=name, start_ns=start_ns, end_ns=end_ns, is_copy=False)


def _bar(start_ns, end_ns, name="", busy_ns=None):
    busy_ns = end_ns - start_ns if busy_ns is None else busy_ns
    return Bar(name=name, start_ns=start_ns, end_ns=end_ns, busy_ns=busy_ns)


def test_tiny_neighbours_merge_and_large_ones_keep_their_names():
    # a pixel is 10 ns: the first three are tiny, the next two are not, the last is far off
    tiny = (_span(0, 5), _span(5, 12), _span(15, 20))
    large = (_span(20, 80, "model/conv/Conv2D"), _span(80, 200, "MatMul"))
    assert merge([*tiny, *large, _span(230, 232, "Relu")], pixel_ns=10) == (
        _bar(0, 20, busy_ns=17),
        _bar(20, 80, "Conv2D"),
        _bar(80, 200, "MatMul"),
        _bar(230, 232, "Relu"),
    )


@given(st.lists(st.tuples(st.integers(0, 1_000), st.integers(0, 100)), max_size=60))
def test_merging_neither_hides_nor_invents_more_than_the_gaps_of_a_pixel(starts_and_lengths):
    drawn = [_span(start_ns, start_ns + length) for start_ns, length in starts_and_lengths]
    bars = merge(drawn, pixel_ns=10)
    for span in drawn:
        assert any(bar.start_ns <= span.start_ns and span.end_ns <= bar.end_ns for bar in bars)
    assert len(bars) <= len(drawn)
    assert all(bar.busy_ns <= bar.end_ns - bar.start_ns for bar in bars)
    covered = busy_ns([_span(bar.start_ns, bar.end_ns) for bar in bars])
    assert busy_ns(drawn) <= covered <= busy_ns(drawn) + 10 * len(drawn)
    # Bars that overlap by less than a pixel stay apart, so that this is counted in both.
    busy = sum(bar.busy_ns for bar in bars)
    assert busy_ns(drawn) <= busy <= busy_ns(drawn) + 10 * len(bars)


def test_thousands_of_ops_become_fewer_bars_than_pixels():
    analysis = sample_analysis.four_devices()
    for step in steps_of(analysis.candidates[0]):
        for device in analysis.testbed.cluster.device_names():
            for spans in (step.computing(device), step.copies_to(device)):
                assert min(1, len(spans)) <= len(merge(spans, step.end_ns / 300)) <= 300


def test_rows_are_devices_idle_ones_too_then_hosts_and_a_step_ends_with_the_last_in_it():
    analysis = sample_analysis.sample()
    single, towers, _ = (steps_of(candidate) for candidate in analysis.candidates)
    names = analysis.testbed.cluster.device_names()
    assert rows_of(names, single)["worker:1"] == 0
    to_host = Span(lane="worker:0 → host", name="x", start_ns=0, end_ns=40_000_000, is_copy=True)
    late = replace(towers[0], spans=(to_host,))
    assert rows_of(names, [late]) == {"worker:0": 0, "worker:1": 0, "host": 40_000_000}
    assert (towers[0].end_ns, late.end_ns) == (towers[0].step_ns, 40_000_000)


WORDS = ["encoder_1_forward_dropout", "encoder_1_self_dropout", "decoder_1_forward_dropout"]


@pytest.mark.parametrize(
    ("names", "width", "short"),
    [
        (["dense", "dense_1"], 5, ["dense", "dense_1"]),
        # A word that tells is cut if it has no room.
        (WORDS, 1.5, ["encoder_1_forward_…"]),
        (WORDS, 1.2, ["enco…forward_…"]),
        # Of a name alone the end is kept.
        (["compile_loss/mean_squared_error"], 1.5, ["…mean_squared_error"]),
        # Those that the font cannot tell apart are numbered.
        (["模型", "网络"], 1, ["?? (1)", "?? (2)"]),
    ],
)
def test_a_name_is_as_short_as_it_has_to_be(names, width, short):
    assert list(canvas.told_apart(names, 9, width).values())[: len(short)] == short


def test_a_long_name_keeps_what_tells_it_from_the_others():
    told = [(f"layer_{i}", f"{part}/") for i in (3, 4) for part in "qk"]
    names = [f"encoder/{layer}/attention/output/{part}projection" for layer, part in told]
    for parts, short in zip(told, canvas.told_apart(names, 9, 1.6).values(), strict=True):
        assert all(part in short for part in parts)
        assert canvas.text_width_in(short, 9) <= 1.6
    frequent = [f"block_{i}_attention/{part}" for i in (1, 2) for part in ("query", "key", "value")]
    alike = [f"block_{i}_attention/attention_output" for i in (1, 2)]
    short = canvas.told_apart([*frequent, *alike], 9, 1.5)
    assert [short[name] for name in alike] == ["block_1_…output", "block_2_…output"]
    assert canvas.drawable("模 $x$ {") == "? $x$ {"


@given(st.lists(st.text("ab1_/W()模 ", min_size=1, max_size=40), max_size=8))
def test_any_names_fit_and_are_told_apart(names):
    short = canvas.told_apart(names, 9, 0.8)
    assert set(short) == set(names)
    assert len(set(short.values())) == len(set(names))
    assert all(canvas.text_width_in(text, 9) <= 0.8 for text in short.values())


def test_titles_say_what_came_out():
    as_is = "(as-is, with all of the machine: 29.4 ms)"
    analysis = SAMPLES["sample"]
    for figure in (_timeline(analysis), draw_comparison(analysis)):
        assert f"deepconn: towers 1.69×, waits 1.56 ms for copies {as_is}" in words(figure)
    found = "deepconn: towers 1.73×, waits 1.50 ms for copies, simulated"
    assert found in words(_timeline(SAMPLES["unmeasured"]))
    alone = replace(analysis, candidates=analysis.candidates[:1], as_is=None)
    assert "deepconn: single 51.0 ms, waits for no copies" in words(_timeline(alone))


BOX = (2.0, 0.5)


# The model adds what its layer a returns, and reads b's.
LAYERS = ("model", "a", "model", "b", "model")
WRAPPED = OpGraph(
    [op(f"{i}", "Relu", layer=layer, flops=1) for i, layer in enumerate(LAYERS)],
    [edge(f"{i}", f"{i + 1}", 8) for i in range(4)],
)
VARIABLE = op("w", "VarHandleOp", Role.VARIABLE, variable="w", parameter_bytes=8, output_bytes=(0,))
READ = op("read", "ReadVariableOp", layer="lstm/cell", variable="w", output_bytes=(8,))
SIDE_BY_SIDE = OpGraph(
    [op(name, "AddV2", layer=name[0]) for name in ("a1", "b1", "b2", "a2")],
    [edge("a1", "b1", 8), edge("b2", "a2", 8)],
)
# A layer that only reads its variables is drawn before its reader.
READS_ONLY = OpGraph(
    [VARIABLE, READ, op("loop", "While", layer="lstm")],
    [edge("w", "read", 0), edge("read", "loop", 8)],
)


@pytest.mark.parametrize(
    ("graph", "sent"),
    [
        (WRAPPED, ["model > a", "a > model #2", "model #2 > b", "b > model #3"]),
        (SIDE_BY_SIDE, ["a > b", "b > a #2"]),
        (model("in -> a", "a -> b", "a b -> c"), ["a > b", "a > c", "b > c"]),
        (READS_ONLY, ["lstm/cell > lstm"]),
    ],
)
def test_a_layer_is_cut_where_its_data_comes_back_to_it(graph, sent):
    parts, edges = layer_parts(graph, layer_view(graph))
    names = [part.name for part in parts]
    assert [f"{names[source]} > {names[target]}" for source, target in edges] == sent
    assert all(source < target for source, target in edges)


@given(st.integers(1, 30), st.data())
def test_boxes_never_overlap_and_arrows_lead_from_box_to_box(count, data):
    ends = st.integers(0, count - 1)
    pairs = data.draw(st.lists(st.tuples(ends, ends), unique=True))
    edges = [(i, j) for i, j in pairs if i < j]
    boxes, routes = best_layout(count, edges, BOX)
    for i, box in enumerate(boxes):
        for other in boxes[:i]:
            far = (abs(a - b) for a, b in zip(box, other, strict=True))
            assert any(one >= side - 1e-6 for one, side in zip(far, BOX, strict=True))
    assert set(routes) == set(edges)
    for (source, target), route in routes.items():
        assert (route[0], route[-1]) == (boxes[source], boxes[target])


def test_a_long_chain_is_folded_a_short_one_is_not_and_two_towers_do_not_cross():
    def columns(count):
        edges = [(i, i + 1) for i in range(count - 1)]
        boxes, _ = best_layout(count, edges, BOX)
        assert max(max(box) for box in boxes) < 20
        return [[y for x, y in boxes if x == column] for column in sorted({x for x, _ in boxes})]

    (only,) = columns(5)
    assert only == sorted(only)
    down, up, *_ = columns(60)
    assert (down, up) == (sorted(down), sorted(up, reverse=True))
    # 0 -> 3 -> 4 and 1 -> 2 -> 4, with the second rank given the other way round.
    boxes, _ = best_layout(5, [(0, 3), (1, 2), (3, 4), (2, 4)], BOX)
    x0, x1, x2, x3, x4 = (x for x, _ in boxes)
    assert (x0 < x1) == (x3 < x2)
    assert x4 == pytest.approx((x2 + x3) / 2)
