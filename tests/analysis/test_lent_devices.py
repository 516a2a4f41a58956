"""Which devices hosts lend, by what they say they have."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from examined_hosts import host

from placement_advisor.analysis.hosts import host_share, host_slots, uses_gpus
from placement_advisor.errors import TestbedError
from placement_advisor.machine.nvidia import Gpu, Gpus
from placement_advisor.machine.this_machine import core_slots, gpu_slots
from placement_advisor.remote_hosts.host_requests import HostRequest

if TYPE_CHECKING:
    from placement_advisor.remote_hosts.host_facts import HostFacts

GPUS = Gpus(devices=(Gpu(index=0, name="Tesla T4", memory_bytes=16 << 30),), driver="550.54.15")


def facts(visible_gpus: int, *, cores: int = 2) -> HostFacts:
    found = host("any", 1).facts
    assert found is not None
    gpus = GPUS if visible_gpus else Gpus()
    return replace(found, visible_gpus=visible_gpus, cores=tuple(range(cores)), gpus=gpus)


def asked(**hosts: tuple[int, int]) -> dict[HostRequest, HostFacts]:
    """Return hosts by name, as many devices as asked for and as many GPUs as visible of each."""
    return {
        HostRequest(name=name, devices=devices): facts(visible)
        for name, (devices, visible) in hosts.items()
    }


@pytest.mark.parametrize(
    ("hosts", "gpus"),
    [
        ({"a": (2, 0), "b": (1, 0)}, False),
        ({"a": (2, 2), "b": (1, 1)}, True),
        ({"a": (1, 8), "b": (1, 1)}, True),
    ],
)
def test_devices_are_gpus_where_all_hosts_have_enough_and_cores_where_none_has_any(
    hosts: dict[str, tuple[int, int]], gpus: bool
) -> None:
    assert uses_gpus(asked(**hosts)) is gpus


@pytest.mark.parametrize(
    ("hosts", "says", "there"),
    [
        ({"a": (2, 2), "b": (2, 0)}, "a has 2 for 2, b has none for 2", "--hosts a:2;"),
        ({"a": (2, 2), "b": (3, 1)}, "a has 2 for 2, b has 1 for 3", "--hosts a:2,b:1;"),
        ({"a": (4, 1), "b": (1, 0)}, "a has 1 for 4, b has none for 1", None),
    ],
)
def test_a_mixture_says_who_has_how_many_and_what_to_ask_for(
    hosts: dict[str, tuple[int, int]], says: str, there: str | None
) -> None:
    with pytest.raises(TestbedError) as raised:
        uses_gpus(asked(**hosts))
    assert raised.value.message == (
        f"--hosts: devices are GPUs on all hosts, or cores on all; of GPUs {says}"
    )
    hint = raised.value.hint
    assert hint is not None
    assert hint.endswith("--launch 'ssh {host} env CUDA_VISIBLE_DEVICES='")
    if there is None:  # One device has nothing to be split over.
        assert "for GPUs" not in hint
    else:
        assert there in hint


def test_a_host_lends_its_first_gpus_or_cores() -> None:
    request = HostRequest(name="a", devices=2)
    assert host_slots(request, facts(4, cores=1), gpus=True) == gpu_slots(2)
    assert host_slots(request, facts(0, cores=3), gpus=False) == core_slots((0, 1))
    with pytest.raises(TestbedError, match="2 devices need a core of their own each; it lets us"):
        host_slots(request, facts(0, cores=1), gpus=False)


def test_figures_of_gpus_are_not_taken_for_those_of_cores_or_of_other_gpus() -> None:
    request, on_gpus = HostRequest(name="a", devices=2), facts(2)
    other = replace(on_gpus, gpus=replace(GPUS, driver="560.35.03"))
    cores = host_share(request, on_gpus, "10.0.0.1", core_slots((0, 1)))
    cards = host_share(request, on_gpus, "10.0.0.1", gpu_slots(2))
    assert cores.fingerprint == on_gpus.fingerprint
    newer = host_share(request, other, "10.0.0.1", gpu_slots(2))
    assert len({cores.fingerprint, cards.fingerprint, newer.fingerprint}) == 3
    # A relay beside GPUs takes no device's core.
    assert cores.lends_all
    assert not cards.lends_all
    assert cards.gpus == GPUS
