"""What joins once others have run: is the best split faster for it, and is any model the worse?

    PYTHONPATH=tests python tests/benchmarks/loop_gain.py [SEED…] [--fresh 24]

Random models are analyzed as `advisor analyze` does it, so that up to two candidates join. Of the
rounds in which those ran, every second one chooses: the best split of all, and the best one of
those that would have run without the loop. The rounds in between compare the two, so that nobody is
both chosen and judged by the same steps. Where the loop finds nothing better the two are one split,
and their ratio is 1. What joins takes steps of its own: how many more stands in each row.
"""

from __future__ import annotations

import argparse
import secrets
import statistics
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from random_models import random_model

from placement_advisor.api import analyze
from placement_advisor.measurement.measurement import Interval, compare, paired_ratios

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    Rounds = Sequence[Sequence[int]]

ROUNDS = 24
# As the figures of docs/cost-model.md ask for.
LOST, GAINED, GAINED_SHARE = 1.02, 1 / 1.05, 1 / 5
_BASELINE = "single"
_SEEDS = 10**6


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """The best split with the loop over the best one without, by rounds that chose neither."""

    seed: int
    joined: tuple[str, ...]
    best: str
    best_without: str
    ratio: Interval
    more_steps: float

    @property
    def is_lost(self) -> bool:
        """Whether the loop's best split is surely the slower one."""
        return self.ratio.low > LOST

    @property
    def is_gained(self) -> bool:
        """Whether it is at least 5 % faster."""
        return self.ratio.median <= GAINED


def main() -> None:
    """Print a row for each model, and how many gained and lost."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("seeds", nargs="*", type=int)
    parser.add_argument("--fresh", type=int, default=0, help="draw so many further seeds at random")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = parser.parse_args()
    drawn = [secrets.randbelow(_SEEDS) for _ in range(options.fresh)]
    print(f"seeds drawn: {' '.join(map(str, drawn))}", flush=True)
    gains = []
    for gain in _gains([*options.seeds, *drawn], options.rounds):
        gains.append(gain)
        joined = ", ".join(gain.joined) or "none"
        print(
            f"{gain.seed}: joined {joined} ({gain.more_steps:+.0%} steps); {gain.best} over "
            f"{gain.best_without} {gain.ratio.median:.3f} "
            f"({gain.ratio.low:.3f} to {gain.ratio.high:.3f})",
            flush=True,
        )
    print(
        f"{len(gains)} models that split, {sum(bool(gain.joined) for gain in gains)} with one that "
        f"joined; at least 5 % faster: {sum(gain.is_gained for gain in gains)} (a fifth is asked), "
        f"surely more than 2 % slower: {sum(gain.is_lost for gain in gains)}, median ratio "
        f"{statistics.median(gain.ratio.median for gain in gains):.3f}"
    )


def _gains(seeds: Sequence[int], rounds: int) -> Iterator[Gain]:
    for seed in seeds:
        with tempfile.TemporaryDirectory() as scratch:
            found = _gain(seed, _rounds(seed, rounds, Path(scratch)))
        if found is None:
            print(f"{seed}: no split ran", flush=True)
        else:
            yield found


def _rounds(seed: int, rounds: int, scratch: Path) -> dict[str, Rounds]:
    """Return the step times of what ran, by candidate and round."""
    model = scratch / f"random_{seed}.py"
    model.write_text(random_model(seed).text)
    analysis = analyze(model, output=scratch / "out", rounds=rounds).analysis
    return {
        candidate.name: candidate.measured.rounds
        for candidate in analysis.candidates
        if candidate.measured is not None and candidate.failure is None
    }


def _gain(seed: int, rounds: Mapping[str, Rounds]) -> Gain | None:
    splits = [name for name in rounds if not name.startswith(_BASELINE)]
    joined = [name for name in splits if not rounds[name][0]]
    first = [name for name in splits if name not in joined]
    if not first:
        return None
    together = [n for n in range(len(rounds[_BASELINE])) if all(rounds[name][n] for name in splits)]
    choosing, judging = together[::2], together[1::2]
    best = _best(rounds, splits, choosing)
    best_without = _best(rounds, first, choosing)
    ratio = Interval(median=1.0, low=1.0, high=1.0)
    if best != best_without:
        comparison = compare(
            best_without,
            [rounds[best_without][n] for n in judging],
            [rounds[best][n] for n in judging],
            among=1,
        )
        if comparison is None:
            raise SystemExit(f"{seed}: too few rounds, {len(judging)}")
        ratio = comparison.ratio
    steps = {name: sum(map(len, of_split)) for name, of_split in rounds.items()}
    of_joined = sum(steps[name] for name in joined)
    return Gain(
        seed=seed,
        joined=tuple(joined),
        best=best,
        best_without=best_without,
        ratio=ratio,
        more_steps=of_joined / (sum(steps.values()) - of_joined),
    )


def _best(rounds: Mapping[str, Rounds], names: Collection[str], among: Sequence[int]) -> str:
    """Return the split with the least ratio to the single device in these rounds."""
    alone = [rounds[_BASELINE][n] for n in among]

    def ratio(name: str) -> float:
        return statistics.median(paired_ratios(alone, [rounds[name][n] for n in among]))

    return min(names, key=ratio)


if __name__ == "__main__":
    main()
