from __future__ import annotations

from placement_advisor.measurement.measurement import InputTiming


def test_the_rate_is_that_of_all_batches_since_prefetched_ones_come_in_bursts():
    # Two batches wait in a buffer, the third takes 29 ms: 3 batches of 10 samples in 30 ms.
    timing = InputTiming(batch_ns=(500_000, 500_000, 29_000_000), transformations=())
    assert timing.samples_per_s(10) == 1_000
