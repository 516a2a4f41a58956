"""How many makespans of random DAGs are proved least, how fast, and how far off the fast ways are.

Seeded DAGs of 10, 20 and 30 ops, at communication-to-computation ratios (mean copy over mean op) of
0.1, 1 and 10, on 2, 4, 8 and 16 devices: half of them layered, each op reading from up to three of
the layer before, half with an edge between any two ops with equal probability (Erdos and Renyi). Op
times are whole, evenly from 1 to 100; copies vary evenly from 0.2 to 1.8 of their mean. The best
known is the best of all ways and of a longer exact search of what is not proved.
"""

from __future__ import annotations

import argparse
import math
import random
import time
from collections import defaultdict
from dataclasses import dataclass
from statistics import mean
from typing import TYPE_CHECKING

from placement_advisor.solvers.effort import Effort
from placement_advisor.solvers.makespan.etf import etf
from placement_advisor.solvers.makespan.heft import heft
from placement_advisor.solvers.makespan.makespan import Makespan, fast_timetable, least_makespan
from placement_advisor.solvers.makespan.msct import msct
from placement_advisor.solvers.problem import Pool, Problem

if TYPE_CHECKING:
    from collections.abc import Iterator

_OPS = (10, 20, 30)
_RATIOS = (0.1, 1.0, 10.0)
_DEVICES = (2, 4, 8, 16)
_SHAPES = ("layered", "random")
# Of the fast heuristic, in seconds of one core, about: what `least_makespan` gives it on 30 ops.
_FAST_UNITS = 0.09
_LONGER_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    shape: str
    ops: int
    ratio: float
    devices: int
    number: int

    def problem(self) -> Problem:
        rng = random.Random(f"{self.shape} {self.ops} {self.ratio} {self.devices} {self.number}")
        work = [float(rng.randint(1, 100)) for _ in range(self.ops)]
        edges = tuple((_layered if self.shape == "layered" else _erdos_renyi)(rng, self.ops))
        each = mean(work) * self.ratio
        devices = tuple(f"device:{number}" for number in range(self.devices))
        return Problem(
            ops=tuple(f"op:{number}" for number in range(self.ops)),
            edges=edges,
            copy_time=tuple(float(max(1, round(each * rng.uniform(0.2, 1.8)))) for _ in work),
            size_bytes=(0,) * self.ops,
            backward=frozenset(),
            groups=tuple((op,) for op in range(self.ops)),
            pools=(Pool(devices=devices, work=tuple(work)),),
        )


def _layered(rng: random.Random, ops: int) -> Iterator[tuple[int, int]]:
    width = rng.randint(2, 6)
    above: list[int] = []
    left = list(range(ops))
    while left:
        count = rng.randint(1, 2 * width - 1)
        layer, left = left[:count], left[count:]
        for op in layer:
            feeders = rng.sample(above, min(len(above), rng.randint(1, 3)))
            yield from ((feeder, op) for feeder in sorted(feeders))
        above = layer


def _erdos_renyi(rng: random.Random, ops: int) -> Iterator[tuple[int, int]]:
    share = rng.choice([1.5, 3.0, 5.0]) / ops
    for op in range(ops):
        yield from ((feeder, op) for feeder in range(op) if rng.random() < share)


def main() -> None:
    """Print what was proved, by size, ratio and devices, and all that was not."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--each", type=int, default=4, help="DAGs of each kind")
    parser.add_argument("--first", type=int, default=0, help="number of the first of them")
    parser.add_argument("--clock", action="store_true", help="stop by the clock, after a second")
    options = parser.parse_args()
    effort = Effort(units=1.0, time_limit_s=1.0 if options.clock else None)
    cases = [
        _Case(shape=shape, ops=ops, ratio=ratio, devices=devices, number=number)
        for ops in _OPS
        for ratio in _RATIOS
        for devices in _DEVICES
        for shape in _SHAPES
        for number in range(options.first, options.first + options.each)
    ]
    least_makespan(cases[0].problem(), effort)
    fast_timetable(cases[0].problem(), units=_FAST_UNITS, seed=0)  # Compiles.
    ratios: dict[str, list[float]] = defaultdict(list)
    proved: dict[tuple[int, float, int], list[bool]] = defaultdict(list)
    wall_s, core_s, fast_s, alone = [], [], [], 0
    for case in cases:
        problem = case.problem()
        wall, core = time.perf_counter(), time.process_time()
        found = least_makespan(problem, effort)
        wall, core = time.perf_counter() - wall, time.process_time() - core
        # Infinite where nothing was proved.
        wall_s.append(wall if found.is_proven else math.inf)
        core_s.append(core if found.is_proven else math.inf)
        proved[case.ops, case.ratio, case.devices].append(found.is_proven)
        alone += found.is_proven and found.objective_value == sum(problem.pools[0].work)
        if not found.is_proven:
            gap = 1 - found.lower_bound / found.objective_value
            print(
                f"{case}: {found.objective_value:.0f}, gap {gap:.1%}, {wall:.2f} s, core {core:.2f}"
            )
        fast_s.append(_compare(problem, found, ratios))
    for (ops, ratio, devices), each in proved.items():
        print(f"{ops} ops, ratio {ratio}, {devices} devices: {sum(each)} of {len(each)}")
    print(f"proved {sum(map(sum, proved.values()))} of {len(cases)}; one device best: {alone}")
    for clock, times in (("the clock", wall_s), ("its core", core_s)):
        quick = [spent for spent in times if spent <= 1.0]
        print(f"in a second of {clock}: {len(quick)}, on average {mean(quick):.3f} s")
    print(f"lists and local search: {mean(fast_s):.3f} s, {max(fast_s):.2f} s at most")
    for way, values in ratios.items():
        print(f"{way}: {mean(values) - 1:.2%} above the best known, {max(values) - 1:.1%} at most")


def _compare(problem: Problem, found: Makespan, ratios: dict[str, list[float]]) -> float:
    """Add what each fast way needs, in multiples of the best known; return the heuristic's time."""
    start = time.process_time()
    fast = fast_timetable(problem, units=_FAST_UNITS, seed=0)
    spent = time.process_time() - start
    ways = {place.__name__: place(problem).makespan for place in (heft, etf, msct)}
    ways["one device"] = sum(problem.pools[0].work)
    ways["the best of these"] = min(ways.values())
    ways["lists and local search"] = fast.makespan
    if not found.is_proven:
        found = least_makespan(problem, Effort(units=1e6, time_limit_s=_LONGER_S))
    best = min(found.objective_value, *ways.values())
    for way, value in ways.items():
        ratios[way].append(value / best)
    return spent


if __name__ == "__main__":
    main()
