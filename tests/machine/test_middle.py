from dataclasses import dataclass

from placement_advisor.tf.run.calibration import middle


@dataclass(frozen=True, kw_only=True)
class Timing:
    time_ns: int
    share: float
    core_ns: int | None = None
    links: tuple[int, ...] = ()


def test_the_middle_is_taken_number_by_number_whole_if_they_are_and_of_what_is_known():
    passes = [Timing(time_ns=time_ns, share=1 / time_ns) for time_ns in (4, 100, 5)]
    assert middle(passes) == Timing(time_ns=5, share=1 / 5)
    assert middle([Timing(time_ns=4, share=1.0), Timing(time_ns=7, share=2.0)]) == Timing(
        time_ns=6, share=1.5
    )
    passes = [Timing(time_ns=1, share=1.0, core_ns=core_ns) for core_ns in (None, 8, None)]
    assert middle(passes).core_ns == 8
    assert middle(passes[:1]).core_ns is None
    passes = [{"a": Timing(time_ns=n, share=0.0, links=(n, 10 * n))} for n in (1, 3, 2)]
    assert middle(passes) == {"a": Timing(time_ns=2, share=0.0, links=(2, 20))}
