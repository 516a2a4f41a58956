"""How hosts are measured where what copies take is known, in a process with TensorFlow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from placement_advisor.machine.calibration import CopyTiming
from placement_advisor.tf.run import calibration

if TYPE_CHECKING:
    from placement_advisor.tf.run.calibration import Effort

_ENDS = ("a:0", "b:0")


def sizes_measured(one_way_ns: int, ns_per_byte: float) -> list[tuple[int, Effort]]:
    """Return the sizes that are measured over a network, and how, in two passes alike."""
    asked: list[tuple[int, Effort]] = []

    def errand(_: Any, ends: Any, size_bytes: int, effort: Effort, message_ns: float) -> CopyTiming:
        assert (ends, message_ns) == (_ENDS, one_way_ns)
        asked.append((size_bytes, effort))
        copy_ns = one_way_ns + round(ns_per_byte * size_bytes)
        return CopyTiming(size_bytes=size_bytes, copy_ns=copy_ns, send_ns=None, receive_ns=None)

    efforts: dict[int, Effort] = {}
    with patch.object(calibration, "errand", errand):
        first = calibration._errands(None, _ENDS, one_way_ns, efforts)  # type: ignore[arg-type]
        again = calibration._errands(None, _ENDS, one_way_ns, efforts)  # type: ignore[arg-type]
    assert first == again
    half = len(asked) // 2
    assert asked[:half] == asked[half:]
    return asked[:half]


def passes_made(each_s: float) -> int:
    """Return how often something is measured that takes so long."""
    now_s = [0.0]

    def pass_on() -> None:
        now_s[0] += each_s

    with patch.object(calibration.time, "monotonic", lambda: now_s[0]):
        return len(calibration._passes(pass_on))


def second_pair(one: int, other: int) -> tuple[str, str] | None:
    """Return the devices that copy beside the first ones of hosts that have so many."""
    names = [tuple(f"{host}:{i}" for i in range(n)) for host, n in (("a", one), ("b", other))]
    return calibration._second_pair(*names)
