from __future__ import annotations

import sample_analysis
from hypothesis import given
from hypothesis import strategies as st

from placement_advisor.measurement.measurement import Span
from placement_advisor.report.pictures.bars import Bar, busy_ns, candidate_lanes, merge


def _span(start_ns: int, end_ns: int, name: str = "op", *, is_copy: bool = False) -> Span:
    return Span(lane="GPU:0", name=name, start_ns=start_ns, end_ns=end_ns, is_copy=is_copy)


def _bar(start_ns: int, end_ns: int, name: str = "", *, is_copy: bool = False) -> Bar:
    return Bar(name=name, start_ns=start_ns, end_ns=end_ns, is_copy=is_copy)


spans = st.lists(
    st.tuples(st.integers(0, 1_000), st.integers(0, 100), st.booleans()).map(
        lambda drawn: _span(drawn[0], drawn[0] + drawn[1], is_copy=drawn[2])
    ),
    max_size=60,
)


def test_tiny_neighbours_merge_and_large_ones_keep_their_names() -> None:
    # a pixel is 10 ns: the first three are tiny, the next two are not, the last is far off
    merged = merge(
        [
            _span(0, 5),
            _span(5, 12),
            _span(15, 20),
            _span(20, 80, "model/conv/Conv2D"),
            _span(80, 200, "MatMul"),
            _span(230, 232, "Relu"),
        ],
        pixel_ns=10,
    )
    assert merged == (
        _bar(0, 20),
        _bar(20, 80, "Conv2D"),
        _bar(80, 200, "MatMul"),
        _bar(230, 232, "Relu"),
    )


def test_copies_never_merge_with_compute() -> None:
    merged = merge([_span(0, 1, "a"), _span(1, 2, "b", is_copy=True)], pixel_ns=10)
    assert merged == (_bar(0, 1, "a"), _bar(1, 2, "b", is_copy=True))


def test_busy_time_counts_overlap_once() -> None:
    # 0..50 and 30..60 make 60, 100..110 makes 10
    assert busy_ns([_span(30, 60), _span(0, 50), _span(100, 110)]) == 70


@given(spans)
def test_merging_neither_hides_nor_invents_more_than_the_gaps_of_a_pixel(drawn: list[Span]) -> None:
    bars = merge(drawn, pixel_ns=10)
    for span in drawn:
        assert any(
            bar.start_ns <= span.start_ns
            and span.end_ns <= bar.end_ns
            and bar.is_copy is span.is_copy
            for bar in bars
        )
    assert len(bars) <= len(drawn)
    covered = busy_ns([_span(bar.start_ns, bar.end_ns) for bar in bars])
    assert busy_ns(drawn) <= covered <= busy_ns(drawn) + 10 * len(drawn)


def test_thousands_of_ops_become_fewer_bars_than_pixels() -> None:
    analysis = sample_analysis.four_devices()
    for group in candidate_lanes(analysis, analysis.candidates[0], pixels=300):
        assert max(len(bars) for bars in group.bars.values()) <= 300


def test_simulated_and_measured_lanes_are_the_same_in_the_same_order() -> None:
    analysis = sample_analysis.sample()
    simulated, measured = candidate_lanes(analysis, analysis.candidates[1], pixels=1_000)
    assert simulated.names == measured.names
    assert simulated.names == (
        "worker:0",
        "worker:1",
        "worker:0 → worker:1",
        "worker:1 → worker:0",
    )
    assert simulated.heading.startswith("simulated")
    assert measured.heading.startswith("measured")
    assert simulated.end_ns == measured.end_ns


def test_a_device_on_which_nothing_runs_has_an_empty_lane() -> None:
    analysis = sample_analysis.sample()
    simulated, _ = candidate_lanes(analysis, analysis.candidates[0], pixels=1_000)
    assert simulated.bars["worker:1"] == ()
    assert simulated.busy_ns["worker:1"] == 0
