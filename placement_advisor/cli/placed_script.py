"""Runs a script to its end as `python` would, its step placed: the process of `advisor run`.

    python -m placement_advisor.cli.placed_script REQUEST SCRIPT [ARGUMENT...]

The script imports TensorFlow itself, so that what it has set before holds. The hooks are there as
soon as it has.
"""

from __future__ import annotations

import importlib.abc
import json
import sys
import traceback
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from placement_advisor.cli.output_streams import say
from placement_advisor.processes.user_lines import is_ours, is_user_code
from placement_advisor.report.split_plan import keep_training
from placement_advisor.tf.load.model_source import ModelSource
from placement_advisor.tf.load.run_model_file import execute
from placement_advisor.tf.own_step.split_plan import SplitPlan

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec

    from placement_advisor.tf.own_step.placed_run import PlacedRun

# Each imports the other, whichever a script asks for first.
_IMPORTED = ("keras", "tensorflow")
_INTERRUPTED = 130


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
    with ExitStack() as at_the_end:
        begin = partial(_begin, request, file, arguments, at_the_end)
        sys.meta_path.insert(0, _WhenImported(begin))
        del sys.path[0]  # That of `python -m`: the script has its own.
        try:
            execute(file, arguments, request["module"])
        except SystemExit:
            raise
        except BaseException as error:
            _show(error)
            sys.exit(_INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1)
    sys.exit()


def _begin(
    request: dict[str, Any], file: Path, arguments: Sequence[str], at_the_end: ExitStack
) -> None:
    """Hook what the script calls."""
    from placement_advisor.tf.own_step.placed_run import PlacedRun, cut_cpu

    if request["logical_cpus"]:
        cut_cpu(request["logical_cpus"])
    plan = SplitPlan.of_json(request["plan"])
    source = ModelSource(
        path=str(file), arguments=tuple(arguments), module=request["module"], step=plan.step
    )
    run = PlacedRun(
        lambda name: is_user_code(name, file),
        source,
        plan,
        trial_steps=request["trial_steps"],
        say=say,
    )
    at_the_end.callback(_end, run, request["analysis"])
    at_the_end.enter_context(run.watching())


def _end(run: PlacedRun, analysis: str | None) -> None:
    """Say what the training was run with, and keep it with the analysis."""
    run.unhook()
    say(run.bill.told())
    if analysis is not None:
        keep_training(Path(analysis), run.bill.as_json())


def _show(error: BaseException) -> None:
    """Print a traceback as `python` does: without the lines that run the script."""
    trace = error.__traceback__
    while trace is not None and is_ours(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    traceback.print_exception(type(error), error, trace)


if __name__ == "__main__":
    main()
