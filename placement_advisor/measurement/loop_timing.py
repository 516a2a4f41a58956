"""What a step takes in Keras' own training loop, with one step for each call and with several."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopTiming:
    """Times of a step in `fit`, measured; ``one_ns`` and ``several_ns`` have one for each round.

    In ``several_ns`` a call runs ``steps_per_call`` steps (Keras' ``steps_per_execution``).
    """

    steps_per_call: int
    one_ns: tuple[int, ...]
    several_ns: tuple[int, ...]

    @property
    def savings_ns(self) -> tuple[int, ...]:
        """What several steps for each call saved a step, in each round."""
        return tuple(one - other for one, other in zip(self.one_ns, self.several_ns, strict=True))

    @property
    def saving_ns(self) -> int:
        """The median of `savings_ns`."""
        return round(median(self.savings_ns))
