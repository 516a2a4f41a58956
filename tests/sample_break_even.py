"""A break-even written by hand: one axis of each outcome, on the sample analysis."""

from dataclasses import replace

import sample_analysis

from placement_advisor.measurement.measurement import InputTiming
from placement_advisor.simulator import break_even


def swept(value, ratio, split="towers"):
    return break_even.SweepPoint(value=value, best=break_even.BestSplit(split=split, ratio=ratio))


CROSSING = break_even.Sweep(
    axis=break_even.Axis.BANDWIDTH,
    outcome=break_even.BreakEvenOutcome.CROSSES,
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
NOWHERE = break_even.Sweep(
    axis=break_even.Axis.LATENCY,
    outcome=break_even.BreakEvenOutcome.NOWHERE,
    here=swept(240_000, 1.3),
    points=(swept(240, 1.1), swept(240_000, 1.3), swept(240_000_000, 80.0, "alternating")),
    wins_from=None,
    loses_at=None,
    changes=0,
)
THROUGHOUT = break_even.Sweep(
    axis=break_even.Axis.BATCH,
    outcome=break_even.BreakEvenOutcome.THROUGHOUT,
    here=swept(32, 0.9),
    points=(swept(1, 0.8), swept(32, 0.9), swept(2_048, 1.02)),
    wins_from=None,
    loses_at=None,
    changes=1,
)
FOUND = break_even.BreakEven(
    baseline="single",
    worthwhile_ratio=0.97,
    free_copies=break_even.BestSplit(split="towers", ratio=0.58),
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
