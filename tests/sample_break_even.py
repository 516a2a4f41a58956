"""A break-even written by hand: one axis of each outcome, on the sample analysis."""

from dataclasses import replace

import sample_analysis

from placement_advisor.measurement.measurement import InputTiming
from placement_advisor.simulator.break_even import (
    Axis,
    BestSplit,
    BreakEven,
    BreakEvenOutcome,
    Sweep,
    SweepPoint,
)


def swept(value, ratio, split="towers"):
    return SweepPoint(value=value, best=BestSplit(split=split, ratio=ratio))


CROSSING = Sweep(
    axis=Axis.BANDWIDTH,
    outcome=BreakEvenOutcome.CROSSES,
    here=swept(1_500_000_000, 1.3),
    points=(
        swept(1_500_000, 40.0, "alternating"),
        swept(150_000_000, 4.2),
        swept(1_500_000_000, 1.3),
        swept(150_000_000_000, 0.6),
    ),
    wins_from=swept(38_000_000_000, 0.969),
    loses_at=swept(37_900_000_000, 0.971),
    changes=1,
)
NOWHERE = Sweep(
    axis=Axis.LATENCY,
    outcome=BreakEvenOutcome.NOWHERE,
    here=swept(240_000, 1.3),
    points=(swept(240, 1.1), swept(240_000, 1.3), swept(240_000_000, 80.0, "alternating")),
    wins_from=None,
    loses_at=None,
    changes=0,
)
THROUGHOUT = Sweep(
    axis=Axis.BATCH,
    outcome=BreakEvenOutcome.THROUGHOUT,
    here=swept(32, 0.9),
    points=(swept(1, 0.8), swept(32, 0.9), swept(2_048, 1.02)),
    wins_from=None,
    loses_at=None,
    changes=1,
)
FOUND = BreakEven(
    baseline="single",
    worthwhile_ratio=0.97,
    free_copies=BestSplit(split="towers", ratio=0.58),
    bandwidth=CROSSING,
    latency=NOWHERE,
    batch=THROUGHOUT,
    corrections={},
)
# 32 samples in 2 ms and in 3 ms: 12,800 a second
TIMING = InputTiming(
    batch_ns=(2_000_000, 3_000_000),
    transformations=("TensorSliceDataset", "BatchDataset", "PrefetchDataset"),
)


def with_break_even():
    return replace(sample_analysis.sample(), break_even=FOUND, input_timing=TIMING)
