"""What a certificate shows, as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from placement_advisor.cost.table import CostSource
from placement_advisor.report.analysis.tables import one_line
from placement_advisor.report.trace_summary import fact
from placement_advisor.solvers.bounds.bound_in_words import argument_text
from placement_advisor.units import format_ns

if TYPE_CHECKING:
    from placement_advisor.solvers.certificate import Certificate

COSTS = {
    CostSource.MEASURED: "costs of ops, links and starts that were measured on these devices",
    CostSource.RECORDED: "op times from a recorded profile, links assumed where it shows none",
    CostSource.ASSUMED: "assumed costs: no op and no link was measured",
}


def render_certificate(told: Certificate) -> str:
    """Return the text, of a certificate that has been checked."""
    bound = told.bound
    devices = ", ".join(one_line(device.name) for device in told.cluster.devices)
    lines = [
        f"verified for {told.source} costs: no placement of these ops takes less than "
        f"{format_ns(bound.step_ns)} a step",
        "",
        fact("graph", told.graph_fingerprint),
        fact("devices", devices),
        *(
            fact("one device", f"{one_line(device)}: at least {format_ns(time_ns)}")
            for device, time_ns in bound.alone_ns.items()
        ),
        fact("several", f"at least {format_ns(bound.split_ns)}"),
        *(fact("", one_line(argument_text(each))) for each in bound.arguments),
        fact("covers", "these ops; splits of the batch or of a tensor make others"),
        fact("under", f"{COSTS[told.source]}, as the certificate holds them; for no others"),
    ]
    return "\n".join(map(str.rstrip, lines)) + "\n"
