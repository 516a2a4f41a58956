"""The split that a training is to have, as an analysis has found it. Free of TensorFlow."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitPlan:
    """A candidate of an analysis.

    ``placement`` says where each op goes; of a split of the batch ``samples`` say how many of them
    each group of devices takes, and ``placement`` how a group shares its part, if it has several.
    ``devices`` are those of the analysis; ``on_stand_ins``: CPUs have stood in for them. ``single``
    is a placement of the graph that was analysed, which the training's has to be; None if the plan
    is a placement file alone. ``step`` is what ``--step`` calls the step of the script; None takes
    the dearest.
    """

    label: str
    family: str
    devices: tuple[str, ...]
    placement: Path | None
    samples: tuple[int, ...] | None = None
    single: Path | None = None
    step: str | None = None
    on_stand_ins: bool = False

    def groups(self) -> list[list[str]]:
        """Return the devices that take a share of the batch each, one or several together."""
        assert self.samples is not None, "no split of the batch"
        each = 1 if self.placement is None else len(self.devices) // len(self.samples)
        return [list(self.devices[each * i : each * (i + 1)]) for i in range(len(self.samples))]

    def as_json(self) -> dict[str, Any]:
        """Return it for another process."""
        paths = {"placement": self.placement, "single": self.single}
        return asdict(self) | {key: path and str(path) for key, path in paths.items()}

    @classmethod
    def of_json(cls, document: dict[str, Any]) -> SplitPlan:
        """Return what `as_json` was made of."""
        samples = document["samples"]
        return cls(
            label=document["label"],
            family=document["family"],
            devices=tuple(document["devices"]),
            placement=document["placement"] and Path(document["placement"]),
            samples=None if samples is None else tuple(samples),
            single=document["single"] and Path(document["single"]),
            step=document["step"],
            on_stand_ins=document["on_stand_ins"],
        )
