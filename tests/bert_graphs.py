"""Operator graphs of BERT in the format of msr-fiddle, made up: for searches that nobody tuned for.

The ops of an encoder one by one, as an exporter of PyTorch writes them: weights are nodes of no
time in the colour class of the op that reads them, an op of several outputs has a node of no time
for each, and one mask is read by all layers. What an op takes follows from the bytes that it moves
and the flops that it does, so that costs are floats of many digits over nine orders of magnitude.
"""

from __future__ import annotations

import random
from typing import Any

from fiddle_documents import document

# Of no device in particular: bytes and flops in a millisecond, and bytes over a wire.
_BYTES_PER_MS = 6.4e7
_FLOPS_PER_MS = 1.4e10
_WIRE_BYTES_PER_MS = 2.1e6
_SLOWER_ON_CPU = 23.0
_BYTES = 4


class _Graph:
    """Nodes and edges in the making; an op is given by what it reads, and returns its number."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.nodes: list[dict[str, Any]] = []
        self.edges: list[tuple[int, int]] = []
        self._wire_bytes: list[float] = []
        self._colors = 0

    def op(
        self,
        read: list[int],
        elements: float,
        *,
        flops: float = 0.0,
        weights: tuple[float, ...] = (),
        outputs: int = 0,
        color: int | None = None,
        is_colored: bool = True,
    ) -> int:
        """Add an op, the weights that it reads, and a node for each of several outputs."""
        if is_colored and color is None:
            color = self._colors
            self._colors += 1
        held = [self._node(0.0, size * _BYTES, size * _BYTES, color) for size in weights]
        moved = (elements + sum(weights)) * _BYTES
        work = (moved / _BYTES_PER_MS + flops / _FLOPS_PER_MS) * self._rng.uniform(0.97, 1.03)
        made = self._node(work, elements * _BYTES, elements * _BYTES, color)
        self.edges += [(feeder, made) for feeder in (*read, *held)]
        if not outputs:
            return made
        # The op hands on nothing itself; its first output has the elements, the others are small.
        self._wire_bytes[made] = 1.3e-4
        first = self._node(0.0, 0.0, elements * _BYTES, color)
        rest = [self._node(0.0, 0.0, 1.3e-4, color) for _ in range(outputs - 1)]
        self.edges += [(made, each) for each in (first, *rest)]
        return first

    def weight(self, size: float) -> tuple[int, int]:
        """Add a weight that several ops read; return its number and its colour."""
        color = self._colors
        self._colors += 1
        return self._node(0.0, size * _BYTES, size * _BYTES, color), color

    def _node(self, work: float, size: float, wire_bytes: float, color: int | None) -> int:
        number = len(self.nodes)
        self.nodes.append(
            {
                "id": number,
                "supportedOnFpga": True,
                "cpuLatency": work * _SLOWER_ON_CPU,
                "fpgaLatency": work,
                "isBackwardNode": False,
                "size": size,
                **({} if color is None else {"colorClass": color}),
            }
        )
        self._wire_bytes.append(wire_bytes)
        return number

    def edge_rows(self) -> list[dict[str, Any]]:
        return [
            {"sourceId": a, "destId": b, "cost": self._wire_bytes[a] / _WIRE_BYTES_PER_MS}
            for a, b in self.edges
        ]


def bert_document(
    layers: int, *, accelerators: int = 6, cpus: int = 1, seed: int = 0, memory_share: float = 4.0
) -> dict[str, Any]:
    """Return an inference graph of so many layers.

    Each accelerator holds ``memory_share`` of what all ops need over all accelerators: at little
    more than 1 memory is scarce.
    """
    rng = random.Random(f"bert {layers} {seed}")
    graph = _Graph(rng)
    batch, length = rng.choice([2, 6, 16]), rng.choice([64, 128, 384])
    width, heads = rng.choice([(128, 2), (256, 4), (512, 8), (768, 12)])
    words = rng.choice([8_000, 30_522])
    rows = batch * length
    state = rows * width
    scores = batch * heads * length * length

    def dense(read: int, inner: int, outer: int) -> int:
        made = graph.op(
            [read], rows * outer, flops=2.0 * rows * inner * outer, weights=(inner * outer,)
        )
        return graph.op([made], rows * outer, weights=(outer,))

    def normed(read: list[int]) -> int:
        added = graph.op(read, state)
        return graph.op([added], state, weights=(width, width), outputs=3)

    def dropped(read: int, elements: float) -> int:
        return graph.op([read], elements, outputs=2)

    def heads_of(read: int) -> int:
        shaped = graph.op([dense(read, width, width)], state)
        return graph.op([shaped], state)

    table, table_color = graph.weight(words * width)
    positions = graph.op([], 4, is_colored=False)
    for elements in (2, 2, 4, 0.01, rows):
        positions = graph.op([positions], elements, is_colored=False)
    embedded = [
        graph.op([positions], state, weights=(512 * width,)),
        graph.op([table], state, color=table_color),
    ]
    embedded = [graph.op(embedded, state), graph.op([], state, weights=(2 * width,))]
    hidden = dropped(normed(embedded), state)
    mask = graph.op([], rows, is_colored=False)
    for elements in (rows, rows / 2, rows / 2, rows / 2):
        mask = graph.op([mask], elements, is_colored=False)
    for _ in range(layers):
        keys, queries = heads_of(hidden), heads_of(hidden)
        score = graph.op([keys, queries], scores, flops=2.0 * state * length)
        score = graph.op([graph.op([score], scores), mask], scores)
        share = dropped(graph.op([score], scores), scores)
        context = graph.op([share, heads_of(hidden)], state, flops=2.0 * state * length)
        context = graph.op([graph.op([context], state)], state)
        attended = normed([dropped(dense(context, width, width), state), hidden])
        wide = graph.op([dense(attended, width, 4 * width)], 4 * rows * width)
        hidden = normed([dropped(dense(wide, 4 * width, width), state), attended])
    pooled = graph.op([hidden], batch * width)
    pooled = graph.op([pooled], batch * width, weights=(width * width,))
    pooled = graph.op([graph.op([pooled], batch * width, weights=(width,))], batch * width)
    graph.op([pooled], 2 * batch, weights=(2 * width, 2))
    predicted = normed([graph.op([dense(hidden, width, width)], state)])
    turned = graph.op([table], words * width, color=table_color)
    logits = graph.op([predicted, turned], rows * words, flops=2.0 * state * words)
    graph.op([logits], rows * words, weights=(words,))
    total = sum(node["size"] for node in graph.nodes)
    return document(
        graph.nodes,
        graph.edge_rows(),
        maxSizePerFPGA=total * memory_share / accelerators,
        maxFPGAs=accelerators,
        maxCPUs=cpus,
    )
