"""How far predictions of recorded models are off, by kind of split.

    PYTHONPATH=tests python tests/benchmarks/recorded_errors.py RECORDING…

Recordings are those of `record_runs`. *Measured* costs are those that one device showed before any
split ran; *assumed* ones are those of ``--no-run``. Beside the errors of the ratio to ``single``
stands how well that repeats: half of what the even rounds and the odd ones are apart. Regret is how
much longer a step of the placement with the least predicted time takes than that with the least
measured one, by the same rounds, one device included. At the end stands where errors come from, by
model: how far the step of one device, by the times that its ops took alone, is off from what it
took in rounds, and what the errors of its splits have in common, their median. Then for all: what
is left of errors without that, and errors of splits against what one device took in rounds.
"""

import argparse
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from record_runs import ELSEWHERE, Recording

from placement_advisor.analysis.target_costs import ASSUMED_UNCERTAINTY, MEASURED_UNCERTAINTY
from placement_advisor.cost.links import assumed_cluster
from placement_advisor.cost.roofline import roofline_by_place
from placement_advisor.defaults import BASELINE
from placement_advisor.simulator.sensitivity import Sensitivity
from placement_advisor.simulator.simulator import Simulator

ALL = "all"


def outcomes(recording):
    """Return the splits of a recording, predicted without any of their runs.

    ``even`` and ``odd`` are the ratios of half of the rounds.
    """
    graph, cluster = recording.traced.graph, recording.costing.cluster
    alone = recording.splits[BASELINE].placement
    costs = recording.costing.costs.everywhere(cluster)
    measured = Sensitivity(Simulator(graph, costs, cluster), alone, MEASURED_UNCERTAINTY)
    stand_ins = assumed_cluster(len(cluster.devices))
    roofline = Simulator(graph, roofline_by_place(graph, stand_ins), stand_ins)
    assumed = Sensitivity(roofline, alone, ASSUMED_UNCERTAINTY)
    return [
        SimpleNamespace(
            model=recording.name,
            family=label,
            measured=recording.ratio(label),
            even=recording.ratio(label, slice(0, None, 2)),
            odd=recording.ratio(label, slice(1, None, 2)),
            by_measured=measured.ratio(split.placement),
            by_assumed=assumed.ratio(split.placement),
        )
        for label, split in recording.splits.items()
        if label not in (BASELINE, ELSEWHERE)
    ]


def single_error(recording):
    """Return how far the step of one device is off, by its own ops, from what it took in rounds."""
    cluster = recording.costing.cluster
    costs = recording.costing.costs.everywhere(cluster)
    alone = recording.splits[BASELINE]
    simulated_ns = Simulator(recording.traced.graph, costs, cluster).step_ns(alone.placement)
    return float(simulated_ns / np.median([step for turn in alone.rounds for step in turn]) - 1)


def errors(of_one_model):
    """Return the errors of a model's splits, as logarithms."""
    return np.log([each.by_measured.ratio / each.measured for each in of_one_model])


def regret(of_one_model):
    """Return what trusting predictions costs, in proportion."""
    measured = [1.0, *(each.measured for each in of_one_model)]
    predicted = [1.0, *(each.by_measured.ratio for each in of_one_model)]
    return measured[int(np.argmin(predicted))] / min(measured) - 1


def _print(found, basis):
    print(f"\nby {basis} costs")
    print(
        f"{'':<14}{'splits':>7}{'median':>8}{'p90':>8}{'signed':>8}{'repeats':>9}{'p90':>7}"
        f"{'in range':>10}{'ends':>7}"
    )
    for family in [*sorted({each.family for each in found}), ALL]:
        of = [each for each in found if family in (ALL, each.family)]
        ratios = [getattr(each, f"by_{basis}") for each in of]
        off = np.array([r.ratio / each.measured - 1 for r, each in zip(ratios, of, strict=True)])
        repeats = np.array([abs(each.odd / each.even - 1) / 2 for each in of])
        inside = [r.low <= each.measured <= r.high for r, each in zip(ratios, of, strict=True)]
        width = np.median([ratio.high / ratio.low for ratio in ratios])
        print(
            f"{family:<14}{len(of):>7}{np.median(abs(off)):>8.1%}{np.quantile(abs(off), 0.9):>8.1%}"
            f"{np.median(off):>+8.1%}{np.median(repeats):>9.1%}{np.quantile(repeats, 0.9):>7.1%}"
            f"{np.mean(inside):>10.0%}{width:>6.2f}×"
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("recordings", type=Path, nargs="+")
    recordings = [Recording.load(path) for path in parser.parse_args().recordings]
    found = [outcomes(recording) for recording in recordings]
    for of_one in found:
        splits = ", ".join(
            f"{each.family} {each.by_measured.ratio:.2f} / {each.measured:.2f}" for each in of_one
        )
        print(f"{of_one[0].model}: predicted / measured {splits}")
    splits = [each for of_one in found for each in of_one]
    _print(splits, "measured")
    _print(splits, "assumed")
    regrets = sorted(regret(of_one) for of_one in found)
    print(f"\nregret: {np.median(regrets):.1%} (median), {regrets[-1]:.1%} at most")
    alone = [single_error(recording) for recording in recordings]
    left, against_rounds = [], []
    for recording, own, of_one in zip(recordings, alone, found, strict=True):
        off = errors(of_one)
        common = np.median(off)
        left += list(abs(np.expm1(off - common)))
        against_rounds += list(abs(np.expm1(off + np.log1p(own))))
        print(f"{recording.name}: one device {own:+.1%}, splits {np.expm1(common):+.1%} in common")
    print(
        f"one device {np.median(np.abs(alone)):.1%} off (median), {np.median(alone):+.1%} signed; "
        f"splits without what they have in common {np.median(left):.1%}, "
        f"against what one device took in rounds {np.median(against_rounds):.1%}"
    )


if __name__ == "__main__":
    main()
