"""How far a split and one device, timed in rounds again and again, come out otherwise than before.

    PYTHONPATH=tests:tests/benchmarks:tests/campaigns python tests/benchmarks/again.py SEED...

For each random model scopes are drawn, as in the campaign of followed advice, and the split that
they make is timed against one device: the two alone, with another split beside them, and with five,
four times each. Each time all of them are prepared anew.
"""

from __future__ import annotations

import random
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from statistics import median

from followed_advice import analysed, drawn_scopes
from random_models import random_model

from placement_advisor.analysis.findings.evidence import YOUR_SPLIT
from placement_advisor.analysis.runs import ADVICE_BUDGET_S
from placement_advisor.candidates import references
from placement_advisor.processes.children import preload
from placement_advisor.units import NS_PER_S

_MOST, _TIMES = 6, 4
_NS_PER_MS = NS_PER_S / 1_000


def main() -> None:
    """Time each model's splits, and print each time's medians."""
    preload()
    for seed in map(int, sys.argv[1:]):
        text = random_model(seed, needs={"training"}).text
        with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
            path = Path(folder) / f"random_{seed}.py"
            path.write_text(text)
            model = analysed(path, text, stack)
            graph, draw = model.subject.graph, random.Random(seed)
            alone = references.on_device(graph, model.subject.plan.devices[0].name)
            drawn = (model.evidence(drawn_scopes(graph, draw)).splits for _ in range(_MOST))
            own = [each.placement for splits in drawn for each in splits if each.name == YOUR_SPLIT]
            splits = [replace(each, label=f"own-{i}") for i, each in enumerate(own)]
            for _ in range(_TIMES):
                for beside in (splits[:1], splits[:2], splits):
                    found = model.apparatus.trial.time_apart([*beside, alone], ADVICE_BUDGET_S)
                    steps = [[median(turn) for turn in each.rounds] for each in found]
                    if not steps:
                        continue
                    ratio = median(a / b for a, b in zip(steps[0], steps[-1], strict=True))
                    print(
                        f"{seed}: {len(beside)} splits, split {median(steps[0]) / _NS_PER_MS:.2f} "
                        f"ms, one device {median(steps[-1]) / _NS_PER_MS:.2f} ms, ratio {ratio:.3f}"
                    )


if __name__ == "__main__":
    main()
