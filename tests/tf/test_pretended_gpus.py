"""Processes of devices that are GPUs, as far as that shows without a GPU."""

from __future__ import annotations

import os

import pytest

from placement_advisor.errors import TestbedError
from placement_advisor.machine.this_machine import core_slots, gpu_slots
from placement_advisor.processes.calls import RemoteModule

pretended_gpus = RemoteModule("pretended_gpus")
FIRST, SECOND = gpu_slots(2)
(CORE,) = core_slots([min(os.sched_getaffinity(0))])


@pytest.mark.parametrize(
    ("slot", "visible", "seen"),
    [
        (SECOND, "0,1", "1"),
        (SECOND, "5, GPU-8932f937", "GPU-8932f937"),
        # Workers on cores must not take memory of GPUs that others use.
        (CORE, "0,1", ""),
    ],
)
def test_the_process_of_a_device_sees_its_gpu_alone(child, slot, visible, seen):
    found = child.call(pretended_gpus.visible_to, slot, visible, "a physical device")
    assert found == seen


def test_a_gpu_that_tensorflow_does_not_find_is_an_error_with_a_way_out(child):
    with pytest.raises(TestbedError, match="TensorFlow finds no GPU, though") as raised:
        child.call(pretended_gpus.visible_to, FIRST, "0")
    assert "CUDA_VISIBLE_DEVICES=" in str(raised.value.hint)


@pytest.mark.parametrize(("target", "seen"), [("grpc://localhost:20000", ""), ("", "0")])
def test_a_client_leaves_gpus_to_processes_of_devices(child, target, seen):
    found = child.call(pretended_gpus.visible_to_client, target)
    assert found == seen


def test_copies_of_devices_that_are_no_cores_neither_wait_for_ops_nor_wake(child):
    found = child.call(pretended_gpus.reach_without_core_clocks)
    assert (found.quantum_ns, found.wake_ns) == (0, 0)
