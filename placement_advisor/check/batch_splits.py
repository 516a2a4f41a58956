"""Splits of the batch that are checked: the step of today with a replica on each device or pair.

The batch is shared evenly, as far as it goes. What is placed is a rule's, so no layer of it can
move by itself.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from placement_advisor.analysis.batch_splits import split_among
from placement_advisor.candidates import towers
from placement_advisor.candidates.batch_split.plan import shares_of
from placement_advisor.candidates.batch_split.split_graph import FAMILY as BATCH
from placement_advisor.candidates.batch_split.split_graph import graph_of, placed_on_devices
from placement_advisor.candidates.by_layer import NotApplicable
from placement_advisor.candidates.families import PER_PAIR
from placement_advisor.check.placements import Freedom, Layout, no_longer_applies
from placement_advisor.check.record import Part
from placement_advisor.errors import AdvisorError, BatchSplitError
from placement_advisor.graph.placement import NO_LAYER

if TYPE_CHECKING:
    from collections.abc import Mapping

    from placement_advisor.candidates.batch_split.split_graph import SplitGraph
    from placement_advisor.check.code_lines import CodeLines
    from placement_advisor.check.record import LayerRecord
    from placement_advisor.cost.table import CostTable
    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.machine.devices import Cluster
    from placement_advisor.processes.children import Child
    from placement_advisor.tf.answers import Traced


class BatchSplit(NamedTuple):
    """A step whose batch is split, and the samples of each replica."""

    step: SplitGraph
    samples: tuple[int, ...]


def split_step(
    family: str, traced: Traced, devices: int, loader: Child, time_limit_s: float
) -> BatchSplit:
    """Return the step that ``loader`` has traced with its batch split over so many devices.

    Raises:
        AdvisorError: it cannot be split so.
    """
    per_pair = family in PER_PAIR
    replicas = devices // towers.GROUP if per_pair else devices
    if replicas <= 1:
        groups = "pairs of devices" if per_pair else "devices"
        raise AdvisorError(
            f"placement {family!r} splits the batch over {groups}, and the hardware has "
            f"{'one' if replicas else 'none'}",
            hint="name hardware with more devices, or another placement",
        )
    if traced.batch_size is None:
        raise BatchSplitError("its inputs hold no batch that could be split")
    samples = shares_of(traced.batch_size, [1.0] * replicas)
    answer = split_among(loader, samples, None, time_limit_s)
    if isinstance(answer, BatchSplitError):
        raise answer
    split = answer.graphs.get(BATCH if per_pair else graph_of(family))
    if split is None:
        raise BatchSplitError(
            f"{family} wants the same samples on each device, and a batch of {traced.batch_size} "
            f"cannot be shared evenly by {devices}",
            hint="take a batch that can, or placement = 'batch'",
        )
    return BatchSplit(replace(split, family=family), samples)


def lay_out_split(
    family: str,
    graph: OpGraph,
    split: BatchSplit,
    costs: Mapping[str, CostTable],
    cluster: Cluster,
    locked: Mapping[str, LayerRecord],
) -> Layout:
    """Return the placement of a step that is the ``split`` of ``graph``, whose ops have ``costs``.

    Raises:
        DoesNotFitError: pairs of devices have no towers to share any more.
        AdvisorError: the devices have no place for its variables.
    """
    devices, host = cluster.device_names(), cluster.devices[0].host
    if family in PER_PAIR:
        within = towers.within_a_pair(graph, costs, cluster)
        if isinstance(within, NotApplicable):
            raise no_longer_applies(family, within.reason, split.step.graph, locked)
        placed = towers.on_pairs(split.step, within, devices, split.samples)
        return Layout(placement=placed, freedom=Freedom.RULE)
    found = placed_on_devices(family, split.step, devices, host, "the batch is shared evenly")
    if isinstance(found, NotApplicable):
        raise AdvisorError(
            f"placement {family!r} {found.reason}",
            hint="name hardware whose devices have one, such as 2xT4, or another placement",
        )
    return Layout(placement=found, freedom=Freedom.RULE)


def lines_of_split(lines: CodeLines, graph: OpGraph, split: SplitGraph) -> CodeLines:
    """Return the lines of a split step, whose ops are copies of those of ``graph``."""
    sources = {
        op.name: split.source[op.name][1] for op in split.graph.ops if op.name in split.source
    }
    layers = {
        split.graph.op(name).layer or NO_LAYER: graph.op(source).layer or NO_LAYER
        for name, source in sources.items()
    }
    return replace(
        lines,
        sharers={
            part: {
                place: {layer for layer, source in layers.items() if source in known}
                for place, known in of_part.items()
            }
            for part, of_part in lines.sharers.items()
        },
        stacks={
            (layer, part): lines.stacks[source, part]
            for layer, source in layers.items()
            for part in Part
            if (source, part) in lines.stacks
        },
        of_op={
            name: lines.of_op[source] for name, source in sources.items() if source in lines.of_op
        },
    )
