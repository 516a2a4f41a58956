"""Which devices of this process the devices of a placement stand for.

``GPU:1`` and ``CPU:0`` stand for themselves. Other names (the stand-ins ``worker:0``, those of a
cluster file) are taken in order: GPUs if there are enough of them, else CPUs.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from placement_advisor.errors import PlacementError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_ITSELF = re.compile(r"(GPU|CPU):\d+")
_KINDS = ("GPU", "CPU")


def real_devices(
    names: Sequence[str], here: Sequence[str], chosen: Mapping[str, str]
) -> dict[str, str]:
    """Return the device of this process, like ``GPU:0``, for each of a placement's devices.

    ``names`` are the placement's devices in order, ``here`` this process's, ``chosen`` what the
    user said for some of them.

    Raises:
        PlacementError: a device is not here, or there are too few.
    """
    for name, device in chosen.items():
        if name not in names:
            raise PlacementError(
                f"devices: the placement has no {name!r}; it has {', '.join(names)}"
            )
        _check_here(short_name(device), here, f"devices: {name!r} is to be {device!r}")
    found = {name: short_name(device) for name, device in chosen.items()}
    for name in names:
        if name not in found and is_real(name):
            _check_here(name, here, f"the placement uses {name!r}")
            found[name] = name
    others = [name for name in names if name not in found]
    for kind in _KINDS:
        free = [d for d in here if d.startswith(f"{kind}:") and d not in found.values()]
        if len(free) >= len(others):
            return found | dict(zip(others, free, strict=False))
    taken = sum(device.startswith("CPU:") for device in found.values())
    raise PlacementError(
        f"the placement's {', '.join(others)} need {len(others)} GPUs or CPUs; "
        f"this process has {', '.join(here)}",
        hint=f"say which to use with devices={{...}}, or {_more_cpus(taken + len(others))}",
    )


def is_real(name: str) -> bool:
    """Whether a placement's device stands for itself."""
    return _ITSELF.fullmatch(name) is not None


def short_name(device: str) -> str:
    """Return ``GPU:1`` for ``/GPU:1``, ``/device:GPU:1`` and TensorFlow's full names."""
    return re.sub(r".*/(device:)?", "", device).upper()


def _check_here(device: str, here: Sequence[str], what: str) -> None:
    if device not in here:
        hint = "say which of them to use with devices={...}"
        if device.startswith("CPU:") and is_real(device):
            hint += f", or {_more_cpus(int(device.removeprefix('CPU:')) + 1)}"
        raise PlacementError(f"{what}; this process has {', '.join(here)}", hint=hint)


def _more_cpus(count: int) -> str:
    """Return what to do to have so many logical CPUs: what TensorFlow takes in no other order."""
    return (
        f"cut this process's CPU into {count}, before anything else uses TensorFlow: "
        'tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], '
        f"[tf.config.LogicalDeviceConfiguration()] * {count})"
    )
