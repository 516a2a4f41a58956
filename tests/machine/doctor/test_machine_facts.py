"""What is found out about this machine: packages against what is asked of them, and its system."""

import os
import subprocess
from importlib import metadata
from pathlib import Path

import pytest

from placement_advisor.machine.machine_facts import (
    NEEDED,
    VIEWERS,
    Package,
    Unmet,
    fits,
    has_profile_plugin,
    installed_packages,
    packages,
    wanted_python,
)
from placement_advisor.machine.this_machine import (
    Cores,
    can_have_private_network,
    find_cores,
    parse_sys_admin,
    usable_cores,
)
from placement_advisor.processes.calls import RemoteModule
from placement_advisor.processes.children import Child


@pytest.mark.parametrize(
    ("version", "wanted", "answer"),
    [
        ("2.21.0", ">=2.21,<2.22", True),
        ("2.22.0", ">=2.21,<2.22", False),
        ("2.22.0rc1", "<2.22", False),
        ("2.22.0rc1", ">=2.21", True),
        ("0.68.1+cpu", ">=0.62", True),
        ("1.0", "", True),
        ("1.0", "about 2", True),
        ("2.0 of ours", "<1", True),
    ],
)
def test_a_version_is_among_those_wanted_or_not(version, wanted, answer):
    assert fits(version, wanted) is answer


def test_what_is_asked_of_a_package_is_gathered_from_all():
    found = packages(
        {"tensorflow": "2.21.0", "protobuf": "8.1.0", "xprof": None},
        {
            "placement-advisor": ["tensorflow<2.22,>=2.21", "protobuf>=6.31"],
            "tensorflow": [
                "Protobuf (<8.0.0,>=6.31.1)",
                'protobuf<1; extra == "old"',
                "numpy",
                "no requirement",
            ],
            "xprof": ["protobuf[upb]>=3.19.6"],
        },
    )
    assert found == (
        Package(name="tensorflow", version="2.21.0", wanted="<2.22,>=2.21", unmet=()),
        Package(
            name="protobuf",
            version="8.1.0",
            wanted=">=6.31",
            unmet=(Unmet(by="tensorflow", wanted="<8.0.0,>=6.31.1"),),
        ),
        Package(name="xprof", version=None, wanted=None, unmet=()),
    )

    (found,) = packages({"keras": None}, {"placement-advisor": ["keras>=3.12"]})
    assert found == Package(name="keras", version=None, wanted=">=3.12", unmet=())


def test_this_environment_has_what_it_wants():
    found = {package.name: package for package in installed_packages()}
    assert set(found) == {*NEEDED, *VIEWERS}
    assert all(package.version and not package.unmet for package in found.values())
    assert found["tensorflow"].version == metadata.version("tensorflow")
    assert has_profile_plugin()
    wanted = wanted_python()
    assert wanted is None or fits("3.11.0", wanted)


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
    refuse = RemoteModule("refusing_system").refuse_namespaces
    with Child("asking") as child:
        assert child.call(can_have_private_network, time_limit_s=600.0)
        child.call(refuse, time_limit_s=600.0)
        assert not child.call(can_have_private_network, time_limit_s=600.0)
