"""What the user's own code says about each op: the device it asks for, the lines that led to it.

The scope that makes an op ask for a device is found in the text of the lines that led to it; one
that names another device is none, and nor is one of a library's.

Left out: devices in the bodies of loops and conditionals; lines of what a called function holds,
which get those of the call.
"""

from __future__ import annotations

import re
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import tensorflow as tf

from placement_advisor.files.source_files import SourceFiles
from placement_advisor.graph.op import Role
from placement_advisor.processes.calls import is_user_code
from placement_advisor.tf.answers import DroppedScope, SourceLine

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.tf.trace.nodes import Node

# What asks for a device: an op, or the call of a layer.
K = TypeVar("K")
_HERE = (None, "localhost")
_NAMED_DEVICE = re.compile(r"""\bdevice\(\s*["']([^"'{}]+)["']\s*\)""")


def requested_devices(nodes: Iterable[Node]) -> dict[str, str]:
    """Return the device that each op was asked to run on, by name; the others are left out."""
    asked = {node.name: node.source.device() for node in nodes if node.source is not None}
    return {name: short_device(device) for name, device in asked.items() if device}


@cache
def short_device(device: str) -> str:
    """Return a device of TensorFlow's as ``GPU:1``; one of another process keeps job and task.

    Without a number it is the first of its type.
    """
    spec = tf.DeviceSpec.from_string(device)
    place = f"{spec.device_type}:{spec.device_index or 0}" if spec.device_type else ""
    if spec.job in _HERE:
        return place or device
    return f"/job:{spec.job}/task:{spec.task or 0}" + (f"/{place}" if place else "")


class UserLines:
    """Which lines of tracebacks are the user's, with files named as reports name them."""

    def __init__(self, model_file: Path) -> None:
        """Take the file whose folder holds what is theirs."""
        self._model_file = model_file
        self._shown_as: dict[str, str | None] = {}
        self._kept: dict[tuple[SourceLine, ...], tuple[SourceLine, ...]] = {}

    def among(self, frames: Iterable[tuple[str, int]]) -> tuple[SourceLine, ...]:
        """Return the user's lines of files and lines; equal answers are one object."""
        named = ((self._name(file), line) for file, line in frames)
        found = tuple(SourceLine(file, line) for file, line in named if file is not None)
        return self._kept.setdefault(found, found)

    def _name(self, file: str) -> str | None:
        """Return the user's file as reports name it, None if it is not theirs."""
        if file not in self._shown_as:
            ours, model = is_user_code(file, self._model_file), self._model_file
            is_model = ours and Path(file).resolve() == model.resolve()
            self._shown_as[file] = (str(model) if is_model else file) if ours else None
        return self._shown_as[file]


def source_stacks(
    operations: Mapping[str, Any], names: Iterable[str], lines: UserLines
) -> dict[str, tuple[SourceLine, ...]]:
    """Return the user's lines that led to ops of a traced graph, innermost first, where known."""

    @cache
    def stack(name: str) -> tuple[SourceLine, ...]:
        operation = operations.get(name)
        if operation is None:  # Of a function that was inlined: its name begins with the call's.
            return stack(name.rpartition("/")[0]) if "/" in name else ()
        if operation.traceback is None:  # It was imported, and nobody's code made it.
            return ()
        frames = reversed(operation.traceback.get_user_frames())
        return lines.among((frame.filename, frame.lineno) for frame in frames)

    found = {name: stack(name) for name in names}
    return {name: made_by for name, made_by in found.items() if made_by}


def scopes(
    requested_device_of: Mapping[K, str], lines_of: Mapping[K, tuple[SourceLine, ...]]
) -> dict[K, SourceLine]:
    """Return the line of the user's scope that makes an op ask for its device, where it is told.

    ``lines_of`` has the lines that led to an op or created a variable, innermost first.
    """
    files = SourceFiles(Path())

    @cache
    def scope(device: str, lines: tuple[SourceLine, ...]) -> SourceLine | None:
        for file, line in lines:
            number = files.scope(file, line)
            named = number and _NAMED_DEVICE.search(files.text(file, number) or "")
            if number and (not named or _is(named[1], device)):
                return SourceLine(file, number)
        return None

    found = {op: scope(device, lines_of.get(op, ())) for op, device in requested_device_of.items()}
    return {op: line for op, line in found.items() if line is not None}


def dropped_scopes(
    built: Mapping[tuple[str, str], Iterable[tuple[str, int]]],
    graph: OpGraph,
    requested_device_of: Mapping[str, str],
    lines: UserLines,
) -> tuple[DroppedScope, ...]:
    """Return the scopes in which layers of the step were called, and in which none of its ops is.

    ``built`` has the lines that called a layer in the scope of a device.
    """
    ops_of: defaultdict[str, list[str]] = defaultdict(list)
    for op in graph.ops:
        if op.role is not Role.VARIABLE:
            for part in (op.layer or "").split("/"):  # A second call of a layer is layer@2.
                ops_of[part.partition("@")[0]].append(op.name)
    device_of = {
        (layer, named): short_device(named)
        for layer, named in built
        if layer in ops_of
        and all(requested_device_of.get(op) != short_device(named) for op in ops_of[layer])
    }
    line_of = scopes(device_of, {call: lines.among(built[call]) for call in device_of})
    layers_of: defaultdict[tuple[str, SourceLine | None], list[str]] = defaultdict(list)
    for call, device in device_of.items():
        layers_of[device, line_of.get(call)].append(call[0])
    return tuple(
        DroppedScope(device, tuple(layers), line) for (device, line), layers in layers_of.items()
    )


def _is(named: str, device: str) -> bool:
    try:
        return short_device(named) == device
    except ValueError:  # TensorFlow reads no device in it.
        return False
