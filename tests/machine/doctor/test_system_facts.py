import os
import subprocess
from pathlib import Path

import pytest

from placement_advisor.machine.this_machine import (
    Cores,
    can_have_private_network,
    find_cores,
    parse_sys_admin,
    usable_cores,
)
from placement_advisor.processes.calls import RemoteModule
from placement_advisor.processes.children import Child

refusing_system = RemoteModule("refusing_system")

_LIMIT_S = 600.0


def test_cores_are_those_that_affinity_and_quota_leave():
    cores = Cores(machine=16, allowed=8, physical=4, quota=3)
    assert cores.usable == 3
    assert Cores(machine=16, allowed=8, physical=4, quota=9).usable == 4
    assert Cores(machine=16, allowed=8, physical=4, quota=None).usable == 4

    cores = find_cores()
    assert cores.usable == len(usable_cores())
    assert cores.physical <= cores.allowed <= cores.machine

    allowed = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {max(allowed)})
        cores = find_cores()
        assert usable_cores() == (max(allowed),)
    finally:
        os.sched_setaffinity(0, allowed)
    assert (cores.allowed, cores.physical, cores.usable) == (1, 1, 1)


@pytest.mark.parametrize(
    ("effective", "has"),
    [
        ("CapEff:\t0000000000200000\n", True),  # Bit 21 alone.
        ("CapEff:\t000001ffffffffff\n", True),
        ("CapEff:\t00000000a80425fb\n", False),  # What Docker leaves to root.
        ("CapEff:\t0000000000000000\n", False),
        ("", None),  # A system without capabilities does not say.
    ],
)
def test_administrators_are_told_by_one_bit(effective, has):
    assert parse_sys_admin(f"Name:\tpython\nCapInh:\t0\n{effective}X:\t1\n") is has


def test_asking_for_a_network_changes_nothing_and_a_probe_that_hangs_has_none(monkeypatch):
    own = Path("/proc/self/ns/net").readlink()
    can_have_private_network()
    assert Path("/proc/self/ns/net").readlink() == own

    def hang(*args, **options):
        raise subprocess.TimeoutExpired(cmd="python", timeout=1)

    monkeypatch.setattr(subprocess, "run", hang)
    assert not can_have_private_network()


def test_a_system_that_refuses_has_no_private_network(fork_server):
    with Child("asking") as child:
        assert child.call(can_have_private_network, time_limit_s=_LIMIT_S)
        child.call(refusing_system.refuse_namespaces, time_limit_s=_LIMIT_S)
        assert not child.call(can_have_private_network, time_limit_s=_LIMIT_S)
