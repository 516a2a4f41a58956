"""One estimate of ResNet50's training step, ours next to Grappler's virtual cluster.

The same traced graph, raw ops, on two V100s, once on one of them and once alternating between both.
Ours charges copies; Grappler does not. The first estimate of a graph makes arrays of it, further
placements do not. Best of some runs.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from model_tracing import traced_model

from placement_advisor.candidates import references
from placement_advisor.candidates.by_layer import NotApplicable
from placement_advisor.cost.roofline import roofline_by_place
from placement_advisor.machine.presets import read_hardware
from placement_advisor.processes.calls import CallFailure, RemoteModule
from placement_advisor.processes.children import Child, preload
from placement_advisor.simulator.simulator import Simulator

grappler_estimates = RemoteModule("grappler_estimates")

_MODEL = Path(__file__).parents[2] / "sample_models" / "resnet50.py"
_REPEATS = 5
_TIME_LIMIT_S = 300.0


def main() -> None:
    """Print a row for each placement."""
    preload()
    with tempfile.TemporaryDirectory() as folder:
        bundle = Path(folder) / "bundle"
        bundle.mkdir()
        traced = traced_model(_MODEL, "train", bundle)
        assert traced is not None
        cluster = read_hardware("2xV100-NVLink")
        costs = roofline_by_place(traced.graph, cluster)
        Simulator(traced.graph, costs, cluster).step_ns(
            references.propose_single(traced.graph, costs, cluster)
        )
        with Child("grappler") as child:
            for family in (references, references):
                placement = family.propose(traced.graph, costs, cluster)
                assert not isinstance(placement, NotApplicable)
                first_s, further_s = [], []
                for _ in range(_REPEATS):
                    start = time.perf_counter()
                    simulator = Simulator(traced.graph, costs, cluster)
                    step_ns = simulator.step_ns(placement)
                    first_s.append(time.perf_counter() - start)
                    start = time.perf_counter()
                    simulator.step_ns(placement)
                    further_s.append(time.perf_counter() - start)
                answer = child.call(
                    grappler_estimates.estimate,
                    str(bundle),
                    dict(placement.device_of),
                    time_limit_s=_TIME_LIMIT_S,
                )
                if isinstance(answer, CallFailure):
                    raise SystemExit(f"{answer.message}\n{answer.output_tail}")
                theirs_s, their_step_s = answer
                print(
                    f"{placement.label:<12} {len(traced.graph):,} ops: "
                    f"ours {min(first_s) * 1e3:.1f} ms the first time, "
                    f"{min(further_s) * 1e3:.2f} ms each further one "
                    f"(step {step_ns / 1e6:.2f} ms); "
                    f"Grappler {theirs_s * 1e3:.0f} ms (step {their_step_s * 1e3:.2f} ms): "
                    f"{theirs_s / min(first_s):.0f}× and {theirs_s / min(further_s):.0f}× as fast",
                    flush=True,
                )


if __name__ == "__main__":
    main()
