"""Wires `advisor verify`: certificate file, graph file -> what the certificate shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from placement_advisor.graph.op_graph import OpGraph
from placement_advisor.solvers.certificate import read_certificate
from placement_advisor.solvers.verify import verify

if TYPE_CHECKING:
    from pathlib import Path

    from placement_advisor.solvers.certificate import Certificate


def verify_file(certificate_file: Path, graph_file: Path) -> Certificate:
    """Return the certificate, which has been checked against the graph.

    Raises:
        AdvisorError: a file cannot be read, or is not what it should be.
        RefusedError: the certificate does not show what it claims.
    """
    graph = OpGraph.load(graph_file)
    certificate = read_certificate(certificate_file)
    verify(certificate, graph)
    return certificate
