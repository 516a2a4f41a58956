"""Documents in the format of msr-fiddle, for tests."""

from __future__ import annotations

from typing import Any


def node(number: int, *, work: float = 1.0, **fields: object) -> dict[str, Any]:
    """Return a node; ``fields`` override what it has."""
    return {
        "id": number,
        "supportedOnFpga": 1,
        "cpuLatency": 10 * work,
        "fpgaLatency": work,
        "isBackwardNode": 0,
        "size": 4.0,
        **fields,
    }


def edge(source: int, target: int, cost: float = 1.0) -> dict[str, Any]:
    return {"sourceId": source, "destId": target, "cost": cost}


def document(
    nodes: list[dict[str, Any]], edges: list[dict[str, Any]], **fields: object
) -> dict[str, Any]:
    """Return a file with two accelerators of 100 bytes and no CPU; ``fields`` override that."""
    return {
        "maxSizePerFPGA": 100.0,
        "maxFPGAs": 2,
        "maxCPUs": 0,
        "nodes": nodes,
        "edges": edges,
        **fields,
    }


def three_in_a_row(**fields: object) -> dict[str, Any]:
    """Return the chain 1 → 2 → 3 of work 2, 3 and 6, whose best cut is 2 3 | 6."""
    nodes = [node(1, work=2.0), node(2, work=3.0), node(3, work=6.0)]
    return document(nodes, [edge(1, 2), edge(2, 3)], **fields)
