"""Whether candidates can run on workers here, for tests that do."""

import pytest

from placement_advisor.machine.this_machine import can_have_private_network, usable_cores

needs_private_network = pytest.mark.skipif(
    not can_have_private_network(), reason="this system allows no private network"
)
needs_workers = pytest.mark.skipif(
    len(usable_cores()) < 2 or not can_have_private_network(),
    reason="real runs need two cores of their own, and a private network",
)
