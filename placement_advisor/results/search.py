"""What `advisor search` answers: the best placement that was found, and a bound on any.

Times are simulated, in the unit of the file: nanoseconds for graphs of ``advisor trace``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from annotated_types import Ge, Le, MinLen

from placement_advisor import __version__
from placement_advisor.files.contract import STRICT, ByName, Count, NotNegative, Rows, Text, like
from placement_advisor.solvers.search_result import Objective
from placement_advisor.solvers.throughput.loads import device_loads

if TYPE_CHECKING:
    from collections.abc import Iterator

    from placement_advisor.solvers.search_result import Searched

# Whole nanoseconds stay whole.
Time = Annotated[int, Ge(0)] | NotNegative


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """What a device has to do by the placement."""

    name: Text
    """Name of the device."""
    load: Time | None
    """Its work and copies together; None for `latency`."""
    work: Time
    """Time of its ops."""
    copies: Time | None
    """Time of the tensors that it sends and gets; None for `latency`."""
    ops: Count
    """How many ops it has."""
    held_bytes: Count
    """Memory that they need."""
    capacity_bytes: Count | None
    """Memory that it has; None if not known or without limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """The best placement that was found, and a bound on any. Times are simulated."""

    __pydantic_config__: ClassVar = STRICT

    schema_version: Annotated[int, Ge(1), Le(1)]
    advisor_version: Text
    """Version of placement-advisor that searched."""
    graph_file: Text
    """Graph file as the user gave it."""
    machine: Text
    """What was searched for: the file's own devices, hardware or cluster file as the user gave it,
    or the stand-in, in words.
    """
    objective: Objective
    """`latency`: the simulated time of one step; `throughput`: the load of the fullest device of a
    pipeline.
    """
    contiguous: bool | None
    """Whether each device had to hold one stage of a pipeline; None for latency."""
    time_unit: Literal["ns", "file"]
    """`ns`, then times are integers; `file`: the unit of the file, which it does not name."""
    objective_value: Time
    """Simulated value of the placement, in that unit."""
    lower_bound: Time
    """No such placement has a smaller value, under the same costs."""
    proven: bool
    """Whether the two are equal within a millionth."""
    stopped_by: Literal["proof", "effort", "clock", "size", "solver"]
    """`proof`; `effort`: the units were used up; `clock`: the time limit, so that another run may
    differ; `size`: too large for a proof; `solver`: the solver contradicted what is known, so that
    its proof does not count.
    """
    seconds: NotNegative
    """Wall time of reading and searching."""
    seed: Count
    """Where chance began."""
    effort_units: NotNegative | None
    """Units of effort that were allowed; None without limit."""
    effort_units_spent: NotNegative | None
    """Units that were spent; None if not known."""
    time_limit_s: NotNegative | None
    """Time limit in seconds; None without limit."""
    devices: Annotated[Rows[Device], MinLen(1)]
    """Devices in order."""
    device_of: ByName[Text]
    """Device of each op by its name or, in files of msr-fiddle, its id."""

    @classmethod
    def of(cls, searched: Searched) -> Search:
        """Return it as it is published."""
        found, effort, in_ns = searched.found, searched.effort, searched.in_ns
        is_pipeline = searched.objective is Objective.THROUGHPUT
        return like(
            cls,
            searched,
            schema_version=1,
            advisor_version=__version__,
            contiguous=searched.contiguous if is_pipeline else None,
            time_unit="ns" if in_ns else "file",
            objective_value=_time(found.objective_value, in_ns=in_ns),
            lower_bound=math.floor(found.lower_bound) if in_ns else found.lower_bound,
            proven=found.is_proven,
            stopped_by=found.stopped_by.value,
            seed=effort.seed,
            effort_units=None if math.isinf(effort.units) else effort.units,
            effort_units_spent=found.units,
            time_limit_s=effort.time_limit_s,
            devices=tuple(_devices(searched)),
            device_of={op: found.device_of[op] for op in searched.problem.ops},
        )


def _devices(searched: Searched) -> Iterator[Device]:
    problem, in_ns = searched.problem, searched.in_ns
    is_pipeline = searched.objective is Objective.THROUGHPUT
    device_of = [searched.found.device_of[op] for op in problem.ops]
    loads = device_loads(problem, device_of)
    for name in problem.devices:
        load = loads[name]
        yield Device(
            name=name,
            load=_time(load.total, in_ns=in_ns) if is_pipeline else None,
            work=_time(load.work, in_ns=in_ns),
            copies=_time(load.copies, in_ns=in_ns) if is_pipeline else None,
            ops=device_of.count(name),
            held_bytes=load.held_bytes,
            capacity_bytes=problem.pool_of[name].capacity_bytes,
        )


def _time(value: float, *, in_ns: bool) -> float:
    return round(value) if in_ns else value
