"""What `analyze --quick` takes besides import and trace.

Its figures are in docs/reference/figures.md, "A quick analysis".

For each model `advisor trace` and `advisor analyze --quick` take turns, whole commands each, so
that what else the machine does meets both. What a command and all that it starts take of the
processor moves less than the clock. A first analysis, which compiles, is left out.
"""

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from tables import table_head, table_row

_SAMPLES = Path(__file__).parents[2] / "sample_models"
_MODELS = ("mnist_cnn", "deepconn", "transformer")
_TURNS = 3


def _taken(*words):
    """Return the seconds that a command takes, by the clock and of the processor."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    command = [sys.executable, "-m", "placement_advisor.cli.app", *words]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.perf_counter() - start, spent


def main():
    with tempfile.TemporaryDirectory() as folder:
        graph, out = f"{folder}/graph.json.gz", f"{folder}/out"
        _taken("analyze", str(_SAMPLES / f"{_MODELS[0]}.py"), "--quick", "-q", "-o", out)
        names = "trace | analyze --quick | difference, turn by turn | by the clock"
        print(table_head(f"model | {names}"))
        for name in _MODELS:
            model = str(_SAMPLES / f"{name}.py")
            trace = "trace", model, "-q", "-o", graph
            quick = "analyze", model, "--quick", "-q", "-o", out
            pairs = [(_taken(*trace), _taken(*quick)) for _ in range(_TURNS)]
            of_each = zip(*pairs, strict=True)
            medians = (f"{median(spent for _, spent in each):.1f} s" for each in of_each)
            turns = ", ".join(f"{turn:.1f}" for turn in sorted(q[1] - t[1] for t, q in pairs))
            clock = f"{median(q[0] - t[0] for t, q in pairs):.1f} s"
            print(table_row(name, *medians, f"{turns} s", clock), flush=True)


if __name__ == "__main__":
    main()
