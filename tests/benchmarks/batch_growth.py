"""How well one graph tells what grows with the batch: against the same step at another batch size.

Give pairs of graph files (`advisor trace MODEL --batch-size N -o FILE`) with their batch sizes,
each as ``FILE=N``. The first of a pair is scaled to the batch of the second by `batch_parts`.
Counted are the tensors whose size comes out wrong, and the bytes by which they are.
"""

from __future__ import annotations

import argparse

from placement_advisor.cost.batch_parts import batch_parts
from placement_advisor.graph.op_graph import OpGraph, Role


def main() -> None:
    """Print a row for each pair."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("graph", nargs="+", help="FILE=BATCH, in pairs")
    print("| from | to | tensors | wrong | bytes that are wrong | flops, predicted over true |")
    print("|---|---|---|---|---|---|")
    graphs = parser.parse_args().graph
    for one, other in zip(graphs[::2], graphs[1::2], strict=True):
        print(_row(*one.rsplit("=", 1), *other.rsplit("=", 1)))


def _row(file: str, batch: str, other_file: str, other_batch: str) -> str:
    graph, truth = OpGraph.load(file), OpGraph.load(other_file)
    factor = int(other_batch) / int(batch)
    parts = batch_parts(graph, int(batch))
    errors, true_bytes, flops, true_flops = [], 0, 0.0, 0
    for op in graph.ops:
        if op.role is Role.CONSTANT or op.name not in truth:
            continue
        other = truth.op(op.name)
        for port, (size, true_size) in enumerate(
            zip(op.output_bytes, other.output_bytes, strict=True)
        ):
            if size is not None and true_size is not None:
                grows = (op.name, port) in parts.tensors
                errors.append(abs(true_size - round(size * (factor if grows else 1))))
                true_bytes += true_size
        if op.flops is not None and other.flops is not None:
            flops += op.flops * (factor if op.name in parts.ops else 1)
            true_flops += other.flops
    wrong = sum(map(bool, errors))
    return (
        f"| {file}, {batch} | {other_batch} | {len(errors):,} | {wrong} | "
        f"{sum(errors) / true_bytes:.2%} | {flops / true_flops:.4f} |"
    )


if __name__ == "__main__":
    main()
