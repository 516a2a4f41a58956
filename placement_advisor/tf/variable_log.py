"""Which variables a program created, in order: how those of two runs of it find each other."""

from __future__ import annotations

import weakref
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import tensorflow as tf

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


class VariableLog:
    """The variables created within `recording`, in order; those that are gone keep their place."""

    def __init__(self) -> None:
        """Begin with none."""
        self._created: list[weakref.ref[Any]] = []

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record what is created within; under a strategy each variable once, not its copies."""

        def create(next_creator: Any, **arguments: Any) -> Any:
            variable = next_creator(**arguments)
            self._created.append(weakref.ref(variable))
            return variable

        with tf.variable_creator_scope(create):
            yield

    def places(self, handles: Mapping[str, Any]) -> dict[str, int]:
        """Return the place in the order of each variable that was recorded, by its handle."""
        names = {id(handle): name for name, handle in handles.items()}
        return {
            names[id(variable.handle)]: place
            for place, variable in enumerate(self.variables())
            if variable is not None and id(getattr(variable, "handle", None)) in names
        }

    def variables(self) -> list[Any | None]:
        """Return them in order, None for those that are gone."""
        return [reference() for reference in self._created]
