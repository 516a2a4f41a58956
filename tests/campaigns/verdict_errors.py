"""How often a verdict is wrong, and how soon it is right: simulated races with recorded noise.

    make campaign-verdict-errors

A case is a true ratio, a number of candidates, a kind of noise and a part of the trials. In each
trial the package's own `Trial` runs rounds on a bench that answers with drawn step times, until it
stops; what its comparisons then say together is the verdict, as in an analysis. Where one candidate
differs from the others, these take a fifth longer than `single`. Candidates that join do so after
the rounds at which an analysis looks for them.

Noise:

- *at rest*: `rounds.jsonl`, the same placement timed beside seven copies of itself on this testbed.
  Blocks of rounds are drawn from one model with all their turns, so that what comes and goes, and
  what is common to a round, stays.
- *busy*: `rounds_busy.jsonl`, the same while other work ran beside it.
- *drawn*: tails of a t distribution with 3 degrees of freedom, 8 % between rounds, a tenth of which
  is carried over to the next round (the recorded copies' ratios show no more); the machine's speed
  walks at random.
- *sticky*: the same with three tenths carried over, more than what is claimed allows for.
"""

import json
import random
from functools import cache
from itertools import accumulate, product
from math import exp, log
from pathlib import Path
from statistics import median
from types import SimpleNamespace

from campaign import run_campaign
from tables import table_head, table_row

from placement_advisor.analysis.runs import rounds_to_refine_after
from placement_advisor.defaults import BASELINE, MAX_ROUNDS, WORTHWHILE_RATIO
from placement_advisor.graph.placement import Placement
from placement_advisor.measurement.measurement import Verdict, overall_verdict
from placement_advisor.testbed.benchmark import Benchmark, SilentProgress, time_in_rounds
from placement_advisor.tf.answers import Prepared

RECORDED = {"at rest": "rounds.jsonl", "busy": "rounds_busy.jsonl"}
RATIOS = (0.85, 0.9, 0.97, 1.0, 1.05, 1.15)
# How many candidates there are, how many of them have the true ratio, and how many join later.
FIELDS = ((1, 1, 0), (7, 7, 0), (7, 1, 0), (5, 5, 2))
NOISES = (*RECORDED, "drawn", "sticky")
TRIALS, PARTS = 250, 4
# What the other candidates take, where they differ.
_OTHERS = 1.2
# What is carried over from round to round where noise is drawn.
_CARRIED = {"drawn": 0.1, "sticky": 0.3}
_BLOCK = 10
_STEP_NS = 20_000_000


def cases():
    return [
        f"{noise} noise, ratio {ratio:g}, {alike} of {candidates} candidates"
        f"{f' and {joining} that join' if joining else ''}, part {part}"
        for noise, ratio, (candidates, alike, joining), part in product(
            NOISES, RATIOS, FIELDS, range(PARTS)
        )
        if alike == candidates or ratio < 1
    ]


def examine(case, trials=TRIALS):
    """Return how the trials of a case came out."""
    noise, ratio_text, field, part = case.split(", ")
    noise, ratio = noise.removesuffix(" noise"), float(ratio_text.split()[1])
    alike, _, candidates, *joins = field.split()
    joining = int(joins[2]) if len(joins) > 1 else 0
    others = int(candidates) - int(alike)
    chance = random.Random(case)
    ratios = [ratio] * int(alike) + [_OTHERS] * others + [ratio] * joining
    drawn = [_drawn_trial(noise, ratios, chance) for _ in range(trials)]
    verdicts, rounds = zip(*(_raced(turns, joining) for turns in drawn), strict=True)
    right = None
    if ratio != WORTHWHILE_RATIO:
        right = Verdict.FASTER if ratio < WORTHWHILE_RATIO else Verdict.SLOWER
    return {
        "setting": [noise, ratio, int(candidates), int(alike), joining],
        "part": part,
        "trials": trials,
        "wrong": sum(verdict not in (right, Verdict.INCONCLUSIVE) for verdict in verdicts),
        "right": verdicts.count(right),
        "rounds": sum(rounds),
    }


def table(results):
    rows = [table_head("noise | true ratio | candidates | wrong | right | rounds")]
    for setting in dict.fromkeys(tuple(result["setting"]) for result in results):
        parts = [result for result in results if tuple(result["setting"]) == setting]
        trials, wrong, right, rounds = (
            sum(part[key] for part in parts) for key in ("trials", "wrong", "right", "rounds")
        )
        noise, ratio, candidates, alike, joining = setting
        field = str(candidates) if alike == candidates else f"{candidates}, {alike} of them so"
        field += f", {joining} join" if joining else ""
        told = "–" if ratio == WORTHWHILE_RATIO else f"{right / trials:.1%}"
        shares = f"{wrong / trials:.1%}", told, f"{rounds / trials:.1f}"
        rows.append(table_row(noise, f"{ratio:g}", field, *shares))
    rows += ["", f"{PARTS * TRIALS} trials of each; at 0.97 any firm verdict is wrong."]
    return "\n".join(rows)


def _bench(turns):
    """Return what answers each turn with the next of the step times that were drawn."""
    left = iter(turns)
    return SimpleNamespace(
        prepare=lambda label, device_of, program: Prepared(moved_ops=(), crossings=()),
        verify=lambda label, steps: None,
        run_steps=lambda label, batch, steps: [next(left)] * steps,
    )


def _raced(turns, joining):
    """Return the verdict on what took these turns, the baseline first, and after which round.

    The last of them are ``joining``, one after each look.
    """
    up = SimpleNamespace(up=True)  # Each turn has a bench of its own.
    trial = Benchmark(testbed=up, steps=1, watcher=SilentProgress(), joining=joining)
    waiting = list(enumerate(turns))

    def enter(done):
        number, each = waiting.pop(0)
        label = f"candidate-{number}" if number else BASELINE
        placement = Placement(label=label, family=label, device_of={}, rationale="")
        # One to warm up, before those of the rounds to come.
        trial.enter(placement, bench=_bench([each[0], *each[done:]]))

    def end_round(number):
        if number + 1 in rounds_to_refine_after(None, joining):
            enter(number + 1)

    while len(waiting) > joining:
        enter(0)
    time_in_rounds(trial, None, end_round)
    return overall_verdict(trial.comparisons().values()), len(trial.entries[BASELINE].rounds)


def _drawn_trial(noise, ratios, chance):
    """Return the step times of all turns, the baseline's first."""
    draw = _drawn if noise in _CARRIED else _recorded
    logs = draw(len(ratios), noise, chance)
    return [
        [round(_STEP_NS * ratio * exp(deviation)) for deviation in turns]
        for ratio, turns in zip([1.0, *ratios], logs, strict=True)
    ]


def _recorded(candidates, noise, chance):
    """Return deviations of turns, the baseline's first; each one's median ratio to it is 1."""
    turns = chance.choice(_recordings(RECORDED[noise]))
    baseline, *others = chance.sample(turns, candidates + 1)
    rounds = []
    while len(rounds) < MAX_ROUNDS:
        start = chance.randrange(len(baseline))
        rounds += [(start + i) % len(baseline) for i in range(_BLOCK)]
    found = [[baseline[i] for i in rounds]]
    for each in others:
        middle = median(ours - theirs for ours, theirs in zip(each, baseline, strict=True))
        found.append([each[i] - middle for i in rounds])
    return found


@cache
def _recordings(name):
    found = []
    for line in Path(__file__).with_name(name).read_text().splitlines():
        turns = json.loads(line).get("turn_us", {})
        copies = [times for label, times in turns.items() if label != "towers"]
        if copies:
            found.append([[log(time / median(times)) for time in times] for times in copies])
    return tuple(found)


def _drawn(candidates, noise, chance):
    """Return deviations of turns, the baseline's first."""
    share = _CARRIED[noise]
    machine = list(accumulate(chance.gauss(0, 0.02) for _ in range(MAX_ROUNDS)))
    found = []
    for _ in range(candidates + 1):
        carried, own = 0.0, []
        for there in machine:
            # A t variate of 3 degrees of freedom has a standard deviation of sqrt(3); two turns
            # make a ratio.
            tail = chance.gauss(0, 1) / (chance.gammavariate(1.5, 2) / 3) ** 0.5 / 3**0.5
            carried = share * carried + (1 - share**2) ** 0.5 * tail
            own.append(there + 0.08 / 2**0.5 * carried)
        found.append(own)
    return found


if __name__ == "__main__":
    run_campaign("verdict_errors", cases(), examine, table)
