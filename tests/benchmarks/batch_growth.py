"""How well a step at another batch is told from traces at four: against a trace there.

Give pairs of a model and batches to hold its growth against, as ``FILE=N,N``. Counted are ops that
come out otherwise than in the trace.

    PYTHONPATH=. python tests/benchmarks/batch_growth.py sample_models/deepconn.py=16,256
"""

from __future__ import annotations

import argparse

from placement_advisor.errors import BatchSplitError
from placement_advisor.processes.children import Child, preload
from placement_advisor.simulator.step_growth import TIMES, StepGrowth
from placement_advisor.tf.calls import splitter, tracer
from placement_advisor.tf.load.model_source import ModelSource

_LIMIT_S = 600.0


def main() -> None:
    """Print a row for each model and batch."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", nargs="+", help="FILE=N,N")
    preload()
    print("| model | traced at | ops | more for each sample | held against | other ops |")
    print("|---|---|---|---|---|---|")
    for model in parser.parse_args().model:
        path, batches = model.rsplit("=", 1)
        _hold(path, [int(batch) for batch in batches.split(",")])


def _hold(path: str, batches: list[int]) -> None:
    growth = None
    for batch in (None, *batches):
        with Child("loader") as child:
            child.call(
                tracer.load_workload,
                ModelSource(path=path, batch_size=batch),
                time_limit_s=_LIMIT_S,
            )
            traced = child.call(tracer.trace_workload, path, None, time_limit_s=_LIMIT_S)
            if batch is None:
                larger = {
                    times: child.call(splitter.trace_repeated, times, time_limit_s=_LIMIT_S)
                    for times in TIMES
                }
        if batch is None:
            try:
                growth = StepGrowth(traced.graph, traced.batch_size, larger)
            except BatchSplitError as error:
                print(f"| {path} | {traced.batch_size} | {len(traced.graph)} | {error} | | |")
                return
            continue
        told = growth.at(batch)
        wrong = sum(one != other for one, other in zip(told.ops, traced.graph.ops, strict=True))
        sizes = ", ".join(str(growth.batch * times) for times in (1, *TIMES))
        print(f"| {path} | {sizes} | {len(told)} | {len(growth.faster)} | {batch} | {wrong} |")


if __name__ == "__main__":
    main()
