"""The time by which every schedule has ended, however its ops are placed: 64 bits have to hold it.

At every moment of a step an op runs, a copy is under way or is worked at, a device begins or ends,
or requests of devices that began last are under way. So no step takes longer than all of that one
after the other, each where it is slowest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from placement_advisor.errors import AdvisorError
from placement_advisor.files.limits import MAX_NS

if TYPE_CHECKING:
    from placement_advisor.machine.devices import Dispatch
    from placement_advisor.simulator.arrays import EndArrays, GraphArrays, LinkArrays, PlaceArrays


def check_horizon(
    arrays: GraphArrays,
    places: PlaceArrays,
    links: LinkArrays,
    ends: EndArrays,
    dispatch: Dispatch,
) -> None:
    """Check that no schedule can be too long for what counts its nanoseconds.

    Raises:
        AdvisorError: one can; it names what takes longest.
    """
    devices = len(places.places)
    op_ns, size_ns = places.most_ns(), links.most_ns()
    crossing_ns = [(devices - 1) * size_ns[size] for size in arrays.size.tolist()]
    begin_and_end_ns = (
        dispatch.step_overhead_ns
        + devices * dispatch.partition_overhead_ns
        + sum(ends.start_ns.tolist())
        + sum(ends.end_ns.tolist())
        + max(links.request_ns.tolist())
    )
    whole_ns = sum(op_ns) + sum(crossing_ns) + begin_and_end_ns
    if max(whole_ns, dispatch.quantum_ns) <= MAX_NS:
        return
    longest_op_ns, longest_crossing_ns = max(op_ns, default=0), max(crossing_ns, default=0)
    if longest_op_ns > max(longest_crossing_ns, begin_and_end_ns):
        longest = f"op {arrays.ops[op_ns.index(longest_op_ns)].name!r}"
    elif longest_crossing_ns > begin_and_end_ns:
        tensor = crossing_ns.index(longest_crossing_ns)
        producer = arrays.ops[int(arrays.producer[tensor])].name
        longest = f"copies of output {int(arrays.port[tensor])} of op {producer!r}"
    else:
        longest = "the start and the end of devices"
    raise AdvisorError(
        f"the step may take more than 36 years, most of it for {longest}",
        hint="a time, a size or a bandwidth is in another unit than it seems to be",
    )
