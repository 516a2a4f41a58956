"""A service that can be spoken with, whichever way it was reached."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from placement_advisor.remote_hosts.byte_streams import ByteStream


class ReachedService(Protocol):
    """The stream to a service, and what there is to tell of the way there.

    ``command`` reaches it again, for the user to try.
    """

    command: str
    stream: ByteStream

    def account(self, *, wait_s: float) -> str:
        """Return how the way there ended, in words; empty if it is there after so long."""

    def said(self) -> str:
        """Return what was said on the way, as by ssh; empty if nothing was."""

    def kill(self) -> None:
        """End the way there at once."""

    def wait(self) -> None:
        """Wait until nothing is left of it on this machine."""
