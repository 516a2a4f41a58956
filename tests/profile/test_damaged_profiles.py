"""Profiles that are cut short, flipped and full of lies: one clear error, or figures."""

from __future__ import annotations

import random
import resource
import time
from typing import TYPE_CHECKING

import pytest
from recorded_profiles import copy, event, gpu, host, kernel, mark, trace_of, write

from placement_advisor.errors import AdvisorError
from placement_advisor.profile.totals import ProfileTotals, totals_of
from placement_advisor.profile.xplane import Plane
from placement_advisor.profile.xplane_schema import TASK_PLANE

if TYPE_CHECKING:
    from pathlib import Path

LIMIT_S = 10.0
# On top of three times the file, which is small here.
MOST_BYTES = 100_000_000


def sound(path: Path) -> bytes:
    """Return a profile with all that the reader looks at."""
    kernels = [
        kernel("a/MatMul:MatMul", 10 * i, 10 * i + 8, correlation_id=i, group_id=i // 5)
        for i in range(20)
    ]
    copies = [copy("MemcpyP2P", 64, 10 * i + 4, 5, dest=1) for i in range(20)]
    named = [event("MemcpyH2D", 3, 9, memcpy_details="size:5 dest:0", edge_name="edge_1_a")]
    launches = [event("launch", i, i + 1, correlation_id=i) for i in range(20)]
    task = Plane(name=TASK_PLANE, stats={"profile_start_time": 1_795_257_210_000_000_000})
    planes = (host([mark(0, 0, 90), *launches]), gpu(0, kernels, copies), gpu(1, named), task)
    return write(path, *planes).read_bytes()


def damaged(content: bytes, draw: random.Random) -> bytes:
    """Return the bytes cut short, with bits flipped, or with lies where lengths and times are."""
    data = bytearray(content)
    way = draw.randrange(4)
    if way == 0:
        return bytes(data[: draw.randrange(len(data))])
    for _ in range(draw.randint(1, 8)):
        at = draw.randrange(len(data))
        if way == 1:
            data[at] ^= 1 << draw.randrange(8)
        elif way == 2:
            data[at : at + 1] = draw.choice(
                [b"\xff" * 9 + b"\x01", b"\xff\xff\xff\xff\x7f", b"\x80" * 10, b"\x00", b"\x7f"]
            )
        else:
            end = min(len(data), at + draw.randrange(40))
            data[at:end] = data[draw.randrange(len(data)) :][: end - at]
    return bytes(data)


def read_or_refused(path: Path) -> ProfileTotals | AdvisorError:
    try:
        return totals_of(trace_of(path))
    except AdvisorError as error:
        return error


def read_all(folder: Path, count: int) -> dict[str, int]:
    """Read damaged profiles, and return how many were refused and how many were read."""
    path = folder / "p.xplane.pb"
    content = sound(path)
    draw = random.Random(17)
    totals_of(trace_of(path))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    came_out = {"refused": 0, "read": 0}
    for _ in range(count):
        path.write_bytes(damaged(content, draw))
        start = time.monotonic()
        profile = read_or_refused(path)
        if isinstance(profile, AdvisorError):
            assert str(path) in profile.message
            came_out["refused"] += 1
        else:
            assert all(d.idle_ns >= 0 for d in profile.devices)
            assert 0 <= profile.unclassified_share <= 1
            came_out["read"] += 1
        assert time.monotonic() - start < LIMIT_S
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    assert grown < MOST_BYTES + 3 * len(content)
    return came_out


def test_damaged_profiles_are_read_or_refused(tmp_path: Path) -> None:
    came_out = read_all(tmp_path, 1_000)
    # Most flips do not hit the structure; most cuts do.
    assert min(came_out.values()) > 100


@pytest.mark.slow
def test_ten_thousand_damaged_profiles_are_read_or_refused(tmp_path: Path) -> None:
    assert sum(read_all(tmp_path, 10_000).values()) == 10_000
