"""What the user's own code says about each op: the device it asks for, and the line that made it.

Left out: devices in the bodies of loops and conditionals; lines of what a called function holds,
which get the line of the call.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from placement_advisor.processes.user_lines import is_user_code
from placement_advisor.tf.answers import SourceLine

if TYPE_CHECKING:
    from collections.abc import Iterable

    from placement_advisor.tf.trace.nodes import Node

_HERE = (None, "localhost")


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


def source_lines(graph: Any, names: Iterable[str], model_file: Path) -> dict[str, SourceLine]:
    """Return the innermost line of the user's code for the ops of a traced graph, where known."""
    operations = {op.name: op for op in graph.get_operations()}

    @cache
    def shown_as(file: str) -> str | None:
        """Return the user's file as the report names it, None if it is not theirs."""
        if not is_user_code(file, model_file):
            return None
        return str(model_file) if Path(file).resolve() == model_file.resolve() else file

    @cache
    def line_at(name: str) -> SourceLine | None:
        operation = operations.get(name)
        if operation is None:  # Of a function that was inlined: its name begins with the call's.
            return line_at(name.rpartition("/")[0]) if "/" in name else None
        if operation.traceback is None:  # It was imported, and nobody's code made it.
            return None
        for frame in reversed(operation.traceback.get_user_frames()):
            if file := shown_as(frame.filename):
                return SourceLine(file, frame.lineno)
        return None

    found = {name: line_at(name) for name in names}
    return {name: line for name, line in found.items() if line is not None}
