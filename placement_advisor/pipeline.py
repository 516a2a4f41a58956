"""One function per command; each wires the stages together.

`analyze`: load -> trace -> testbed and its costs -> candidates -> simulate, written to disk ->
run -> profile -> compare -> recommend -> reports. What is written appears in the output folder
only when it is complete.
"""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from placement_advisor.candidates.families import FAMILIES, check_names
from placement_advisor.children import Child, ChildFailure, preload
from placement_advisor.clock import Clock
from placement_advisor.errors import ModelError
from placement_advisor.output_folder import output_folder
from placement_advisor.report.write import write_analysis, write_reports
from placement_advisor.study import AnalyzeOptions, Study
from placement_advisor.testbed import Testbed, TestbedKind, plan_testbed
from placement_advisor.user_code import is_user_code

if TYPE_CHECKING:
    from placement_advisor.analysis import Analysis
    from placement_advisor.tf.answers import Traced
    from placement_advisor.trial import Watcher

_TRACER = "placement_advisor.tf.tracer"


def analyze(options: AnalyzeOptions, watcher: Watcher) -> Analysis:
    """Analyse a model and write the reports.

    Raises:
        AdvisorError: anything that the user can fix; nothing is written then.
    """
    _check(options)
    plan = plan_testbed(options.testbed, options.devices)
    if not options.run:
        plan = replace(
            plan, kind=TestbedKind.NONE, cores=(), not_run="--no-run: no step was executed"
        )
    clock = Clock()
    with ExitStack() as stack:
        staging = stack.enter_context(output_folder(options.output))
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="advisor-")))
        bundle = scratch / "bundle"
        bundle.mkdir()
        with clock.stage("import"):
            watcher.working("importing TensorFlow", 0, 1)
            preload()
            loader = stack.enter_context(Child("loader", scratch / "loader.log"))
        traced = _trace(options, loader, bundle, clock, watcher)
        study = Study(options, plan, traced, staging, clock, watcher)
        if plan.not_run is None:
            testbed = Testbed(plan, bundle=bundle, graph=traced.graph, scratch=scratch)
            stack.callback(testbed.close)
            study.run(testbed, loader)
        else:
            loader.close()
            study.imagine()
        analysis = study.analysis()
        with clock.stage("report"):
            watcher.working("writing reports", 0, 1)
            write_reports(analysis, staging)
        analysis = replace(analysis, timings_ns=clock.timings_ns())
        write_analysis(analysis, staging)
    return analysis


def _check(options: AnalyzeOptions) -> None:
    """Refuse what cannot work before anything is started.

    Raises:
        AdvisorError: what is wrong, and what to do.
    """
    path = Path(options.path)
    if not path.exists():
        raise ModelError(f"{path}: no such file")
    if path.is_dir() or path.suffix != ".py":
        raise ModelError(f"{path}: not a Python file", hint="give a .py file that builds a model")
    check_names(options.candidates)


def _trace(
    options: AnalyzeOptions, loader: Child, bundle: Path, clock: Clock, watcher: Watcher
) -> Traced:
    with clock.stage("load"):
        watcher.working(f"loading {options.path}", 0, 1)
        answer = loader.call(
            f"{_TRACER}:load_workload",
            options.path,
            options.name,
            options.mode,
            options.batch_size,
            time_limit_s=options.time_limit_s,
        )
        _must_answer(answer, options, "loading")
    with clock.stage("trace"):
        watcher.working("tracing", 0, 1)
        answer = loader.call(
            f"{_TRACER}:trace_workload",
            options.path,
            str(bundle),
            time_limit_s=options.time_limit_s,
        )
        traced: Traced = _must_answer(answer, options, "tracing")
    return traced


def _must_answer(answer: Any, options: AnalyzeOptions, stage: str) -> Any:
    if not isinstance(answer, ChildFailure):
        return answer
    place = _place(answer, Path(options.path))
    hints = {
        "crashed": "the file's own code ended the process; run it with python to see why",
        "timed-out": "raise --time-limit, or look for a loop that does not end",
        "out-of-memory": "make the model or its example data smaller",
    }
    tail = f"\nIt last printed:\n{answer.output_tail.strip()}" if answer.output_tail.strip() else ""
    raise ModelError(f"{place}: {stage} failed: {answer.message}{tail}", hint=hints[answer.cause])


def _place(failure: ChildFailure, path: Path) -> str:
    """Return the file and line of the user's code that ran last, if known, else the model file."""
    for file, line in failure.stack:
        if is_user_code(file, path):
            return f"{file}:{line}"
    return str(path)


def default_candidates() -> tuple[str, ...]:
    """Return the families that are tried unless the user names some."""
    return tuple(FAMILIES)
