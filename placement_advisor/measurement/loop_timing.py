"""What a step takes in Keras' own training loop, with one step for each call and with several."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopTiming:
    """Times of a step in `fit`, measured; ``one_ns`` and ``several_ns`` have one for each round.

    In ``several_ns`` a call runs ``steps_per_call`` steps (Keras' ``steps_per_execution``).
    """

    steps_per_call: int
    one_ns: tuple[int, ...]
    several_ns: tuple[int, ...]

    @property
    def saved_shares(self) -> tuple[float, ...]:
        """What several steps for each call saved of a step, in each round."""
        rounds = zip(self.one_ns, self.several_ns, strict=True)
        return tuple(1 - several / one for one, several in rounds)
