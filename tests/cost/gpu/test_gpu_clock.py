from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from gpu_samples import CLOCK, GPU

from placement_advisor.cost.gpu.clock import at_clock_s

SLOT = replace(GPU, power_watts=70.0)


def test_a_card_with_power_of_its_own_keeps_its_clock() -> None:
    assert at_clock_s(np.array([3.0]), GPU, CLOCK) == [3.0]


def test_a_card_on_the_slot_keeps_it_in_short_kernels_and_half_in_long_ones_by_hand() -> None:
    short, middle, long = at_clock_s(np.array([1e-9, 1e-3, 1e3]), SLOT, CLOCK)
    assert short == pytest.approx(1e-9, rel=1e-5)
    assert middle == pytest.approx(1.5e-3)
    assert long == pytest.approx(2e3, rel=1e-5)


def test_later_chips_do_more_with_a_watt_by_hand() -> None:
    ada = replace(SLOT, capability=8.9, power_watts=35.0)
    assert at_clock_s(np.array([1e3]), ada, CLOCK) == pytest.approx(1e3 / 0.75, rel=1e-5)


def test_no_kernel_is_done_before_a_shorter_one() -> None:
    boosted = np.geomspace(1e-6, 1e2, 500)
    assert (np.diff(at_clock_s(boosted, SLOT, CLOCK)) > 0).all()
