"""How long graphs of the size of real models take to make, save, load and look at.

Run by ``make bench``. Each size has a process of its own, so that its memory is its own. TensorFlow
is not imported. The second time is that of the processor, which other work on the machine changes
less.
"""

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from op_graphs import large

from placement_advisor.graph import layer_structure
from placement_advisor.graph.layer_view import layer_view
from placement_advisor.graph.op_graph import OpGraph

# Ops and edges of NASNetLarge and of an unrolled LSTM, training.
SIZES = ((65_000, 150_000), (210_000, 500_000))


def timed(label, work):
    """Run the work and print its time and the peak of memory so far."""
    start, cpu_start = time.perf_counter(), time.process_time()
    done = work()
    wall_s, cpu_s = time.perf_counter() - start, time.process_time() - cpu_start
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1_000
    print(f"  {label:<22}{wall_s:6.2f} s {cpu_s:6.2f} s   peak {peak_mb:5} MB", flush=True)
    return done


def measure(ops, edges):
    made = large(ops, edges)
    print(f"{len(made[0]):,} ops, {len(made[1]):,} edges")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "graph.json.gz"
        graph = timed("ops and edges → graph", lambda: OpGraph(*made))
        timed("the same, backwards", lambda: OpGraph(reversed(made[0]), reversed(made[1])))
        timed("fingerprint", lambda: graph.fingerprint)
        timed("save", lambda: graph.save(path))
        print(f"  file: {path.stat().st_size / 1e6:.1f} MB")
        timed("load", lambda: OpGraph.load(path))
    view = timed("layer view", lambda: layer_view(graph))
    timed(
        "towers", lambda: layer_structure.towers(view, layer_structure.counting_layers(graph, view))
    )
    timed("parallel branches", lambda: layer_structure.parallel_branches(view))
    timed("repeated blocks", lambda: layer_structure.repeated_blocks(graph, view))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        measure(*map(int, sys.argv[1:]))
    else:
        for size in SIZES:
            words = [sys.executable, "-m", "benchmarks.graph_size", *map(str, size)]
            subprocess.run(words, check=True)
