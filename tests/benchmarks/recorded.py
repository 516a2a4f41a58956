"""What is read from a profile that was recorded elsewhere: ops, copies, links.

    python tests/benchmarks/recorded.py LOGDIR

Ops with the most time stand first. A link is fitted where its copies say enough; its error is the
median of |fit - recorded| / recorded.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from placement_advisor.cost.links import residuals
from placement_advisor.errors import AdvisorError
from placement_advisor.profile.recorded_costs import recorded_links
from placement_advisor.profile.recorded_ops import RecordedProfile, read_recorded
from placement_advisor.units import format_bandwidth, format_bytes, format_ns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from placement_advisor.machine.devices import Link
    from placement_advisor.profile.recorded_ops import Sample

_MAX_OPS = 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", type=Path)
    try:
        _show(read_recorded(parser.parse_args().path))
    except AdvisorError as error:
        raise SystemExit(f"{error.message}\n{error.hint or ''}") from None


def _show(recorded: RecordedProfile) -> None:
    on_device = [op for op in recorded.ops if op.on_device]
    ops_ns = sum(sum(op.step_ns) for op in on_device)
    print(
        f"{len(on_device)} ops on devices, {len(recorded.ops) - len(on_device)} on their hosts; "
        f"{format_ns(ops_ns)} in ops, {format_ns(recorded.anonymous_ns)} in no op"
    )
    for op in sorted(on_device, key=lambda op: -op.median_ns)[:_MAX_OPS]:
        print(f"  {format_ns(op.median_ns)}  {op.name}:{op.kind}  × {len(op.step_ns)}")
    links = recorded_links(recorded)
    for (source, target), copies in recorded.copies.items():
        sizes = sorted(size for size, _ in copies)
        print(
            f"{source} → {target}: {len(copies)} copies of {format_bytes(sizes[0])} to "
            f"{format_bytes(sizes[-1])}; {_fit(links.get((source, target)), copies)}"
        )


def _fit(link: Link | None, copies: Sequence[Sample]) -> str:
    if link is None:
        return "too few sizes, or too small ones, for a link"
    error = median(map(abs, residuals(link, copies)))
    bandwidth = format_bandwidth(link.bandwidth_bytes_per_s)
    return f"{format_ns(link.latency_ns)} + size at {bandwidth}, error {error:.0%}"


if __name__ == "__main__":
    main()
