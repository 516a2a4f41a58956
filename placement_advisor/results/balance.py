"""What `advisor balance` answers: how to share a batch among devices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

from annotated_types import Ge, Le

from placement_advisor import __version__
from placement_advisor.files.contract import (
    STRICT,
    Count,
    NotNegative,
    Ns,
    Positive,
    Rows,
    Text,
    like,
)

if TYPE_CHECKING:
    from placement_advisor.cost import batch_balance
    from placement_advisor.cost.batch import SplitStep


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What a step holds on one device, simulated: a line over its samples."""

    fixed_bytes: Count
    """What it holds whatever its batch: variables, gradients of them, constants."""
    per_sample_bytes: NotNegative
    """What each sample adds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """Steps of one batch on one device, and how far the line is off."""

    samples: Positive
    """Samples of the batch."""
    step_ns: Ns
    """Mean step time, without the tenth at either end."""
    residual: float
    """(line - measured) / measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceAlone:
    """A device alone, and the line through its measurements."""

    name: Text
    """Name of the device."""
    most_samples: Positive | None
    """Samples that the device's memory holds, by `memory`; None if no limit is known."""
    fixed_ns: Ns
    """What a step takes whatever its batch, by the line through the measurements."""
    per_sample_ns: NotNegative
    """What each sample adds."""
    measured: Rows[Timed]
    """One entry for each batch size, the largest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """A split that was run."""

    samples: Rows[Positive]
    """Samples of each device, in the order of `devices`."""
    step_ns: Ns
    """Mean step time, without the tenth at either end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """A split of the batch, by the lines of devices alone."""

    samples: Rows[Count]
    """Samples of each device, in the order of `devices`."""
    slowest_ns: Ns
    """Step of the slowest device, by its line; merging comes on top."""
    most_samples_per_s: NotNegative
    """Samples per second of all devices, if merging cost nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Balance:
    """How to share a batch among devices, from what each takes alone."""

    __pydantic_config__: ClassVar = STRICT

    schema_version: Annotated[int, Ge(1), Le(1)]
    advisor_version: Text
    """Version of placement-advisor that timed the devices."""
    model: Text
    """The model as the user gave it."""
    testbed: Text
    """What was timed, in words."""
    batch: Positive
    """Samples of the global batch."""
    warnings: Rows[Text]
    """What the user should know."""
    memory: Memory
    devices: Rows[DeviceAlone]
    """Each device alone, in order."""
    advised: Rows[Count]
    """Samples that each device should get: the best split that was run, that of the lines if none
    was.
    """
    tried: Rows[Tried]
    """The splits that were run."""
    best: Shares
    """The split that is done soonest."""
    even: Shares
    other_batches: Rows[Shares]
    """Best splits of half, the same, twice and four times the batch that fit, by the lines of
    devices alone.
    """
    best_batch: Shares | None
    """That of most samples per second that fits; None where memory is not known."""

    @classmethod
    def of(cls, balance: batch_balance.Balance) -> Balance:
        """Return it as it is published."""
        best_batch = balance.best_batch
        return like(
            cls,
            balance,
            schema_version=1,
            advisor_version=__version__,
            memory=like(Memory, balance.memory),
            devices=tuple(map(_device, balance.devices, balance.most)),
            advised=tuple(balance.advised),
            tried=tuple(
                Tried(samples=samples, step_ns=step_ns)
                for samples, step_ns in balance.tried.items()
            ),
            best=_shares(balance.best),
            even=_shares(balance.even),
            other_batches=tuple(map(_shares, balance.others)),
            best_batch=None if best_batch is None else _shares(best_batch),
        )


def _device(device: batch_balance.DeviceSpeed, most_samples: int | None) -> DeviceAlone:
    return like(
        DeviceAlone,
        device,
        most_samples=most_samples,
        fixed_ns=device.line.fixed_ns,
        per_sample_ns=device.line.per_sample_ns,
        measured=tuple(
            Timed(samples=point.batch, step_ns=round(point.step_ns), residual=residual)
            for point, residual in zip(device.points, device.residuals, strict=True)
        ),
    )


def _shares(split: SplitStep) -> Shares:
    return like(Shares, split, samples=tuple(split.batches))
