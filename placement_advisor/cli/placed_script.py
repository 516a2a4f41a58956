"""Runs a script to its end as `python` would, its step placed: the process of `advisor run`.

    python -m placement_advisor.cli.placed_script REQUEST SCRIPT [ARGUMENT...]

The script imports TensorFlow itself, so that what it has set before holds. The hooks are there as
soon as it has.
"""

from __future__ import annotations

import atexit
import importlib.abc
import json
import os
import signal
import sys
import threading
import traceback
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NoReturn

from placement_advisor.candidates.batch_split.mirrored_graph import FAMILY as MIRRORED
from placement_advisor.cli.console import say
from placement_advisor.errors import AdvisorError
from placement_advisor.processes.calls import is_ours, without_stderr
from placement_advisor.report.split_plan import keep_training
from placement_advisor.results.analysis import Training
from placement_advisor.tf.load.model_source import execute
from placement_advisor.tf.training.trial import SPLIT_PLAN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from importlib.machinery import ModuleSpec

    from placement_advisor.tf.training.placed_run import PlacedRun

# Each imports the other, whichever a script asks for first.
_IMPORTED = ("keras", "tensorflow")


class _WhenImported(importlib.abc.MetaPathFinder):
    """Calls back as soon as TensorFlow and Keras are there."""

    def __init__(self, then: Callable[[], None]) -> None:
        self._then, self._depth = then, 0

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        """Find a module as others do, and watch how it is imported."""
        if name not in _IMPORTED:
            return None
        others = (finder for finder in sys.meta_path if finder is not self)
        specs = (finder.find_spec(name, path, target) for finder in others)
        spec = next(filter(None, specs), None)
        if spec is not None and spec.loader is not None:
            self._watch(spec.loader)
        return spec

    def _watch(self, loader: Any) -> None:
        original = loader.exec_module

        def exec_module(module: Any) -> None:
            del loader.exec_module
            self._depth += 1
            try:
                with without_stderr():
                    original(module)
            finally:
                self._depth -= 1
            if not self._depth and self in sys.meta_path and "tensorflow" in sys.modules:
                sys.meta_path.remove(self)
                self._then()

        loader.exec_module = exec_module


def main() -> NoReturn:
    """Run the script, say what came of it, and end as it has ended."""
    request, file, arguments = json.loads(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]
    signals: list[int] = []
    atexit.register(_send, signals)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")  # Warnings and errors stay.
    with ExitStack() as at_the_end:
        begin = partial(_begin, request, file, arguments, at_the_end)
        sys.meta_path.insert(0, _WhenImported(begin))
        try:
            execute(ModuleType("__main__"), file, arguments, request["module"])
            _wait_for_threads()
        except SystemExit:
            raise
        except BaseException as error:
            _show(error)
            if isinstance(error, KeyboardInterrupt):  # As Python ends then, behind all handlers.
                signal.signal(signal.SIGINT, signal.SIG_DFL)
                signals.append(signal.SIGINT)
            sys.exit(1)
    sys.exit()


def _begin(
    request: dict[str, Any], file: Path, arguments: Sequence[str], at_the_end: ExitStack
) -> None:
    """Hook what the script calls."""
    from placement_advisor.tf.training.placed_run import (
        PlacedRun,
        cut_cpu,
        mirror_from_first_layer,
    )

    if request["logical_cpus"]:
        with without_stderr():  # It looks for GPUs, which are not missed here.
            cut_cpu(request["logical_cpus"])
    plan = SPLIT_PLAN.validate_python(request["plan"])
    if plan.family == MIRRORED:
        mirror_from_first_layer(plan, at_the_end.enter_context, say)
        return
    run = PlacedRun(
        file,
        plan,
        trial_steps=request["trial_steps"],
        profile=request["profile"] and Path(request["profile"]),
        say=_say,
    )
    at_the_end.callback(_end, run, request["analysis"], os.getpid())
    at_the_end.enter_context(run.watching())


def _say(text: str) -> None:
    """Say something while the script runs, in place of the line of its progress bar.

    The bar draws that line anew.
    """
    if sys.stderr.isatty():
        sys.stderr.write("\r\033[K")
    say(text)


def _wait_for_threads() -> None:
    """Let threads end that train on when the script itself has ended, as Python does."""
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()


def _end(run: PlacedRun, analysis: str | None, process: int) -> None:
    """Say what the training was run with, and keep it with the analysis.

    A training that took days must not end here, whatever fails; nor in a copy of the process.
    """
    if os.getpid() != process:
        return
    try:
        run.settle()
    except Exception as error:
        say(f"{type(error).__name__}: {error}")
        return
    if analysis is not None:
        try:
            keep_training(Path(analysis), Training.of(run.bill))
        except (OSError, AdvisorError) as error:
            say(f"{analysis} does not have it: {error}")


def _send(signals: Iterable[int]) -> None:
    for number in signals:
        os.kill(os.getpid(), number)


def _show(error: BaseException) -> None:
    """Print an error as `python` does, without the lines that run the script."""
    if sys.excepthook is not sys.__excepthook__:  # The script's own.
        sys.excepthook(type(error), error, error.__traceback__)
        return
    shown = traceback.TracebackException.from_exception(error)
    each: traceback.TracebackException | None = shown
    while each is not None:
        frames = list(each.stack)
        # What ends in a line of ours is a bug, unless somebody has pressed Ctrl-C there.
        is_bug = bool(frames) and is_ours(frames[-1].filename)
        if isinstance(error, KeyboardInterrupt) or not is_bug:
            theirs = [frame for frame in frames if not is_ours(frame.filename)]
            each.stack = traceback.StackSummary.from_list(theirs)
        each = each.__cause__ or each.__context__
    print("".join(shown.format()), end="", file=sys.stderr)


if __name__ == "__main__":
    main()
