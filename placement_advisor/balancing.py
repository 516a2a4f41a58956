"""Times a step alone on each device of a testbed, at several batch sizes, in turns."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Any

from placement_advisor.batch_split.programs import share_folder
from placement_advisor.candidates import single
from placement_advisor.children import ChildFailure
from placement_advisor.cost.balance import DeviceSpeed, speed_of
from placement_advisor.errors import TestbedError
from placement_advisor.tf.answers import RunFailure
from placement_advisor.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from placement_advisor.testbed import Testbed
    from placement_advisor.tf.answers import TracedShare
    from placement_advisor.trial import Watcher

_ROUNDS = 7
# What a turn takes at least, so that a device which is slowed down in slices shows its mean speed.
_TURN_NS = 0.3 * NS_PER_S
_MAX_STEPS = 50
_CALL_LIMIT_S = 300.0


def time_devices(
    testbed: Testbed,
    shares: Mapping[int, TracedShare],
    bundles: Mapping[int, Any],
    watcher: Watcher,
) -> tuple[DeviceSpeed, ...]:
    """Time each share of a batch on each device of a running testbed, alone and in turns.

    ``shares`` has the traces by number of samples, ``bundles`` the folder of each.

    Raises:
        TestbedError: a step does not run on one of the devices.
    """
    names = [device.name for device in testbed.plan.devices]
    runs = [(name, samples) for samples in shares for name in names]
    for samples, share in shares.items():
        testbed.add_program(share_folder(samples), bundles[samples], share.graph)
    for done, (name, samples) in enumerate(runs):
        watcher.working("preparing", done, len(runs), _label(name, samples))
        alone = single.on_device(shares[samples].graph, name)
        _must(
            testbed, "prepare", _label(name, samples), dict(alone.device_of), share_folder(samples)
        )
    steps = {run: _steps(_must(testbed, "run_steps", _label(*run), 0, 3)) for run in runs}
    samples_ns: dict[tuple[str, int], list[int]] = {run: [] for run in runs}
    for number in range(_ROUNDS):
        for run in runs:
            watcher.working("timing rounds", number, _ROUNDS, _label(*run))
            samples_ns[run] += _must(testbed, "run_steps", _label(*run), 0, 1 + steps[run])[1:]
    return tuple(
        speed_of(name, {samples: samples_ns[name, samples] for samples in shares}) for name in names
    )


def _steps(times_ns: Sequence[int]) -> int:
    return max(3, min(_MAX_STEPS, round(_TURN_NS / max(1.0, median(times_ns)))))


def _label(device: str, samples: int) -> str:
    return f"{samples} samples on {device}"


def _must(testbed: Testbed, function: str, label: str, *args: Any) -> Any:
    answer = testbed.call(function, label, *args, time_limit_s=_CALL_LIMIT_S)
    if isinstance(answer, ChildFailure | RunFailure):
        raise TestbedError(f"{label}: the step does not run: {answer.message}")
    return answer
