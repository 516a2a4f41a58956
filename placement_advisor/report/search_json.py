"""A search's result as the public contract of ``advisor search --json``.

Times are in the unit of the file, integer nanoseconds for graphs of ``advisor trace``. Null means
not known or without limit.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from placement_advisor import __version__
from placement_advisor.solvers.search_result import Objective
from placement_advisor.solvers.throughput.loads import device_loads

if TYPE_CHECKING:
    from collections.abc import Iterator

    from placement_advisor.solvers.search_result import Searched

SCHEMA_VERSION = 1


def search_as_json(searched: Searched) -> dict[str, Any]:
    """Return the content, valid against ``load_schema("search")``."""
    problem, effort = searched.problem, searched.effort
    in_ns = searched.in_ns
    is_pipeline = searched.objective is Objective.THROUGHPUT
    return {
        "schema_version": SCHEMA_VERSION,
        "advisor_version": __version__,
        "graph_file": searched.graph_file,
        "machine": searched.machine,
        "objective": searched.objective.value,
        "contiguous": searched.contiguous if is_pipeline else None,
        "time_unit": "ns" if in_ns else "file",
        "objective_value": _time(searched.found.objective_value, in_ns=in_ns),
        "lower_bound": math.floor(searched.found.lower_bound)
        if in_ns
        else searched.found.lower_bound,
        "proven": searched.found.is_proven,
        "stopped_by": searched.found.stopped_by.value,
        "seconds": searched.seconds,
        "seed": effort.seed,
        "effort_units": None if math.isinf(effort.units) else effort.units,
        "effort_units_spent": searched.found.units,
        "time_limit_s": effort.time_limit_s,
        "devices": list(_devices(searched)),
        "device_of": {op: searched.found.device_of[op] for op in problem.ops},
    }


def _devices(searched: Searched) -> Iterator[dict[str, Any]]:
    problem, in_ns = searched.problem, searched.in_ns
    is_pipeline = searched.objective is Objective.THROUGHPUT
    device_of = [searched.found.device_of[op] for op in problem.ops]
    loads = device_loads(problem, device_of)
    for name in problem.devices:
        load = loads[name]
        yield {
            "name": name,
            "load": _time(load.total, in_ns=in_ns) if is_pipeline else None,
            "work": _time(load.work, in_ns=in_ns),
            "copies": _time(load.copies, in_ns=in_ns) if is_pipeline else None,
            "ops": device_of.count(name),
            "held_bytes": load.held_bytes,
            "capacity_bytes": problem.pool_of[name].capacity_bytes,
        }


def _time(value: float, *, in_ns: bool) -> float:
    return round(value) if in_ns else value
