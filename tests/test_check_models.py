"""What a check does ahead of time."""

from __future__ import annotations

import pytest

from placement_advisor.check_models import _compile
from placement_advisor.hardware import read_hardware


@pytest.mark.parametrize("hardware", ["V100", "2xV100-NVLink", "2x(2xT4)-Ethernet100"])
def test_what_is_compiled_ahead_is_placed_and_simulated_on_any_hardware(hardware: str) -> None:
    _compile(read_hardware(hardware), {"auto"})
