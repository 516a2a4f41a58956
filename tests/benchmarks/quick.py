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

_SAMPLES = Path(__file__).parents[2] / "sample_models"
_MODELS = ("mnist_cnn", "deepconn", "transformer")
_TURNS = 3
_LAUNCH = "import sys; sys.argv[0] = 'advisor'; from placement_advisor.cli.app import main; main()"


def _taken(*words):
    """Return the seconds that a command takes, by the clock and of the processor."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([sys.executable, "-c", _LAUNCH, *words], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.perf_counter() - start, spent


def main():
    with tempfile.TemporaryDirectory() as folder:
        graph, out = f"{folder}/graph.json.gz", f"{folder}/out"
        _taken("analyze", str(_SAMPLES / f"{_MODELS[0]}.py"), "--quick", "-q", "-o", out)
        print("| model | trace | analyze --quick | difference, turn by turn | by the clock |")
        print("|---|---|---|---|---|")
        for name in _MODELS:
            model = str(_SAMPLES / f"{name}.py")
            traces, quicks = [], []
            for _ in range(_TURNS):
                traces.append(_taken("trace", model, "-q", "-o", graph))
                quicks.append(_taken("analyze", model, "--quick", "-q", "-o", out))
            turns = [quick[1] - trace[1] for trace, quick in zip(traces, quicks, strict=True)]
            clock = median(quick[0] - trace[0] for trace, quick in zip(traces, quicks, strict=True))
            print(
                f"| {name} | {median(t[1] for t in traces):.1f} s "
                f"| {median(q[1] for q in quicks):.1f} s "
                f"| {', '.join(f'{turn:.1f}' for turn in sorted(turns))} s | {clock:.1f} s |",
                flush=True,
            )


if __name__ == "__main__":
    main()
