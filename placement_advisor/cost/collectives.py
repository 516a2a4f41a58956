"""What the collectives of `tf.distribute` cost where they were timed.

Model: a collective takes a time to get going on every device, one for each hop along the ring, and
one for each byte that a replica sends on. An all-reduce has 2 (k - 1) hops among k replicas, an
all-gather k - 1, which tells the first two apart. Replicas run by themselves: no device starts a
step on another one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

from annotated_types import Gt, Lt

from placement_advisor.cost.lines import relative_line
from placement_advisor.files.contract import Ns
from placement_advisor.files.limits import MAX_NS
from placement_advisor.machine.devices import Basis, Dispatch, Link
from placement_advisor.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Sequence

    from placement_advisor.machine.devices import Cluster

# No link is taken to be faster than that: 10 TB/s.
_LEAST_NS_PER_BYTE = 1e-4


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveTimes:
    """What a step pays for ``call_ns`` once, a collective for ``launch_ns`` on every device.

    ``hop_ns`` and ``ns_per_byte`` are those of what one replica sends to the next.
    """

    call_ns: Ns
    launch_ns: Ns
    hop_ns: Ns
    ns_per_byte: Annotated[float, Gt(0.0), Lt(MAX_NS)]

    def on(self, cluster: Cluster) -> Cluster:
        """Return the cluster as replicas use it: its links carry collectives, and nothing else."""

        def carrying(link: Link) -> Link:
            return Link(
                source=link.source,
                target=link.target,
                latency_ns=self.hop_ns,
                bandwidth_bytes_per_s=NS_PER_S / self.ns_per_byte,
                basis=Basis.MEASURED,
                channel=link.channel,
            )

        changed = cluster.with_device_links(carrying)
        return replace(changed, dispatch=Dispatch(step_overhead_ns=self.call_ns))


def fit_collectives(
    all_reduces: Sequence[tuple[int, float]],
    all_gathers: Sequence[tuple[int, float]],
    *,
    replicas: int,
    call_ns: float,
) -> CollectiveTimes:
    """Return what explains times of single collectives, as (bytes that a replica sends on, ns).

    Raises:
        ValueError: no times, or some that are not positive.
    """
    reduce_ns, reduce_slope = relative_line(all_reduces, least_slope=_LEAST_NS_PER_BYTE)
    gather_ns, gather_slope = relative_line(all_gathers, least_slope=_LEAST_NS_PER_BYTE)
    rounds_ns = max(0.0, reduce_ns - gather_ns)  # The k - 1 hops that an all-reduce has more.
    return CollectiveTimes(
        call_ns=round(call_ns),
        launch_ns=round(max(0.0, gather_ns - rounds_ns)),
        hop_ns=round(rounds_ns / (replicas - 1)),
        ns_per_byte=(reduce_slope + gather_slope) / 2,
    )
