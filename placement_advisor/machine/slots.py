"""What the process of a device has of its machine for itself: a core, or a GPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

CPU, GPU = "CPU", "GPU"


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """A core by the system's number, or a GPU by its place among those that are visible there.

    ``kind`` is that of the device which it makes, as of `Device`.
    """

    kind: str
    number: int

    @property
    def is_core(self) -> bool:
        """Whether it is a core."""
        return self.kind == CPU


def core_slots(cores: Iterable[int]) -> tuple[Slot, ...]:
    """Return a slot for each of these cores."""
    return tuple(Slot(kind=CPU, number=core) for core in cores)


def gpu_slots(count: int) -> tuple[Slot, ...]:
    """Return a slot for each of the first GPUs that are visible."""
    return tuple(Slot(kind=GPU, number=number) for number in range(count))
