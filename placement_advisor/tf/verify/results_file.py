"""Results of steps on disk: numbers alone, since another host may have written them.

A zip of raw arrays, with a description of their types and shapes beside them. Nothing in it is run
or unpickled.
"""

from __future__ import annotations

import json
import zipfile
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from placement_advisor.errors import TestbedError
from placement_advisor.measurement.verification import AppliedUpdate, StepResults

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_LAYOUT = "layout.json"
# Kinds of NumPy's types whose bytes are their values; TensorFlow's own (bfloat16) are of kind V.
_RAW_KINDS = "biufcSUV"


def save_results(path: Path, results: Sequence[StepResults]) -> None:
    """Write what steps computed, for each replica.

    Raises:
        TypeError: a value is no array of numbers or short texts.
    """
    with zipfile.ZipFile(path, "w") as archive:

        def put(value: Any) -> list[Any]:
            array = np.asarray(value)
            if array.dtype == object:  # Texts.
                array = array.astype(np.bytes_)
            if array.dtype.kind not in _RAW_KINDS:
                raise TypeError(f"an array of {array.dtype} cannot be kept")
            name = str(len(archive.namelist()))
            archive.writestr(name, array.tobytes())
            is_short = array.dtype.kind in "SU"
            return [name, array.dtype.str if is_short else array.dtype.name, list(array.shape)]

        layout = [
            {
                "outputs": [put(value) for value in each.outputs],
                "before": {name: put(value) for name, value in each.before.items()},
                "state": {name: put(value) for name, value in each.state.items()},
                "given": {
                    name: None
                    if given is None
                    else [[one.update, one.step, put(one.value)] for one in given]
                    for name, given in each.given.items()
                },
            }
            for each in results
        ]
        archive.writestr(_LAYOUT, json.dumps(layout))


def read_results(path: Path) -> list[StepResults]:
    """Return what `save_results` wrote.

    Raises:
        TestbedError: it is no such file.
    """
    try:
        with zipfile.ZipFile(path) as archive:

            def taken(described: list[Any]) -> Any:
                name, kind, shape = described
                array = np.frombuffer(archive.read(name), np.dtype(kind))
                if array.dtype.kind not in _RAW_KINDS or array.size != prod(shape):
                    raise ValueError(f"array {name} is not of {kind} and {shape}")
                return array.reshape(shape)

            return [
                StepResults(
                    outputs=tuple(map(taken, each["outputs"])),
                    before={name: taken(value) for name, value in each["before"].items()},
                    state={name: taken(value) for name, value in each["state"].items()},
                    given={
                        name: None
                        if given is None
                        else tuple(
                            AppliedUpdate(update=update, step=step, value=taken(value))
                            for update, step, value in given
                        )
                        for name, given in each["given"].items()
                    },
                )
                for each in json.loads(archive.read(_LAYOUT))
            ]
    except (OSError, zipfile.BadZipFile, LookupError, TypeError, ValueError, AttributeError) as e:
        raise TestbedError(f"results of steps cannot be read: {e}") from None
