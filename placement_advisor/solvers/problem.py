"""What a search is asked: ops with their times, tensors between them, devices that may be uneven.

Model: an op takes a time of its own on the devices of each pool. Its output, one tensor, is copied
once to every other device that reads it, which takes ``copy_time``; two devices that do not pay for
copies (CPUs that share memory) exchange tensors for nothing. Ops of one group stay together. What
is best is for the objective to say: the fullest device (`loads`) or the makespan (`delays`).

Left out: wires that several copies queue for, and links that differ.

Source: Tarnawski, Phanishayee, Devanur, Mahajan and Nina Paravecino, Efficient algorithms for
device placement of DNN graph operators (NeurIPS 2020), https://arxiv.org/abs/2006.16423.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Devices that are alike.

    ``work`` is the time that each op takes there, None where it cannot run; ``capacity_bytes`` is
    None where memory has no limit.
    """

    devices: tuple[str, ...]
    work: tuple[float | None, ...]
    capacity_bytes: int | None = None
    pays_for_copies: bool = True


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Ops by number, and devices by name. Times are in any one unit.

    ``edges`` are (producer, consumer). ``copy_time`` is for the output of each op, ``size_bytes``
    the memory that the op needs where it is. ``backward`` has the ops of the backward pass.
    ``groups`` has each op once.

    Raises:
        ValueError: times or sizes are not one for each op, which compiled searches rely on.
    """

    ops: tuple[str, ...]
    edges: tuple[tuple[int, int], ...]
    copy_time: tuple[float, ...]
    size_bytes: tuple[int, ...]
    backward: frozenset[int]
    groups: tuple[tuple[int, ...], ...]
    pools: tuple[Pool, ...]

    def __post_init__(self) -> None:
        of_ops = (self.copy_time, self.size_bytes, *(pool.work for pool in self.pools))
        if any(len(values) != len(self.ops) for values in of_ops):
            raise ValueError("times and sizes are one for each op")

    @cached_property
    def group_of(self) -> tuple[int, ...]:
        """The group of each op."""
        of = {op: number for number, group in enumerate(self.groups) for op in group}
        return tuple(of[op] for op in range(len(self.ops)))

    @cached_property
    def readers(self) -> Mapping[int, tuple[int, ...]]:
        """The other groups that read an op, of ops that are read by any."""
        found: dict[int, dict[int, None]] = defaultdict(dict)
        for producer, consumer in self.edges:
            if self.group_of[producer] != self.group_of[consumer]:
                found[producer][self.group_of[consumer]] = None
        return {op: tuple(groups) for op, groups in found.items()}

    @cached_property
    def devices(self) -> tuple[str, ...]:
        """All devices, pool by pool."""
        return tuple(chain.from_iterable(pool.devices for pool in self.pools))

    @cached_property
    def pool_of(self) -> Mapping[str, Pool]:
        """The pool of each device."""
        return {device: pool for pool in self.pools for device in pool.devices}

    def held_bytes(self, device_of: Sequence[str]) -> dict[str, int]:
        """Return the memory that the ops of each device need, given the device of each group."""
        held = dict.fromkeys(self.devices, 0)
        for group, device in zip(self.groups, device_of, strict=True):
            held[device] += sum(self.size_bytes[op] for op in group)
        return held
