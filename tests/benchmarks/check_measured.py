"""How often `advisor check --measure` fails: an unchanged placement never, a slower one always.

A placement of a sample model is locked; then it is checked as it is, and with another one in its
place, many times each, with a load generator beside every other repeat. Predicted times are left
out of it: only what was measured counts. For each kind of repeat: how often it failed, passed or
was inconclusive, and the median ratio.

    python tests/benchmarks/check_measured.py [--repeats 30] [--model deepconn]
        [--locked towers] [--slower towers-forward-only]
"""

import argparse
import multiprocessing
import os
import tempfile
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from placement_advisor.analysis.target_costs import read_target_hardware
from placement_advisor.candidates.families import FAMILIES
from placement_advisor.check.check_measured import measure
from placement_advisor.cost.roofline import roofline_by_place
from placement_advisor.graph.placement import Placement
from placement_advisor.processes.children import Child, preload
from placement_advisor.testbed.benchmark import SilentProgress
from placement_advisor.tf.calls import tracer
from placement_advisor.tf.load.model_source import ModelSource

SAMPLES = Path(__file__).parents[2] / "sample_models"
TOLERANCE = 0.05


def burn():
    while True:
        sum(range(100_000))


@contextmanager
def load(wanted):
    """Keep one core busy beside what is measured, if wanted."""
    process = multiprocessing.Process(target=burn, daemon=True)
    if wanted:
        process.start()
    try:
        yield
    finally:
        if wanted:
            process.kill()
            process.join()


def outcome(told):
    if told.failure or told.unknown:
        return f"not run: {told.failure or told.unknown}"
    return "failed" if told.is_slower else "inconclusive" if told.is_inconclusive else "passed"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=30)
    parser.add_argument("--model", default="deepconn")
    parser.add_argument("--locked", default="towers")
    parser.add_argument("--slower", default="towers-forward-only")
    asked = parser.parse_args()
    path = str(SAMPLES / f"{asked.model}.py")
    cluster = read_target_hardware("2xV100-NVLink", None).cluster
    with tempfile.TemporaryDirectory() as folder:
        bundle = Path(folder) / "bundle"
        bundle.mkdir()
        preload()
        with Child("loader") as child:
            child.call(tracer.load_workload, ModelSource(path=path))
            graph = child.call(tracer.trace_workload, path, str(bundle)).graph
        costs = roofline_by_place(graph, cluster)
        locked, slower = (
            FAMILIES[name](graph, costs, cluster) for name in (asked.locked, asked.slower)
        )
        assert isinstance(locked, Placement)
        assert isinstance(slower, Placement)
        print(f"{asked.model}, {asked.locked} locked, {os.cpu_count()} cores")
        for what, today in (("unchanged", locked), (asked.slower, slower)):
            counts = {False: Counter(), True: Counter()}
            ratios = []
            for repeat in range(asked.repeats):
                scratch = Path(folder) / f"{what}-{repeat}"
                scratch.mkdir()
                loaded = bool(repeat % 2)
                with load(loaded):
                    told = measure(
                        graph, today, locked, cluster, bundle, scratch, TOLERANCE, SilentProgress()
                    )
                counts[loaded][outcome(told)] += 1
                if told.first is not None:
                    ratios.append(told.first.ratio.median)
                print(f"  {what} {repeat}: {outcome(told)}: {told.first}", flush=True)
            print(
                f"{what}: quiet {dict(counts[False])}, loaded {dict(counts[True])}, "
                f"median ratio {median(ratios):.2f}"
            )


if __name__ == "__main__":
    main()
