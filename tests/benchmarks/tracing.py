"""What the advisor adds to TensorFlow's own trace, and how much of a graph it knows.

Each model has a child of its own. Times are those of the processor (all threads), which other
work on the machine changes little. *Ours* is everything that `advisor trace` does after
TensorFlow's trace and beside TensorFlow's inlining pass, up to handing the graph to the command.

Sizes of the samples are `small` and `full`; a path to any model file works too.
"""

import argparse
import tempfile
from pathlib import Path

from big_models import BIG_MODELS, write_big_model
from model_tracing import SAMPLES, called

from placement_advisor.processes.calls import RemoteModule
from placement_advisor.processes.children import Child, preload

traced_costs = RemoteModule("traced_costs")

_SAMPLE_NAMES = ("deepconn", "resnet50", "transformer", "dlrm")
_NAMES = (*(f"{name}-{size}" for name in _SAMPLE_NAMES for size in ("small", "full")), *BIG_MODELS)
_COLUMNS = (
    f"{'model':<20}{'ops':>8}{'edges':>8}{'trace':>8}{'inline':>8}{'ours':>7}{'share':>7}"
    f"{'on top':>9}{'bytes':>8}{'layers':>8}{'of all':>8}{'flops':>8}"
)


def main():
    """Measure the models named on the command line, all without a name."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    words = f"a path or one of {', '.join(_NAMES)}"
    parser.add_argument("models", nargs="*", metavar="MODEL", help=words)
    models = parser.parse_args().models or _NAMES
    preload()
    found = {}
    print(_COLUMNS)
    with tempfile.TemporaryDirectory() as scratch:
        for model in models:
            found[model] = costs = _measured(model, Path(scratch))
            print(_row(model, costs), flush=True)
    print("\nOurs, split up (CPU seconds)")
    for model, costs in found.items():
        parts = "  ".join(f"{part} {cpu_s:.2f}" for part, cpu_s in costs["own_cpu_s"].items())
        print(f"{Path(model).stem:<20}{parts}")


def _measured(model, scratch):
    path, size = Path(model), None
    if model in BIG_MODELS:
        path = write_big_model(model, scratch)
    elif model in _NAMES:
        name, _, size = model.rpartition("-")
        path = SAMPLES / f"{name}.py"
    with Child(path.stem) as child:
        return called(child, traced_costs.measure, str(path), size)


def _row(model, costs):
    inlining_s, own_s = costs["inlining_cpu_s"], sum(costs["own_cpu_s"].values())
    on_top_bytes = costs["peak_bytes"] - costs["resident_after_trace_bytes"]
    shares = (
        "edge_bytes_known_share",
        "computing_ops_with_layer_share",
        "ops_with_layer_share",
        "computing_ops_with_flops_share",
    )
    return (
        f"{Path(model).stem:<20}{costs['ops']:>8}{costs['edges']:>8}{costs['trace_cpu_s']:>8.2f}"
        f"{'–' if inlining_s is None else f'{inlining_s:.2f}':>8}{own_s:>7.2f}"
        f"{own_s / costs['trace_cpu_s']:>7.1%}{on_top_bytes / 1e6:>6.0f} MB"
        + "".join(f"{costs[share]:>8.2%}" for share in shares)
    )


if __name__ == "__main__":
    main()
