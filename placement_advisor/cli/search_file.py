"""Wires `advisor search`: a graph file -> the best placement that is found, with a bound for any.

A file of msr-fiddle has times, devices and memory of its own. Of a graph that `advisor trace`
wrote, costs are assumed, from the figures of each device.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from placement_advisor.analysis.prices_elsewhere import read_elsewhere
from placement_advisor.clock import Clock
from placement_advisor.cost.links import assumed_cluster
from placement_advisor.cost.roofline import roofline_by_place
from placement_advisor.errors import AdvisorError, PlacementError
from placement_advisor.files.foreign_json import MisfitError, content, parse
from placement_advisor.graph.op_graph import OpGraph
from placement_advisor.solvers.fiddle_file import is_fiddle, read_fiddle
from placement_advisor.solvers.search_result import Objective, Searched
from placement_advisor.solvers.throughput.graph_problem import throughput_problem, with_hosts
from placement_advisor.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from placement_advisor.cost.table import CostTable
    from placement_advisor.machine.devices import Cluster
    from placement_advisor.solvers.effort import Effort
    from placement_advisor.solvers.problem import Problem
    from placement_advisor.solvers.search_result import Found

DEFAULT_DEVICES = 2
_GZIP = b"\x1f\x8b"


def search_file(
    graph_file: Path,
    *,
    objective: Objective,
    contiguous: bool,
    devices: int | None,
    hardware: str | None,
    effort: Effort,
) -> Searched:
    """Search the best placement of a graph file.

    Raises:
        AdvisorError: the file cannot be read, the options do not fit it, no placement is possible,
            or none was found.
    """
    clock = Clock("search")
    asked = _read(graph_file, devices, hardware)
    problem = asked.problem
    if asked.step is not None and objective is Objective.LATENCY:
        problem = with_hosts(problem, asked.step.costs, asked.step.cluster)
    if not problem.ops:
        raise AdvisorError(f"{graph_file}: nothing in it can be placed")
    found = _found(graph_file, asked, objective, effort, contiguous=contiguous)
    return Searched(
        graph_file=str(graph_file),
        machine=asked.machine,
        objective=objective,
        contiguous=contiguous,
        in_ns=asked.step is not None,
        problem=problem,
        found=found,
        effort=effort,
        seconds=clock.timings_ns()["search"] / NS_PER_S,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """A traced step and the devices that it is to run on."""

    graph: OpGraph
    costs: Mapping[str, CostTable]
    cluster: Cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """What a file asks: a problem, the machine in words, and the step if the file holds one."""

    problem: Problem
    machine: str
    step: _Step | None


def _read(graph_file: Path, devices: int | None, hardware: str | None) -> _Asked:
    try:
        data = content(graph_file)
        document = None if data.startswith(_GZIP) else parse(data)
        problem = read_fiddle(document) if is_fiddle(document) else None
    except MisfitError as misfit:
        raise AdvisorError(f"{graph_file}: {misfit}", hint=_WHAT_IS_READ) from None
    if problem is not None:
        if devices is not None or hardware is not None:
            raise AdvisorError(
                f"{graph_file} names its own devices",
                hint="leave out --devices and --hardware",
            )
        machine = f"the file's own: {', '.join(problem.devices)}"
        return _Asked(problem=problem, machine=machine, step=None)
    if document is not None:
        raise AdvisorError(
            f"{graph_file}: not in a format that this command reads", hint=_WHAT_IS_READ
        )
    graph = OpGraph.load(graph_file)
    machine = hardware or "CPU workers, one core each"
    cluster = (
        assumed_cluster(devices or DEFAULT_DEVICES)
        if hardware is None
        else read_elsewhere(hardware, None).cluster
    )
    costs = roofline_by_place(graph, cluster)
    return _Asked(
        problem=throughput_problem(graph, costs, cluster),
        machine=machine,
        step=_Step(graph=graph, costs=costs, cluster=cluster),
    )


_WHAT_IS_READ = "GRAPH is a file of `advisor trace`, or JSON in the format of msr-fiddle"


def _found(
    graph_file: Path, asked: _Asked, objective: Objective, effort: Effort, *, contiguous: bool
) -> Found:
    if asked.step is not None and objective is Objective.LATENCY:
        from placement_advisor.candidates.step_search import search_step

        # What a step holds at a time is known when it is simulated.
        return search_step(asked.step.graph, asked.step.costs, asked.step.cluster, effort)
    from placement_advisor.solvers.search_problem import search_problem

    try:
        return search_problem(asked.problem, objective, effort, contiguous=contiguous)
    except PlacementError as error:
        raise PlacementError(f"{graph_file}: {error.message}", hint=error.hint) from None
