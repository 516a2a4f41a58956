"""Which variables a program created, in order, and on which devices it asked for them.

By their order those of two runs of a program find each other. Left out: devices that a graph of
TensorFlow 1 asks for, which its ops have.
"""

from __future__ import annotations

import weakref
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import tensorflow as tf
from tensorflow.python.eager import context

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


class VariableLog:
    """The variables created within `recording`, in order; those that are gone keep their place."""

    def __init__(self) -> None:
        """Begin with none."""
        self._created: list[tuple[weakref.ref[Any], str]] = []

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record what is created within; under a strategy each variable once, not its copies."""

        def create(next_creator: Any, **arguments: Any) -> Any:
            variable = next_creator(**arguments)
            device = context.context().device_name or "" if tf.executing_eagerly() else ""
            self._created.append((weakref.ref(variable), device))
            return variable

        with tf.variable_creator_scope(create):
            yield

    def places(self, handles: Mapping[str, Any]) -> dict[str, int]:
        """Return the place in the order of each variable that was recorded, by its handle."""
        return {name: place for place, name, _ in self._named(handles)}

    def devices(self, handles: Mapping[str, Any]) -> dict[str, str]:
        """Return the device that was asked for where each variable was created, by its handle.

        In TensorFlow's spelling; those that were created outside of all scopes lack.
        """
        return {name: device for _, name, device in self._named(handles) if device}

    def variables(self) -> list[Any | None]:
        """Return them in order, None for those that are gone."""
        return [reference() for reference, _ in self._created]

    def _named(self, handles: Mapping[str, Any]) -> Iterator[tuple[int, str, str]]:
        """Yield place, name and device of those with a handle among these."""
        names = {id(handle): name for name, handle in handles.items()}
        for place, (reference, device) in enumerate(self._created):
            name = names.get(id(getattr(reference(), "handle", None)))
            if name is not None:
                yield place, name, device
