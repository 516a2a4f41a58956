from __future__ import annotations

import pytest

from placement_advisor.errors import PlacementError
from placement_advisor.tf.user_step import real_devices

TWO_GPUS = ("CPU:0", "GPU:0", "GPU:1")
TWO_CPUS = ("CPU:0", "CPU:1")


def test_gpus_and_cpus_stand_for_themselves() -> None:
    assert real_devices(("GPU:1", "CPU:0"), TWO_GPUS, {}) == {"GPU:1": "GPU:1", "CPU:0": "CPU:0"}


def test_stand_ins_are_gpus_in_order_if_there_are_enough() -> None:
    names = ("worker:0", "worker:1")
    assert real_devices(names, TWO_GPUS, {}) == {"worker:0": "GPU:0", "worker:1": "GPU:1"}
    assert real_devices(names, TWO_CPUS, {}) == {"worker:0": "CPU:0", "worker:1": "CPU:1"}
    mixed = (*TWO_CPUS, "GPU:0")
    assert real_devices(names, mixed, {}) == {"worker:0": "CPU:0", "worker:1": "CPU:1"}


def test_the_user_chooses_some_and_the_rest_are_those_left() -> None:
    chosen = {"worker:0": "/GPU:1"}
    found = real_devices(("worker:0", "worker:1"), TWO_GPUS, chosen)
    assert found == {"worker:0": "GPU:1", "worker:1": "GPU:0"}


@pytest.mark.parametrize(
    ("names", "chosen", "message"),
    [
        (("GPU:2",), {}, "the placement uses 'GPU:2'; this process has CPU:0, GPU:0, GPU:1"),
        (("a", "b", "c"), {}, "the placement's a, b, c need 3 GPUs or CPUs; this process has"),
        (("a",), {"a": "TPU:0"}, "devices: 'a' is to be 'TPU:0'; this process has"),
        (("a",), {"b": "GPU:0"}, "devices: the placement has no 'b'; it has a"),
    ],
)
def test_what_is_not_here_is_named(
    names: tuple[str, ...], chosen: dict[str, str], message: str
) -> None:
    with pytest.raises(PlacementError) as caught:
        real_devices(names, TWO_GPUS, chosen)
    assert caught.value.message.startswith(message)


def test_where_there_are_too_few_cpus_the_line_that_makes_them_is_said() -> None:
    line = "tf.config.set_logical_device_configuration("
    for names, count in ((("worker:0", "worker:1"), 2), (("CPU:2",), 3), (("CPU:0", "a"), 2)):
        with pytest.raises(PlacementError) as caught:
            real_devices(names, ("CPU:0",), {})
        assert line in str(caught.value.hint)
        assert f"[tf.config.LogicalDeviceConfiguration()] * {count})" in str(caught.value.hint)
    with pytest.raises(PlacementError) as caught:
        real_devices(("GPU:1",), TWO_CPUS, {})
    assert line not in str(caught.value.hint)
