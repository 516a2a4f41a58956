from math import log2

import pytest

from placement_advisor.errors import AdvisorError
from placement_advisor.machine.gpu_facts import facts_of_card, gpu_facts, gpus_with_facts
from placement_advisor.machine.presets import hardware_figures


def test_datasheets_are_those_of_presets_by_name_and_chip():
    presets = hardware_figures()["devices"].values()
    assert {table["gpu"] for table in presets} == set(gpus_with_facts())

    capabilities = {}
    for name in gpus_with_facts():
        facts = gpu_facts(name)
        capabilities.setdefault(facts.chip, set()).add(facts.capability)
    assert all(len(found) == 1 for found in capabilities.values())

    with pytest.raises(AdvisorError, match="no datasheet of GPU 'V100'; there are V100-"):
        gpu_facts("V100")


@pytest.mark.parametrize("name", gpus_with_facts())
def test_matrix_units_do_a_power_of_two_as_many_flops(name):
    facts = gpu_facts(name)
    # Units do a power of two as many; H100's are rated at a clock that is 8 % lower.
    for peak in filter(None, (facts.tf32_flops_per_s, facts.half_flops_per_s)):
        doublings = log2(peak / facts.peak_flops_per_s)
        assert doublings == pytest.approx(round(doublings), abs=0.12)


@pytest.mark.parametrize(
    ("driver", "chip"),
    [
        ("Tesla V100-SXM2-16GB", "GV100"),
        ("NVIDIA A100-SXM4-80GB", "GA100"),
        ("NVIDIA GeForce RTX 3090", "GA102"),
        *((other, None) for other in ("NVIDIA GeForce GT 710", "", "NVIDIA")),
    ],
)
def test_a_card_is_known_by_what_the_driver_calls_it_and_taken_for_no_other(driver, chip):
    facts = facts_of_card(driver)
    assert (facts and facts.chip) == chip
