"""Which figures compare: those of testbeds with equal fingerprints."""

from __future__ import annotations

import os
from importlib.metadata import version
from typing import TYPE_CHECKING

from placement_advisor.machine.calibration import SCHEMA_VERSION
from placement_advisor.machine.this_machine import fingerprint

if TYPE_CHECKING:
    from placement_advisor.machine.testbed_plan import TestbedPlan


def testbed_fingerprint(plan: TestbedPlan) -> str:
    """Return a hash of all that figures of this testbed depend on; others do not compare.

    Raises:
        PackageNotFoundError: there is no TensorFlow.
    """
    devices = (device.name for device in plan.devices)
    return fingerprint((plan.kind.value, *devices, version("tensorflow")))


def calibration_fingerprint(plan: TestbedPlan) -> str:
    """Return the name under which a calibration is kept: the system's scheduler matters to it.

    Raises:
        PackageNotFoundError: there is no TensorFlow.
    """
    return fingerprint((testbed_fingerprint(plan), os.uname().release, str(SCHEMA_VERSION)))
