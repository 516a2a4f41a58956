"""What PA302 says of a larger batch, against steps at that batch.

    PYTHONPATH=. python tests/benchmarks/larger_batch.py sample_models/deepconn.py

The line is fitted to steps at a batch of 32, a half and a quarter of it, as `advisor analyze` does,
and all of them are timed in turns with steps at larger batches. Printed is the time of a sample at
these, as the line has it and as measured, over that at 32.
"""

from __future__ import annotations

import argparse
from statistics import median

from placement_advisor.cost.batch import Throughput, fit_batch_time
from placement_advisor.processes.calls import CallFailure
from placement_advisor.tf.load.model_source import ModelSource
from placement_advisor.tf.run import native_step
from placement_advisor.tf.trace import tracer
from placement_advisor.units import NS_PER_S

_BATCH, _PARTS, _TIMES = 32, (1, 2, 4), (2, 4, 8)
_ROUNDS, _STEPS = 5, 3


def main() -> None:
    """Print a line for each batch."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model")
    path = parser.parse_args().model
    tracer.load_workload(ModelSource(path=path, mode="train", batch_size=max(_TIMES) * _BATCH))
    tracer.trace_workload(path, None)
    small = [_BATCH // part for part in _PARTS]
    large = [_BATCH * times for times in _TIMES]
    steps = native_step.run_at_batches((*small, *large), _ROUNDS, _STEPS)
    if isinstance(steps, CallFailure):
        raise SystemExit(steps.message)
    step_ns = {size: median(times) for size, times in steps.items()}
    points = [Throughput(batch=n, samples_per_s=n / step_ns[n] * NS_PER_S) for n in small]
    line = fit_batch_time(points)
    off = max(abs(line.step_ns(n) / step_ns[n] - 1) for n in small)
    print(f"{path}: the line is off its own points by {off:.0%} at most")
    of_sample_ns = step_ns[_BATCH] / _BATCH
    for batch in large:
        said, is_so = (
            step / batch / of_sample_ns for step in (line.step_ns(batch), step_ns[batch])
        )
        print(f"    batch {batch}: {said:.2f}, measured {is_so:.2f}, {said / is_so - 1:+.0%}")


if __name__ == "__main__":
    main()
