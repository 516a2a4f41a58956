"""What happens in a simulated step: ops run, and tensors cross."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from placement_advisor.graph.op import CONTROL_PORT, Total

if TYPE_CHECKING:
    from collections.abc import Iterable

    from placement_advisor.simulator.intervals import Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class OpRun:
    """One run of an op.

    ``launch`` is when the host was busy with launching it, where the device launches ahead: it is
    ready to be launched, and has its turn to run after that.
    """

    op: str
    device: str
    ready_ns: int
    start_ns: int
    end_ns: int
    launch: Interval | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """One tensor (or control signal, port -1) on its way to another device.

    It sets out ``queued_ns`` before ``start_ns``, when its bytes get hold of the wire, which others
    had, or for which the target's request had not come. Where processors move the bytes, the source
    works on it for ``send_work_ns`` from when it sets out. The tensor arrives, is held for
    ``held_ns`` until the target has time for it, and the target works on it for
    ``receive_work_ns`` until ``end_ns``. ``collective`` names the collective of which it is a hop.
    ``size_bytes`` is None where nobody knows it, and 0 for a control signal.
    """

    producer: str
    port: int
    source: str
    target: str
    size_bytes: int | None
    start_ns: int
    end_ns: int
    queued_ns: int = 0
    held_ns: int = 0
    send_work_ns: int = 0
    receive_work_ns: int = 0
    collective: str | None = None

    @property
    def is_control(self) -> bool:
        """Whether it is a control signal."""
        return self.port == CONTROL_PORT

    @property
    def tensor(self) -> str:
        """What crosses, as TensorFlow names inputs: ``op:port``, or ``^op`` for control."""
        return f"^{self.producer}" if self.is_control else f"{self.producer}:{self.port}"

    @property
    def set_out_ns(self) -> int:
        """When it begins to queue for the wire, and its source to work on it."""
        return self.start_ns - self.queued_ns

    @property
    def send_work(self) -> Interval:
        """When the source works on it."""
        return self.set_out_ns, self.set_out_ns + self.send_work_ns

    @property
    def receive_work(self) -> Interval:
        """When the target works on it."""
        return self.end_ns - self.receive_work_ns, self.end_ns


def carried(transfers: Iterable[Transfer]) -> Total:
    """Return the bytes of the tensors that cross, a part each; a control signal is none."""
    return Total.of(each.size_bytes for each in transfers if not each.is_control)
