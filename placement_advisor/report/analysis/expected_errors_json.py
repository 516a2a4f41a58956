"""What errors to expect of predictions for GPUs, in ``analysis.json``: written and read back."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from placement_advisor.cost.gpu.time_basis import AssumedTimes, FamilyTime, KernelBasis
from placement_advisor.files.foreign_json import (
    MisfitError,
    as_object,
    field,
    list_of,
    shown,
    text,
)
from placement_advisor.report.analysis.expected_errors import (
    FAMILY_WORDS,
    PUBLISHED_STEPS,
    PUBLISHED_STEPS_MEAN,
    PUBLISHED_STEPS_WORST,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

# No prediction of these is so far off.
_MOST_ERROR = 100.0
# Shares are sums of quotients.
_ROUNDING = 1e-9


def published_steps_as_json() -> dict[str, Any]:
    """Return how far off predictions of published training steps are."""
    return {
        "count": PUBLISHED_STEPS,
        "mean_error": PUBLISHED_STEPS_MEAN,
        "worst_error": PUBLISHED_STEPS_WORST,
    }


def errors_as_json(times: Iterable[AssumedTimes]) -> dict[str, Any]:
    """Return what the public contract has."""
    return {
        "published_steps": published_steps_as_json(),
        "gpus": [
            {
                "gpu": each.gpu,
                "launch_share": each.launch_share,
                "assumed_share": each.assumed_share,
                "roofline_share": each.roofline_share,
                "families": [
                    {
                        "family": family.family,
                        "basis": family.basis.value,
                        "mean_error": family.error,
                        "share": family.share,
                    }
                    for family in each.families
                ],
            }
            for each in times
        ],
    }


def read_errors(value: object) -> tuple[AssumedTimes, ...]:
    """Return what times rest on; nothing where the value is null.

    Raises:
        MisfitError: the value does not say so.
    """
    if value is None:
        return ()
    return field(as_object(value), "gpus", partial(list_of, _times))


def _times(value: object) -> AssumedTimes:
    document = as_object(value)
    return AssumedTimes(
        gpu=field(document, "gpu", text),
        launch_share=field(document, "launch_share", _share),
        families=field(document, "families", partial(list_of, _family)),
        assumed_share=field(document, "assumed_share", _share),
        roofline_share=field(document, "roofline_share", _share),
    )


def _family(value: object) -> FamilyTime:
    document = as_object(value)
    return FamilyTime(
        family=field(document, "family", partial(_one_of, FAMILY_WORDS)),
        basis=KernelBasis(field(document, "basis", partial(_one_of, list(KernelBasis)))),
        error=field(document, "mean_error", partial(_number, _MOST_ERROR)),
        share=field(document, "share", _share),
    )


def _one_of(known: Collection[str], value: object) -> str:
    word = text(value)
    if word not in known:
        raise MisfitError(f"{shown(word)} is not {', '.join(known)}")
    return word


def _share(value: object) -> float:
    return _number(1 + _ROUNDING, value)


def _number(most: float, value: object) -> float:
    if (type(value) is float or type(value) is int) and 0 <= value <= most:
        return float(value)
    raise MisfitError(f"{shown(value)} is not a number from 0 to {most:g}")
