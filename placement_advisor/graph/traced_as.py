"""How a step was traced: what makes two graphs of one model beside a change of its code.

It stands in files beside what was made of the graph, so that a file held against another graph can
say in the user's words what differs. No part of a graph: fingerprints do not have it.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from placement_advisor.files.contract import Count, Rows, Text, What
from placement_advisor.files.foreign_json import shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedAs:
    """A step's mode, batch, and the types and shapes of what it takes and returns, as text."""

    mode: Text
    """`train` or `infer`."""
    batch_size: Annotated[Count, What("a number of samples")] | None
    """None if inputs carry none."""
    inputs: Rows[Text]
    """Such as `float32 [16, 8]`."""
    outputs: Rows[Text]

    def differences(self, today: TracedAs) -> Iterator[str]:
        """Say what was otherwise then than it is ``today``."""
        if self.mode != today.mode:
            yield f"the mode was {self.mode}, and is {today.mode} here"
        batches = {self.batch_size, today.batch_size}
        has_other_batch = None not in batches and len(batches) > 1
        if has_other_batch:
            yield f"the batch was {self.batch_size}, and is {today.batch_size} here"
        for what, then, now in (
            ("inputs", self.inputs, today.inputs),
            ("outputs", self.outputs, today.outputs),
        ):
            if has_other_batch:
                then, now = _of_any(self.batch_size, then), _of_any(today.batch_size, now)
            # Inputs may come in another order, as they may have other names.
            there, here = Counter(then) - Counter(now), Counter(now) - Counter(then)
            only = [
                f"only {where}: {shown(', '.join(types.elements()))}"
                for where, types in (("there", there), ("here", here))
                if types
            ]
            if only:
                yield f"{what} {', '.join(only)}"


def _of_any(batch_size: int | None, types: Sequence[str]) -> tuple[str, ...]:
    """Return types without the batch, which is in most shapes."""
    return tuple(re.sub(rf"\[{batch_size}\b", "[batch", each) for each in types)
