"""Parallel branches: what runs side by side between a fork and the layer where it meets again.

A *fork* is a layer that feeds several. It meets again at the first layer that every way from the
fork to an end of the model goes through. What lies between falls into branches: layers that feed
one another, in either direction, are in one branch. Inception blocks, the queries, keys and values
of attention and residual units are such regions; a residual unit has one branch and a direct way.

A branch may also read layers before the fork (a mask, the encoder). Regions nest, and each is
found by itself.

Left out: branches that never meet again (auxiliary heads, several outputs), and so a fork with a
way to an end past its meeting point; forks at inputs, which are no layers; a loop between layers
is a member of a branch but neither fork nor meeting point.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from placement_advisor.graph.structure.forward_flow import Flow, flow, meeting_points

if TYPE_CHECKING:
    from placement_advisor.graph.layer_view import LayerView

MIN_WAYS = 2
# Layers are looked at once per region around them. Regions are taken from short to long, so that
# only where thousands nest in one another the longest are left out.
MAX_VISITS = 400_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelBranches:
    """Branches, each with its layers in order, from ``fork`` to ``join``.

    ``direct`` says whether the fork also feeds the join without any layer between.
    """

    fork: str
    join: str
    branches: tuple[tuple[str, ...], ...]
    direct: bool


def parallel_branches(view: LayerView) -> tuple[ParallelBranches, ...]:
    """Return every region of at least two ways, by fork in layer order."""
    way = flow(view)
    joins = meeting_points(way)
    forks = [
        (join - fork, fork, join)
        for fork, join in enumerate(joins)
        if join is not None
        and len(way.out[fork]) >= MIN_WAYS
        and len(way.members[fork]) == len(way.members[join]) == 1
    ]
    found: list[tuple[int, ParallelBranches]] = []
    visits = 0
    for _, fork, join in sorted(forks):
        if visits > MAX_VISITS:
            break
        parts = _parts(way, fork, join)
        visits += sum(map(len, parts))
        direct = join in way.out[fork]
        if len(parts) + direct >= MIN_WAYS:
            layers = [[layer for node in part for layer in way.members[node]] for part in parts]
            region = ParallelBranches(
                fork=way.layers[way.members[fork][0]],
                join=way.layers[way.members[join][0]],
                branches=tuple(way.names(part) for part in sorted(layers, key=min)),
                direct=direct,
            )
            found.append((way.members[fork][0], region))
    return tuple(region for _, region in sorted(found, key=lambda pair: pair[0]))


def _parts(way: Flow, fork: int, join: int) -> list[list[int]]:
    """Return the nodes between the two, those that feed one another together."""
    part_of: dict[int, int] = {node: node for node in way.out[fork] if node != join}

    def root(node: int) -> int:
        while part_of[node] != node:
            part_of[node] = part_of[part_of[node]]
            node = part_of[node]
        return node

    ahead = list(part_of)
    while ahead:
        node = ahead.pop()
        for target in way.out[node]:
            if target == join:
                continue
            if target not in part_of:
                part_of[target] = target
                ahead.append(target)
            part_of[root(target)] = root(node)
    parts: dict[int, list[int]] = {}
    for node in part_of:
        parts.setdefault(root(node), []).append(node)
    return list(parts.values())
