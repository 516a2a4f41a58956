"""What times on a GPU that nobody can measure here rest on; `assumed_times` finds it out.

The record is that of `kernel_times`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class KernelBasis(StrEnum):
    """What a time rests on.

    ``FITTED``: constants of the same chip. ``TRANSFERRED``: those of other chips. ``ASSUMED``: one
    or the other, for a kernel of a kind that the record does not have.
    """

    FITTED = "fitted"
    TRANSFERRED = "transferred"
    ASSUMED = "assumed"


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyTime:
    """The kernels of one family that the record has: how far off they are in the mean.

    ``share`` is that of the time of all ops of the step.
    """

    family: str
    basis: KernelBasis
    error: float
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AssumedTimes:
    """What the time of all ops rests on, one after the other on one GPU.

    ``gpu`` is the name of its datasheet. Launches take ``launch_share``. ``families`` are those
    with a record, most time first. Kernels of a kind that it lacks take ``assumed_share``; what
    follows from peaks and bandwidth alone takes ``roofline_share``. All shares are 1 together, or 0
    where there are no ops.
    """

    gpu: str
    launch_share: float
    families: tuple[FamilyTime, ...]
    assumed_share: float
    roofline_share: float
