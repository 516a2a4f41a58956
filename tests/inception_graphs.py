"""Layer graphs with branches in the format of msr-fiddle, made up: for searches nobody tuned for.

A stem, then blocks as in Inception: three to five chains of layers from one tensor to a
concatenation, some with a branch of their own, and a block that halves the size now and then. Times
follow from sizes with some spread; a copy costs a share of what the layer takes that makes it.
"""

from __future__ import annotations

import random
from typing import Any

from fiddle_documents import document, edge, node

# Of a layer's time, about, as in ResNet50 of the benchmark: its copies are cheap against its ops.
_COPY_SHARE = (0.01, 0.15)


def inception_document(blocks: int, *, accelerators: int = 6, seed: int = 0) -> dict[str, Any]:
    """Return an inference graph of about twenty layers for each block."""
    rng = random.Random(f"inception {blocks} {seed}")
    nodes: list[dict[str, Any]] = []
    rows: list[dict[str, Any]] = []
    copy_of: list[float] = []

    def layer(read: list[int], work: float) -> int:
        work *= rng.lognormvariate(0.0, 0.5)
        number = len(nodes)
        nodes.append(node(number, work=work, cpuLatency=23 * work, size=rng.uniform(1e5, 4e7)))
        copy_of.append(work * rng.uniform(*_COPY_SHARE))
        rows.extend(edge(feeder, number, copy_of[feeder]) for feeder in read)
        return number

    def convolution(read: int, work: float) -> int:
        made = layer([read], work)
        return layer([layer([made], 0.3 * work)], 0.1 * work)

    last = layer([], 0.0)
    for work in (6.0, 12.0, 9.0):
        last = convolution(last, work)
    scale = 3.0
    for block in range(blocks):
        ends = []
        for _ in range(rng.randint(3, 5)):
            at = last
            for _ in range(rng.randint(1, 3)):
                at = convolution(at, scale)
            ends += [convolution(at, scale), convolution(at, scale)] if rng.random() < 0.2 else [at]
        last = layer(ends, 0.1 * scale)
        if block % 3 == 2:
            scale *= 0.7
    layer([convolution(last, scale)], 0.2)
    total = sum(each["size"] for each in nodes)
    return document(
        nodes, rows, maxSizePerFPGA=4 * total / accelerators, maxFPGAs=accelerators, maxCPUs=1
    )
