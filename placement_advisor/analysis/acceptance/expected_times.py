"""What the products of the known step must take, and what the driver says of GPUs.

On cores they must take what they take without the profiler, on GPUs whose name has a datasheet what
the op model says. Left out: GPUs that are not alike, since TensorFlow numbers these in another
order than the driver, and GPUs of hosts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from placement_advisor.analysis.acceptance.observed import ExpectedTime, PairOfGpus
from placement_advisor.cost.gpu.op_costs import kernel_cost
from placement_advisor.machine.gpu_facts import facts_of_card
from placement_advisor.machine.nvidia import common_name, find_gpus, find_peer_access
from placement_advisor.machine.this_machine import gpu_count
from placement_advisor.tf.acceptance.known_step import LARGE_PRODUCTS, PRODUCTS, end_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.machine.nvidia import GpuPair
    from placement_advisor.tf.acceptance.known_step import End

# Two measurements of one thing on a shared machine: a loop took 54 or 88 ms for seconds at a time,
# a factor of 1.6. Mistaken units make far more.
SAME_WITHIN = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cards:
    """GPUs that are alike: what the driver calls them, and says of each two; None if unknown."""

    name: str | None = None
    topology: tuple[GpuPair, ...] | None = None
    peer_access: tuple[GpuPair, ...] | None = None

    def pair(self, first: int, second: int) -> PairOfGpus:
        """Return what is known of two of them, the lower number first."""
        return PairOfGpus(
            topology=_between(self.topology, first, second),
            peer_access=_between(self.peer_access, first, second),
        )


def cards_here() -> Cards:
    """Ask the driver about the GPUs that TensorFlow may see."""
    gpus = find_gpus()
    name = common_name(gpus)
    # Where some are hidden, the numbers of the others are not those of the driver.
    if name is None or gpu_count() != len(gpus.devices):
        return Cards(name=name)
    return Cards(name=name, topology=gpus.pairs, peer_access=find_peer_access())


def times_on_cores(
    device_at: Mapping[End, str], product_ns: Mapping[str, int]
) -> tuple[ExpectedTime, ...]:
    """Return what products must take on cores, by what one takes without the profiler."""
    return tuple(
        ExpectedTime(
            device=device,
            products=tuple(name for name in PRODUCTS if end_of(name) is end),
            time_ns=product_ns[device],
            within=SAME_WITHIN,
            source="without the profiler",
        )
        for end, device in device_at.items()
        if device in product_ns
    )


def times_on_cards(
    device_at: Mapping[End, str], cards: Cards, graph: OpGraph
) -> tuple[ExpectedTime, ...]:
    """Return what large products must take on GPUs; nothing if there is no datasheet of these."""
    facts = None if cards.name is None else facts_of_card(cards.name)
    if facts is None:
        return ()
    found = []
    for name in LARGE_PRODUCTS:
        kernel = graph.op(name).kernel
        assert kernel is not None, "products of matrices have a kernel"
        cost = kernel_cost(kernel, facts)
        error = "assumed" if cost.within is None else f"nine in ten within {cost.within:.2f}"
        found.append(
            ExpectedTime(
                device=device_at[end_of(name)],
                products=(name,),
                time_ns=cost.time_ns,
                within=max(SAME_WITHIN, cost.within or 0),
                source=f"by the op model of {cards.name} ({error})",
            )
        )
    return tuple(found)


def _between(pairs: tuple[GpuPair, ...] | None, first: int, second: int) -> GpuPair | None:
    return next(
        (pair for pair in pairs or () if (pair.first, pair.second) == (first, second)), None
    )
