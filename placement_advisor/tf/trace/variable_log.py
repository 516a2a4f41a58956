"""Which variables a program created, in order, where in its code, and on which devices.

By their order those of two runs of a program find each other. Layers that were called in a device
scope while a functional model was built are kept beside them: Keras forgets the scope. Left out:
devices that a graph of TensorFlow 1 asks for, which its ops have.
"""

from __future__ import annotations

import sys
import weakref
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import keras
import tensorflow as tf
from tensorflow.python.eager import context

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import FrameType


class _Created(NamedTuple):
    """A variable, the device that was asked for, and the files and lines that created it."""

    reference: weakref.ref[Any]
    device: str
    frames: tuple[tuple[str, int], ...]


class VariableLog:
    """The variables created within `recording`, in order; those that are gone keep their place."""

    def __init__(self) -> None:
        """Begin with none."""
        self._created: list[_Created] = []
        self._built: dict[tuple[str, str], tuple[tuple[str, int], ...]] = {}

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record what is created within; under a strategy each variable once, not its copies."""

        def create(next_creator: Any, **arguments: Any) -> Any:
            variable = next_creator(**arguments)
            device = _scope()
            frames = tuple(_frames(sys._getframe(1)))
            self._created.append(_Created(weakref.ref(variable), device, frames))
            return variable

        original = keras.Layer.symbolic_call

        def call(layer: Any, *args: Any, **kwargs: Any) -> Any:
            device = _scope()
            if device:
                frames = tuple(_frames(sys._getframe(1)))
                for part in layer._flatten_layers():  # Of a model, what its layers are called.
                    self._built[part.name, device] = frames
            return original(layer, *args, **kwargs)

        keras.Layer.symbolic_call = call
        try:
            with tf.variable_creator_scope(create):
                yield
        finally:
            keras.Layer.symbolic_call = original

    def places(self, handles: Mapping[str, Any]) -> dict[str, int]:
        """Return the place in the order of each variable that was recorded, by its handle."""
        return {name: place for place, name, _ in self._named(handles)}

    def frames(self, handles: Mapping[str, Any]) -> dict[str, tuple[tuple[str, int], ...]]:
        """Return the files and lines that created each variable, innermost first, by its handle."""
        return {name: created.frames for _, name, created in self._named(handles)}

    def devices(self, handles: Mapping[str, Any]) -> dict[str, str]:
        """Return the device that was asked for where each variable was created, by its handle.

        In TensorFlow's spelling; those that were created outside of all scopes lack.
        """
        named = self._named(handles)
        return {name: created.device for _, name, created in named if created.device}

    def built(self) -> dict[tuple[str, str], tuple[tuple[str, int], ...]]:
        """Return the files and lines that called a layer of a functional model in a device scope.

        By the layer's name and the device, in TensorFlow's spelling.
        """
        return dict(self._built)

    def variables(self) -> list[Any | None]:
        """Return them in order, None for those that are gone."""
        return [created.reference() for created in self._created]

    def _named(self, handles: Mapping[str, Any]) -> Iterator[tuple[int, str, _Created]]:
        """Yield place and name of those with a handle among these."""
        names = {id(handle): name for name, handle in handles.items()}
        for place, created in enumerate(self._created):
            name = names.get(id(getattr(created.reference(), "handle", None)))
            if name is not None:
                yield place, name, created


def _scope() -> str:
    """Return the device of the scope around eager code, nothing if there is none."""
    return context.context().device_name or "" if tf.executing_eagerly() else ""


def _frames(frame: FrameType | None) -> Iterator[tuple[str, int]]:
    while frame is not None:
        yield frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back
