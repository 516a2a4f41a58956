"""Runs a script and writes down when each call of its step began: a part of `script_overhead.py`.

    python tests/benchmarks/script_calls.py ASKED SCRIPT [ARGUMENTS...]

``ASKED`` is JSON: the ``call`` as the advisor names it, whether the advisor's ``hooks`` watch, the
file that is ``kept``, and when it ends: after ``most`` calls, or ``seconds`` past the first ones.
The file gets the clock at the beginning of each call, of the step with the most of them, and last
the clock at the end. That clock counts from the start of the machine, for all processes.

It is a file of its own, with few imports: what it imports counts as the script's own time.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

# A step is traced in its first calls, and again where a batch has another shape.
LEFT_OUT = 10
_KERAS = {
    "fit": "train",
    "train_on_batch": "train",
    "evaluate": "test",
    "test_on_batch": "test",
    "predict": "predict",
    "predict_on_batch": "predict",
}


class Calls:
    """When calls began, by what was called."""

    def __init__(self, most: int, seconds: float, kept: str) -> None:
        self._most, self._seconds, self._kept = most, seconds, kept
        self._began: dict[Any, list[float]] = {}
        self._within = threading.local()

    def watched(
        self, inner: Callable[..., Any], key: Callable[..., Any | None]
    ) -> Callable[..., Any]:
        """Return what notes a call before it is made; those without a key are none of a step."""

        def outer(*args: Any, **kwargs: Any) -> Any:
            of = None if getattr(self._within, "step", False) else key(*args)
            if of is None:
                return inner(*args, **kwargs)
            now = time.monotonic()
            began = self._began.setdefault(of, [])
            began.append(now)
            since = now - began[LEFT_OUT] if len(began) > LEFT_OUT else 0.0
            if len(began) >= self._most or since > self._seconds:
                self.end()
            self._within.step = True
            try:
                return inner(*args, **kwargs)
            finally:
                self._within.step = False

        return outer

    def end(self) -> None:
        """Write down what there is, and end the process here."""
        now = time.monotonic()
        began = max(self._began.values(), key=len, default=[])
        Path(self._kept).write_text(json.dumps([*began, now]))
        os._exit(0)


def hook(call: str, calls: Calls) -> None:
    """Watch what the advisor calls so; imports no more than the script does."""
    import tensorflow as tf

    if call.startswith("model."):
        _hook_keras(_KERAS[call.removeprefix("model.")], calls)
    elif call == "Session.run":
        session = tf.compat.v1.Session.__mro__[1]  # What all sessions end in.
        session.run = calls.watched(session.run, lambda _, fetches, *__: _identity(fetches))
    else:
        function = type(tf.function(lambda: None))

        def key(called: Any, *_: Any) -> int | None:
            is_it = tf.executing_eagerly() and getattr(called, "__name__", None) == call
            return id(called) if is_it else None

        function.__call__ = calls.watched(function.__call__, key)


def _identity(fetches: Any) -> Any:
    """Return what tells fetches from others: their list is made anew for each run."""
    if isinstance(fetches, dict):
        return tuple(map(id, fetches.values()))
    return tuple(map(id, fetches)) if isinstance(fetches, list | tuple) else id(fetches)


def _hook_keras(mode: str, calls: Calls) -> None:
    import keras

    name = f"{mode}_function"
    original = getattr(keras.Model, f"make_{name}")

    def make(model: Any, force: bool = False) -> Any:
        before = getattr(model, name)
        made = original(model, force=force)
        inner = getattr(model, name)
        if inner is not before:
            setattr(model, name, calls.watched(inner, lambda *_: id(model)))
        return made

    setattr(keras.Model, f"make_{name}", make)


def _run_watched(path: Path, arguments: list[str]) -> None:
    """Run a script under the advisor's hooks, which decide each time, and never stop."""
    from placement_advisor.processes.calls import is_user_code
    from placement_advisor.tf.load.capture import Capture
    from placement_advisor.tf.load.model_source import run_program
    from placement_advisor.tf.trace import tracer

    class Waiting(Capture):
        def _is_enough(self, step: Any, now_s: float) -> bool:
            super()._is_enough(step, now_s)
            return False

    watch = Waiting(lambda name: is_user_code(name, path), lambda _: None)
    with tracer._log.recording(), watch.watching():
        run_program(path, "", arguments=arguments, module=None)


def main() -> None:
    """Run the script."""
    asked, (path, *arguments) = json.loads(sys.argv[1]), sys.argv[2:]
    calls = Calls(asked["most"], asked["seconds"], asked["kept"])
    hook(asked["call"], calls)
    if asked["hooks"]:
        _run_watched(Path(path), arguments)
    else:
        sys.argv, sys.path[0] = [path, *arguments], str(Path(path).parent)
        runpy.run_path(path, run_name="__main__")
    calls.end()


if __name__ == "__main__":
    main()
