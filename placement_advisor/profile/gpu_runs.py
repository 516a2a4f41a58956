"""What GPUs ran and copied, collected event by event from a list of them, in columns."""

from __future__ import annotations

from array import array
from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np

from placement_advisor.profile.spans import Spans
from placement_advisor.profile.timeline.copy_kinds import CopyKind, copy_kind
from placement_advisor.profile.timeline.device_trace import (
    UNKNOWN_BYTES,
    USE_OF,
    Copied,
    Route,
    TraceBuilder,
    gpu_route,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from placement_advisor.profile.timeline.device_trace import Trace

# More than any computer has; each takes memory of its own.
MOST_GPUS = 1_000


class GpuRuns:
    """Kernels and copies so far."""

    def __init__(self) -> None:
        self._builder = TraceBuilder()
        self._kinds: dict[str, CopyKind | None] = {}
        self._gpus: set[int] = set()
        self._tensors: set[str] = set()
        # Start and end, one after the other; of copies the size and the tensor behind them.
        self._runs: defaultdict[tuple[int, str], array[int]]
        self._runs = defaultdict(lambda: array("q"))
        self._copies: defaultdict[Route, array[int]] = defaultdict(lambda: array("q"))

    def __len__(self) -> int:
        """Return how many names of kernels, tensors and routes there are."""
        return len(self._runs) + len(self._kinds) + len(self._tensors) + len(self._copies)

    @property
    def are_none(self) -> bool:
        """Whether no GPU did anything."""
        return not self._gpus

    def kind(self, name: str) -> CopyKind | None:
        """Return what kind of copy is called so, None for kernels."""
        if name not in self._kinds:
            self._kinds[name] = copy_kind(name)
        return self._kinds[name]

    def add_kernel(self, gpu: int, name: str, span: tuple[int, int]) -> None:
        """Add a kernel or a collective, by the moments of its start and end in ns."""
        self._gpus.add(gpu)
        self._runs[gpu, name].extend(span)

    def add_copy(
        self,
        gpu: int,
        kind: CopyKind,
        span: tuple[int, int],
        *,
        sender: int | None,
        receiver: int | None,
        size_bytes: int | None,
        tensor: str | None = None,
    ) -> None:
        """Add a copy that a GPU lists, with what is known of it."""
        self._gpus.add(gpu)
        route = gpu_route(kind, f"GPU:{gpu}", sender=_name(sender), receiver=_name(receiver))
        size = UNKNOWN_BYTES if size_bytes is None else size_bytes
        self._copies[route].extend((*span, size, self._builder.tensor(tensor)))
        if tensor is not None:
            self._tensors.add(tensor)

    def built(
        self, path: str, step_starts: Sequence[int], steps_from: str, notes: Sequence[str] = ()
    ) -> Trace:
        """Return the trace of all that was added."""
        self._builder.notes |= dict.fromkeys(notes)
        for gpu in sorted(self._gpus):
            self._builder.device(f"GPU:{gpu}")
        for (gpu, name), columns in self._runs.items():
            use = USE_OF[self.kind(name)]
            start_ns, end_ns = np.array(columns, np.int64).reshape(-1, 2).T
            self._builder.used(f"GPU:{gpu}", use, Spans(start_ns, end_ns))
            self._builder.row(name, use).add_each(end_ns - start_ns)
        for route, columns in self._copies.items():
            start_ns, end_ns, size_bytes, tensor = np.array(columns, np.int64).reshape(-1, 4).T
            copied = Copied(spans=Spans(start_ns, end_ns), size_bytes=size_bytes, tensor=tensor)
            self._builder.copies(route, copied)
            self._builder.row(route.kind, USE_OF[route.kind]).add_each(end_ns - start_ns)
        return self._builder.build(path, step_starts, steps_from)


def _name(gpu: int | None) -> str | None:
    return None if gpu is None else f"GPU:{gpu}"
