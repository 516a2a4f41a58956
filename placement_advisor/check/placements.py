"""Places a checked model: as written, by a file, a rule, a search, or with its batch split.

A file was written for a graph that may have changed. If only names changed, the file holds under
the new ones. Else each layer is found again (`same_layers`), and all ops that touch a variable go
with it. Layers without a device in the file are an error, and so are ops that were placed apart
from their layer and are no longer in it. The batch is shared as evenly as it goes; a rule places
the replicas, so no layer of a batch split moves by itself.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from placement_advisor.analysis.tracing import split_among
from placement_advisor.candidates import families, references, searched, towers
from placement_advisor.candidates.batch_split import split_graph as batch_graph
from placement_advisor.candidates.batch_split.plan import shares_of
from placement_advisor.candidates.batch_split.split_graph import FAMILY as BATCH
from placement_advisor.candidates.by_layer import NotApplicable
from placement_advisor.candidates.references import as_written, devices_asked_for
from placement_advisor.check.lock_record import PART_OF, LayerRecord, Move, Part, same_layers
from placement_advisor.check.problem_codes import some_layers
from placement_advisor.defaults import AS_WRITTEN
from placement_advisor.errors import AdvisorError, BatchSplitError, PlacementError
from placement_advisor.graph.fingerprint import layer_fingerprints
from placement_advisor.graph.op import Op, Role
from placement_advisor.graph.placement import NO_LAYER, Placement, read_placement_file
from placement_advisor.simulator.simulator import Simulator
from placement_advisor.solvers.effort import Effort
from placement_advisor.solvers.step_search import FAMILY as SEARCHED

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping
    from pathlib import Path

    from placement_advisor.check.code_lines import CodeLines
    from placement_advisor.cost.table import CostTable
    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.graph.placement import PlacementFile
    from placement_advisor.machine.devices import Cluster
    from placement_advisor.processes.children import Child
    from placement_advisor.tf.answers import Traced


AUTO = "auto"
# A file; anything else is the name of a rule.
FILE_SUFFIX = ".json"
# About half a second, for a check should take no more than two; a tenth finds much less on
# deepconn, ten times as much 2 % more. What is found depends on nothing but the graph.
_EFFORT = Effort(units=0.5)


class PlacementFreedom(StrEnum):
    """What may change about a placement when the model does: nothing, or what a rule makes of it.

    A search may answer any change with another placement altogether.
    """

    NONE = "none"
    RULE = "rule"
    SEARCH = "search"


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """A placement of the step of today, and how free whatever made it was."""

    placement: Placement
    freedom: PlacementFreedom


class DoesNotFitError(PlacementError):
    """The placement that is configured does not fit the model of today, or the devices.

    ``ops`` are those that it does not fit, where it is some of them.
    """

    def __init__(self, message: str, *, hint: str | None = None, ops: Iterable[str] = ()) -> None:
        """Take what is wrong, what to do about it, and with which ops."""
        super().__init__(message, hint=hint)
        self.ops = tuple(ops)


def lay_out(
    configured: str,
    root: Path,
    graph: OpGraph,
    requested_device_of: Mapping[str, str] | None,
    costs: Mapping[str, CostTable],
    cluster: Cluster,
    locked: Mapping[str, LayerRecord],
) -> Layout:
    """Return the placement that is configured, in a project at ``root``, for a graph.

    ``requested_device_of`` is None where a graph file says nothing of `tf.device` scopes.
    ``locked`` are the layers that the lock file has.

    Raises:
        DoesNotFitError: it does not fit the graph any more, or the devices.
        AdvisorError: there is no such placement.
    """
    if configured == AS_WRITTEN:
        return _as_written(graph, requested_device_of, cluster)
    if configured.endswith(FILE_SUFFIX):
        placement = _from_file(root / configured, graph, cluster, locked)
        placement.check(graph, cluster.place_names())
        return Layout(placement=placement, freedom=PlacementFreedom.NONE)
    if configured in families.SPLITS:
        raise AdvisorError(
            f"placement {configured!r} splits the batch, which is another graph than that of the "
            "file: it takes the model's code to check it",
            hint="check it without --graphs-only",
        )
    if configured in (AUTO, SEARCHED):
        placement = _searched(graph, costs, cluster)
        return Layout(placement=placement, freedom=PlacementFreedom.SEARCH)
    if configured not in families.FAMILIES:
        known = [AS_WRITTEN, AUTO, *families.NAMES]
        raise AdvisorError(
            f"unknown placement {configured!r}",
            hint=f"give a file (*{FILE_SUFFIX}) or one of {', '.join(known)}",
        )
    found = families.FAMILIES[configured](graph, costs, cluster)
    if isinstance(found, NotApplicable):
        raise no_longer_applies(configured, found.reason, graph, locked)
    return Layout(placement=found, freedom=PlacementFreedom.RULE)


def no_longer_applies(
    rule: str, reason: str, graph: OpGraph, locked: Mapping[str, LayerRecord]
) -> DoesNotFitError:
    """Return that a rule does not apply, with what became of the layers that it went by."""
    layers = _layer_names(graph)
    gone = [layer for layer in locked if layer not in layers]
    new = [layer for layer in layers if locked and layer not in locked]
    since = [
        f"{some_layers(names)} {how}" for names, how in ((gone, "gone"), (new, "new")) if names
    ]
    changed = f"; since it was locked: {', '.join(since)}" if since else ""
    return DoesNotFitError(
        f"{rule} does not apply to this model: {reason}{changed}",
        ops=_ops_of(new, graph),
    )


def moved_back(
    graph: OpGraph, placement: Placement, moves: Iterable[Move], there: Collection[str]
) -> Placement:
    """Return the placement with layers where they were before they moved, if that is ``there``."""
    before = {
        (move.layer, move.part, move.after[0]): move.before[0]
        for move in moves
        if move.before[0] in there
    }

    def device_of(op: Op) -> str:
        here = placement.device_of[op.name]
        part = PART_OF.get(op.role)
        return here if part is None else before.get((op.layer or NO_LAYER, part, here), here)

    return replace(placement, device_of=_with_variables(graph, device_of))


def _as_written(
    graph: OpGraph, requested_device_of: Mapping[str, str] | None, cluster: Cluster
) -> Layout:
    if requested_device_of is None:
        raise AdvisorError(
            "the graph file does not say what tf.device scopes ask for, so as-written cannot be "
            "checked from it",
            hint="write it again with advisor trace, or name another placement",
        )
    asked = devices_asked_for(requested_device_of)
    there = cluster.device_names()
    if len(asked) > len(there):
        raise DoesNotFitError(
            f"the model's tf.device scopes name {len(asked)} devices ({', '.join(asked)}), "
            f"the hardware has {len(there)}",
            ops=(op for op, device in requested_device_of.items() if device == asked[-1]),
        )
    placement = as_written(graph, requested_device_of, cluster)
    if placement is None:
        placement = references.on_device(graph, there[0])
    return Layout(placement=placement, freedom=PlacementFreedom.NONE)


def _searched(graph: OpGraph, costs: Mapping[str, CostTable], cluster: Cluster) -> Placement:
    """Return the best placement by prediction, of those that fit."""
    names = tuple(name for name in families.FAMILIES if name not in families.WORST_CASE_FAMILIES)
    answers = families.propose(names, graph, costs, cluster)
    simulator = Simulator(graph, costs, cluster)
    found = searched.propose_searched(answers, costs, simulator, _EFFORT)
    if isinstance(found, Placement):
        return found
    if found.unbeaten is None:
        raise DoesNotFitError(found.reason)
    return found.unbeaten


def _from_file(
    path: Path, graph: OpGraph, cluster: Cluster, locked: Mapping[str, LayerRecord]
) -> Placement:
    written = read_placement_file(path)
    named = written.names_in(path, cluster.device_names(), cluster.place_names())
    file, gone = written.named_as_in(graph, path), []
    if file is None:
        former = _former_names(written, graph, locked)
        gone = [name for name in written.by_layer if name not in former.values()]
    else:
        former = {name: name for name in file.by_layer}
    new = [layer for layer in _layer_names(graph) if layer not in former]
    if new:
        raise DoesNotFitError(
            f"{path.name} has no device for {some_layers(new)}"
            + (f"; it places {some_layers(gone)}, which no longer exist" if gone else ""),
            hint="place the new layers in the file, or write it again with advisor analyze",
            ops=_ops_of(new, graph),
        )
    placed = _as_named_today(written, graph, former) if file is None else file

    def device_of(op: Op) -> str:
        device = placed.by_op.get(op.name, placed.by_layer[op.layer or NO_LAYER])
        return named.get(device, device)

    return Placement(
        label=placed.label,
        family=placed.family,
        device_of=_with_variables(graph, device_of),
        rationale=placed.rationale,
    )


def _layer_names(graph: OpGraph) -> list[str]:
    return list(dict.fromkeys(op.layer or NO_LAYER for op in graph.placed_ops))


def _ops_of(layers: Collection[str], graph: OpGraph) -> list[str]:
    return [op.name for op in graph.placed_ops if (op.layer or NO_LAYER) in layers]


def _as_named_today(
    file: PlacementFile, graph: OpGraph, former: Mapping[str, str]
) -> PlacementFile:
    """Return the file with the names of a graph that is another one than it was written for.

    ``former`` has the name in the file of layers that are still there. An op that was apart from
    its layer and is gone leaves nothing to place: most of these only touch a variable of another
    layer, such as a learning rate. What came in its place is with its layer, and figures tell
    whether that matters.
    """
    layer_of = {} if file.structure is None else file.structure.layer_of()

    def is_there(name: str) -> bool:
        then = layer_of.get(name)
        return name in graph and then in (None, former.get(graph.op(name).layer or NO_LAYER))

    return replace(
        file,
        by_layer={now: file.by_layer[then] for now, then in former.items()},
        by_op={name: device for name, device in file.by_op.items() if is_there(name)},
    )


def _with_variables(graph: OpGraph, device_of: Callable[[Op], str]) -> dict[str, str]:
    """Return the device of each op; what touches a variable runs where that is."""
    home = {op.variable: device_of(op) for op in graph.ops if op.role is Role.VARIABLE}
    return {op.name: home.get(op.variable) or device_of(op) for op in graph.placed_ops}


def _former_names(
    file: PlacementFile, graph: OpGraph, locked: Mapping[str, LayerRecord]
) -> dict[str, str]:
    """Return the name that layers have in the file, for those that it has.

    What layers were made of the file says itself; the lock file does for one that does not.
    """
    made_of = {layer or NO_LAYER: found for layer, found in layer_fingerprints(graph).items()}
    if file.structure is not None:
        was_made_of = file.structure.made_of()
    else:
        was_made_of = {name: layer.fingerprint for name, layer in locked.items()}
    same = same_layers(
        {name: was_made_of.get(name) for name in file.by_layer},
        {name: made_of[name] for name in _layer_names(graph)},
    )
    return {now: then for then, now in same.items()}


class BatchSplit(NamedTuple):
    """A step whose batch is split, and the samples of each replica."""

    step: batch_graph.SplitGraph
    samples: tuple[int, ...]


def split_for_check(
    family: str, traced: Traced, devices: int, loader: Child, time_limit_s: float
) -> BatchSplit:
    """Return the step that ``loader`` has traced with its batch split over so many devices.

    Raises:
        AdvisorError: it cannot be split so.
    """
    per_pair = family in families.PER_PAIR
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
    split = answer.graphs.get(BATCH if per_pair else batch_graph.graph_of(family))
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
    if family in families.PER_PAIR:
        within = towers.within_a_pair(graph, costs, cluster)
        if isinstance(within, NotApplicable):
            raise no_longer_applies(family, within.reason, split.step.graph, locked)
        placed = towers.on_pairs(split.step, within, devices, split.samples)
        return Layout(placement=placed, freedom=PlacementFreedom.RULE)
    found = batch_graph.placed_on_devices(
        family, split.step, devices, host, "the batch is shared evenly"
    )
    if isinstance(found, NotApplicable):
        raise AdvisorError(
            f"placement {family!r} {found.reason}",
            hint="name hardware whose devices have one, such as 2xT4, or another placement",
        )
    return Layout(placement=found, freedom=PlacementFreedom.RULE)


def lines_of_split(lines: CodeLines, graph: OpGraph, split: batch_graph.SplitGraph) -> CodeLines:
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
