"""What `advisor verify` answers: what a certificate proves of a graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from annotated_types import Ge, Le

from placement_advisor.files.contract import STRICT, ByName, Ns, Rows, Text, like

if TYPE_CHECKING:
    from placement_advisor.solvers.certificate import Certificate


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """What a certificate shows, once it has been checked; a refused one prints nothing."""

    __pydantic_config__: ClassVar = STRICT

    schema_version: Annotated[int, Ge(1), Le(1)]
    verified: Literal[True]
    """Every argument of the certificate holds."""
    graph_fingerprint: Text
    """Fingerprint of the graph that it is about."""
    devices: Rows[Text]
    """Devices in order, hosts left out."""
    costs_from: Literal["measured", "recorded", "assumed"]
    """Whose costs the claim holds under, and no others: `measured` on these devices, `recorded` in
    a profile (links assumed where it shows none), or `assumed`.
    """
    step_ns: Ns
    """What a step takes at least under any placement of these ops."""
    split_ns: Ns
    """What it takes at least on several devices."""
    alone_ns: ByName[Ns]
    """What it takes at least on each device, or host, alone."""

    @classmethod
    def of(cls, told: Certificate) -> Verification:
        """Return what is published of a certificate that holds."""
        return like(
            cls,
            told.bound,
            schema_version=1,
            verified=True,
            graph_fingerprint=told.graph_fingerprint,
            devices=tuple(device.name for device in told.cluster.devices),
            costs_from=told.source.value,
            alone_ns=dict(told.bound.alone_ns),
        )
