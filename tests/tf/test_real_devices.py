from __future__ import annotations

import pytest

from placement_advisor.errors import PlacementError
from placement_advisor.tf.user_step import real_devices

TWO_GPUS = ("CPU:0", "GPU:0", "GPU:1")
TWO_CPUS = ("CPU:0", "CPU:1")
TWO_WORKERS = ("worker:0", "worker:1")


@pytest.mark.parametrize(
    ("names", "here", "chosen", "found"),
    [
        (("GPU:1", "CPU:0"), TWO_GPUS, {}, ("GPU:1", "CPU:0")),
        # Stand-ins are GPUs in order if there are enough.
        (TWO_WORKERS, TWO_GPUS, {}, ("GPU:0", "GPU:1")),
        (TWO_WORKERS, TWO_CPUS, {}, ("CPU:0", "CPU:1")),
        (TWO_WORKERS, (*TWO_CPUS, "GPU:0"), {}, ("CPU:0", "CPU:1")),
        (TWO_WORKERS, TWO_GPUS, {"worker:0": "/GPU:1"}, ("GPU:1", "GPU:0")),
    ],
)
def test_devices_stand_for_themselves_or_are_chosen_or_those_left_in_order(
    names, here, chosen, found
):
    assert real_devices(names, here, chosen) == dict(zip(names, found, strict=True))


@pytest.mark.parametrize(
    ("names", "chosen", "message"),
    [
        (("GPU:2",), {}, "the placement uses 'GPU:2'; this process has CPU:0, GPU:0, GPU:1"),
        (("a", "b", "c"), {}, "the placement's a, b, c need 3 GPUs or CPUs; this process has"),
        (("a",), {"a": "TPU:0"}, "devices: 'a' is to be 'TPU:0'; this process has"),
        (("a",), {"b": "GPU:0"}, "devices: the placement has no 'b'; it has a"),
    ],
)
def test_what_is_not_here_is_named(names, chosen, message):
    with pytest.raises(PlacementError) as caught:
        real_devices(names, TWO_GPUS, chosen)
    assert caught.value.message.startswith(message)


def test_where_there_are_too_few_cpus_the_line_that_makes_them_is_said():
    line = "tf.config.set_logical_device_configuration("
    for names, count in ((("worker:0", "worker:1"), 2), (("CPU:2",), 3), (("CPU:0", "a"), 2)):
        with pytest.raises(PlacementError) as caught:
            real_devices(names, ("CPU:0",), {})
        assert line in str(caught.value.hint)
        assert f"[tf.config.LogicalDeviceConfiguration()] * {count})" in str(caught.value.hint)
    with pytest.raises(PlacementError) as caught:
        real_devices(("GPU:1",), TWO_CPUS, {})
    assert line not in str(caught.value.hint)
