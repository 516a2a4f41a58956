import doctest
from itertools import count
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement_advisor import clock, units
from placement_advisor.clock import Clock


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (units.format_ns(0), "0 ns"),
        (units.format_ns(999.6), "1.00 µs"),
        (units.format_ns(12_340), "12.3 µs"),
        (units.format_ns(9_999_000), "10.0 ms"),
        (units.format_ns(999_999_999), "1.00 s"),
        (units.format_ns(3_600_000_000_000), "3600 s"),
        (units.format_ns(-41_234_000), "-41.2 ms"),
        (units.format_bytes(0), "0 B"),
        (units.format_bytes(999_999), "1.00 MB"),
        (units.format_bytes(2_500_000_000_000), "2.50 TB"),
        (units.format_bytes(5_000, is_floor=True), "≥ 5.00 kB"),
        (units.format_bandwidth(None), "?"),
        (units.format_flops(999_999), "1.00 Mflop"),
        (units.format_flops(2_500_000_000_000), "2.50 Tflop"),
        (units.format_flops(0), "0 flop"),
        (units.format_share(0.0), "0 %"),
        (units.format_share(1.0), "100 %"),
        (units.format_share(None), "?"),
    ],
)
def test_an_amount_has_three_digits_and_the_unit_that_fits(text, expected):
    assert text == expected


@given(st.integers(1, 999_000_000_000))
def test_a_time_reads_back_within_its_three_digits(time_ns):
    number, unit = units.format_ns(time_ns).split()
    read_ns = float(number) * {"ns": 1, "µs": 1e3, "ms": 1e6, "s": 1e9}[unit]
    assert read_ns == pytest.approx(time_ns, rel=0.0051)
    assert 1 <= float(number) < 1_000


def test_the_examples_in_the_docstrings_hold():
    result = doctest.testmod(units)
    assert result.attempted > 0
    assert result.failed == 0


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("14GB", 14_000_000_000),
        ("1.5 gib", 1_610_612_736),
        (" 2 TB ", 2_000_000_000_000),
        ("512", 512),
        ("0 MB", 0),
    ],
)
def test_a_size_is_read_as_people_write_it(text, size_bytes):
    assert units.parse_bytes(text) == size_bytes


@pytest.mark.parametrize("text", ["", "GB", "-1 GB", "1,5 GB", "16 gigs", "1e9", "nan", "16 GB/s"])
def test_what_is_no_size_is_refused(text):
    with pytest.raises(ValueError, match="is no size"):
        units.parse_bytes(text)


@given(st.integers(min_value=1, max_value=10**15))
def test_a_size_that_was_written_is_read_again(size_bytes):
    assert units.parse_bytes(units.format_bytes(size_bytes)) == pytest.approx(size_bytes, rel=0.006)


def test_a_stage_lasts_until_the_next_begins_and_may_go_on_later(monkeypatch):
    readings = iter([100, 107, 110, 150, 151])
    monkeypatch.setattr(clock, "time", SimpleNamespace(perf_counter_ns=lambda: next(readings)))
    timing = Clock("load")
    timing.begin("trace")
    timing.begin("load")
    timing.begin("run")
    # The reading after the last is that of asking: what is under way counts up to now.
    assert timing.timings_ns() == {"load": 7 + 40, "trace": 3, "run": 1}


def test_asking_takes_nothing_away(monkeypatch):
    readings = count()
    monkeypatch.setattr(clock, "time", SimpleNamespace(perf_counter_ns=lambda: next(readings)))
    timing = Clock("load")
    timing.timings_ns()
    timing.begin("run")
    assert timing.timings_ns() == {"load": 2, "run": 1}
