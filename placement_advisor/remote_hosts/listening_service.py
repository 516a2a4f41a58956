"""A service that waits on a host already, reached over TLS: `advisor worker --listen`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from placement_advisor.remote_hosts.byte_streams import PipeStream
from placement_advisor.remote_hosts.control_port import connect, place

if TYPE_CHECKING:
    from placement_advisor.remote_hosts.byte_streams import ByteStream


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """Where a service waits on a host, and what it shares with those whom it serves."""

    address: str
    port: int
    secret: bytes = field(repr=False)


class ListeningService:
    """A connection to a service; there is no process of ours, as `LaunchedService` has one."""

    def __init__(self, waiting: Waiting) -> None:
        """Connect to it.

        Raises:
            AdvisorError: it cannot be reached, or has another secret.
        """
        self.command = f"advisor worker --listen {place(waiting.address, waiting.port)}"
        descriptor = connect(waiting.address, waiting.port, waiting.secret).detach()
        self.stream: ByteStream = PipeStream(descriptor, descriptor)

    def account(self, *, wait_s: float) -> str:
        """Return nothing: how it ended is not known here."""
        return ""

    def said(self) -> str:
        """Return nothing: what it prints is printed there."""
        return ""

    def kill(self) -> None:
        """Do nothing: it notices that the connection is gone, and waits for the next analysis."""

    def wait(self) -> None:
        """Do nothing: it goes on."""
