"""What `advisor balance` answers: how to share a batch among devices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

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
    """Independent of batch."""
    per_sample_bytes: NotNegative


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """Steps of one batch on one device, and how far the line is off."""

    samples: Positive
    step_ns: Ns
    """Mean without outer tenths."""
    residual: float
    """(line - measured) / measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceAlone:
    """A device alone, and the line through its measurements."""

    name: Text
    most_samples: Positive | None
    """None without known limit."""
    fixed_ns: Ns
    """Independent of batch, fitted."""
    per_sample_ns: NotNegative
    """Fitted."""
    measured: Rows[Timed]
    """Largest batch first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """A split that was run."""

    samples: Rows[Positive]
    """By device."""
    step_ns: Ns
    """Mean without outer tenths."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """A split of the batch, by the lines of devices alone."""

    samples: Rows[Count]
    """By device."""
    slowest_ns: Ns
    """Slowest device, without merging."""
    most_samples_per_s: NotNegative
    """Of all devices, without merging."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Balance:
    """How to share a batch among devices, from what each takes alone."""

    __pydantic_config__: ClassVar = STRICT

    schema_version: Literal[1]
    advisor_version: Text
    model: Text
    testbed: Text
    batch: Positive
    warnings: Rows[Text]
    memory: Memory
    devices: Rows[DeviceAlone]
    advised: Rows[Count]
    """By device: best tried, else of lines."""
    tried: Rows[Tried]
    best: Shares
    even: Shares
    other_batches: Rows[Shares]
    """Half, same, twice, four times."""
    best_batch: Shares | None
    """Most samples per second; None: memory unknown."""

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
