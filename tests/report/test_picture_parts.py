"""Bars and names as pictures draw them."""

from __future__ import annotations

from dataclasses import replace

import pytest
import sample_analysis
from hypothesis import given
from hypothesis import strategies as st

from placement_advisor.measurement.measurement import Span
from placement_advisor.report.pictures.canvas import drawable, text_width_in, told_apart
from placement_advisor.report.pictures.timeline_plot import Bar, busy_ns, merge, rows_of, steps_of


def _span(start_ns: int, end_ns: int, name: str = "op", *, is_copy: bool = False) -> Span:
    return Span(lane="GPU:0", name=name, start_ns=start_ns, end_ns=end_ns, is_copy=is_copy)


def _bar(start_ns: int, end_ns: int, name: str = "", busy_ns: int | None = None) -> Bar:
    busy_ns = end_ns - start_ns if busy_ns is None else busy_ns
    return Bar(name=name, start_ns=start_ns, end_ns=end_ns, busy_ns=busy_ns)


spans = st.lists(
    st.tuples(st.integers(0, 1_000), st.integers(0, 100)).map(
        lambda drawn: _span(drawn[0], drawn[0] + drawn[1])
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
        _bar(0, 20, busy_ns=17),
        _bar(20, 80, "Conv2D"),
        _bar(80, 200, "MatMul"),
        _bar(230, 232, "Relu"),
    )


@given(spans)
def test_merging_neither_hides_nor_invents_more_than_the_gaps_of_a_pixel(drawn: list[Span]) -> None:
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


def test_thousands_of_ops_become_fewer_bars_than_pixels() -> None:
    analysis = sample_analysis.four_devices()
    for step in steps_of(analysis.candidates[0]):
        for device in analysis.testbed.cluster.device_names():
            for spans in (step.computing(device), step.copies_to(device)):
                assert min(1, len(spans)) <= len(merge(spans, step.end_ns / 300)) <= 300


def test_rows_are_devices_idle_ones_too_then_hosts_and_a_step_ends_with_the_last_in_it() -> None:
    analysis = sample_analysis.sample()
    single, towers, _ = (steps_of(candidate) for candidate in analysis.candidates)
    names = analysis.testbed.cluster.device_names()
    assert rows_of(names, single)["worker:1"] == 0
    to_host = Span(lane="worker:0 → host", name="x", start_ns=0, end_ns=40_000_000, is_copy=True)
    late = replace(towers[0], spans=(to_host,))
    assert rows_of(names, [late]) == {"worker:0": 0, "worker:1": 0, "host": 40_000_000}
    assert (towers[0].end_ns, late.end_ns) == (towers[0].step_ns, 40_000_000)


WORDS = [
    f"{layer}_dropout" for layer in ("encoder_1_forward", "encoder_1_self", "decoder_1_forward")
]


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
def test_a_name_is_as_short_as_it_has_to_be(
    names: list[str], width: float, short: list[str]
) -> None:
    assert list(told_apart(names, 9, width).values())[: len(short)] == short


def test_a_long_name_keeps_what_tells_it_from_the_others() -> None:
    told = [(f"layer_{i}", f"{part}/") for i in (3, 4) for part in "qk"]
    names = [f"encoder/{layer}/attention/output/{part}projection" for layer, part in told]
    for words, short in zip(told, told_apart(names, 9, 1.6).values(), strict=True):
        assert all(word in short for word in words)
        assert text_width_in(short, 9) <= 1.6


def test_a_word_is_kept_that_is_frequent_but_parts_the_two_that_are_alike() -> None:
    frequent = [f"block_{i}_attention/{part}" for i in (1, 2) for part in ("query", "key", "value")]
    alike = [f"block_{i}_attention/attention_output" for i in (1, 2)]
    short = told_apart([*frequent, *alike], 9, 1.5)
    assert [short[name] for name in alike] == ["block_1_…output", "block_2_…output"]


def test_what_the_font_lacks_is_a_question_mark_and_a_dollar_is_a_dollar() -> None:
    assert drawable("模 $x$ {") == "? $x$ {"


@given(st.lists(st.text("ab1_/W()模 ", min_size=1, max_size=40), max_size=8))
def test_any_names_fit_and_are_told_apart(names: list[str]) -> None:
    short = told_apart(names, 9, 0.8)
    assert set(short) == set(names)
    assert len(set(short.values())) == len(set(names))
    assert all(text_width_in(text, 9) <= 0.8 for text in short.values())
