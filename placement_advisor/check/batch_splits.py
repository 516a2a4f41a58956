"""Splits of the batch that are checked: the step of today with a replica on each device.

The batch is shared evenly, as far as it goes. What is placed is a rule's, so no layer of it can
move by itself.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from placement_advisor.analysis.batch_splits import split_among
from placement_advisor.candidates.batch_split.shares import shares_of
from placement_advisor.candidates.batch_split.variable_places import graph_of, placed_on_devices
from placement_advisor.candidates.not_applicable import NotApplicable
from placement_advisor.check.placements import Freedom, Layout
from placement_advisor.check.record import Part
from placement_advisor.errors import AdvisorError, BatchSplitError
from placement_advisor.graph.placement import NO_LAYER

if TYPE_CHECKING:
    from placement_advisor.candidates.batch_split.split_graph import SplitGraph
    from placement_advisor.check.code_lines import CodeLines
    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.machine.devices import Cluster
    from placement_advisor.processes.children import Child
    from placement_advisor.tf.answers import Traced


def split_step(
    family: str, traced: Traced, devices: int, loader: Child, time_limit_s: float
) -> SplitGraph:
    """Return the step that ``loader`` has traced with its batch split over so many devices.

    Raises:
        AdvisorError: it cannot be split so.
    """
    if devices == 1:
        raise AdvisorError(
            f"placement {family!r} splits the batch over devices, and the hardware has one",
            hint="name hardware with several devices, or another placement",
        )
    if traced.batch_size is None:
        raise BatchSplitError("its inputs hold no batch that could be split")
    samples = shares_of(traced.batch_size, [1.0] * devices)
    answer = split_among(loader, samples, None, time_limit_s)
    if isinstance(answer, BatchSplitError):
        raise answer
    split = answer.graphs.get(graph_of(family))
    if split is None:
        raise BatchSplitError(
            f"{family} wants the same samples on each device, and a batch of {traced.batch_size} "
            f"cannot be shared evenly by {devices}",
            hint="take a batch that can, or placement = 'batch'",
        )
    return split


def lay_out_split(split: SplitGraph, family: str, cluster: Cluster) -> Layout:
    """Return the placement of a step whose batch is shared evenly.

    Raises:
        AdvisorError: the devices have no place for its variables.
    """
    names, host = cluster.device_names(), cluster.devices[0].host
    placed = placed_on_devices(family, split, names, host, "the batch is shared evenly")
    if isinstance(placed, NotApplicable):
        raise AdvisorError(
            f"placement {family!r} {placed.reason}",
            hint="name hardware whose devices have one, such as 2xT4, or another placement",
        )
    return Layout(placement=placed, freedom=Freedom.RULE)


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
