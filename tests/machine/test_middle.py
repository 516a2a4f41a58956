from __future__ import annotations

from dataclasses import dataclass

from placement_advisor.tf.run.calibration import middle


@dataclass(frozen=True, kw_only=True)
class Timing:
    time_ns: int
    share: float
    core_ns: int | None = None
    links: tuple[int, ...] = ()


def test_the_middle_is_taken_number_by_number():
    passes = [Timing(time_ns=time_ns, share=1 / time_ns) for time_ns in (4, 100, 5)]
    assert middle(passes) == Timing(time_ns=5, share=1 / 5)


def test_of_two_whole_numbers_it_is_whole_and_of_others_half_way():
    assert middle([Timing(time_ns=4, share=1.0), Timing(time_ns=7, share=2.0)]) == Timing(
        time_ns=6, share=1.5
    )


def test_what_is_not_known_of_some_is_that_of_the_others():
    passes = [Timing(time_ns=1, share=1.0, core_ns=core_ns) for core_ns in (None, 8, None)]
    assert middle(passes).core_ns == 8
    assert middle(passes[:1]).core_ns is None


def test_it_reaches_into_tuples_and_mappings():
    passes = [{"a": Timing(time_ns=n, share=0.0, links=(n, 10 * n))} for n in (1, 3, 2)]
    assert middle(passes) == {"a": Timing(time_ns=2, share=0.0, links=(2, 20))}
