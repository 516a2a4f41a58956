"""What this system allows, for tests that need it: workers, and namespaces of their own."""

import subprocess

import pytest

from placement_advisor.machine.this_machine import can_have_private_network, usable_cores


def needs(*namespace):
    """Return a mark for tests that run commands within a namespace."""
    ran = subprocess.run([*namespace, "true"], check=False, capture_output=True)
    return pytest.mark.skipif(ran.returncode != 0, reason="the system refuses that namespace")


needs_mounts = needs("unshare", "--mount")
needs_private_network = pytest.mark.skipif(
    not can_have_private_network(), reason="this system allows no private network"
)
needs_workers = pytest.mark.skipif(
    len(usable_cores()) < 2 or not can_have_private_network(),
    reason="real runs need two cores of their own, and a private network",
)
