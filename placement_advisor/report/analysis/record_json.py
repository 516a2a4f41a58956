"""Reads the record of a finished analysis from ``analysis.json``.

A file is data that may come from anywhere: reading ends in a record or in one error that names the
place of the first thing that is wrong.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, TypeVar

from placement_advisor.analysis.analysis_result import (
    EXTRAPOLATED,
    AdviceVerdict,
    CapturedStep,
    NextRun,
    Saving,
)
from placement_advisor.errors import AdvisorError
from placement_advisor.files.foreign_json import (
    MisfitError,
    as_list,
    as_object,
    boolean,
    check_version,
    content,
    field,
    integer,
    list_of,
    object_of,
    parse,
    shown,
    text,
)
from placement_advisor.files.limits import MAX_NS
from placement_advisor.measurement.failure import FailureKind
from placement_advisor.measurement.measurement import Interval
from placement_advisor.report.analysis.expected_errors_json import read_errors
from placement_advisor.report.analysis.record import (
    SCHEMA_VERSION,
    YES,
    AnalysisRecord,
    AnswerRecord,
    CandidateRecord,
    FindingRecord,
    LinkRecord,
    ModelRecord,
    Parts,
    StepRecord,
    TestbedRecord,
    TrainingRecord,
    TrialRecord,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from enum import StrEnum
    from pathlib import Path

T = TypeVar("T")
E = TypeVar("E", bound="StrEnum")

_BASES = ("measured", "simulated")
_HINT = "`advisor analyze` writes it; one of another version is best written anew"
_TWO = 2
_MAX_PROSE_CHARS = 100_000
# A nanosecond against a second: no two placements of a step lie so far apart.
_MAX_RATIO = 1e9


def read_record(path: Path) -> AnalysisRecord:
    """Return the analysis that a file holds.

    Raises:
        AdvisorError: it cannot be read, or is none that `advisor analyze` could have written.
    """
    try:
        return record_of(parse(content(path)))
    except MisfitError as misfit:
        raise AdvisorError(f"{path}: {misfit}", hint=_HINT) from None


def record_of(value: object) -> AnalysisRecord:
    """Return the record of a document as `analysis_as_json` makes it.

    Raises:
        MisfitError: it is none.
    """
    document = as_object(value)
    check_version(document, SCHEMA_VERSION)
    return AnalysisRecord(
        advisor_version=field(document, "advisor_version", text),
        tensorflow_version=field(document, "tensorflow_version", text),
        options=field(document, "options", partial(object_of, _option)),
        model=field(document, "model", _model),
        testbed=field(document, "testbed", _testbed),
        as_is_ns=field(document, "as_is", _or_none(_as_is)),
        candidates=field(document, "candidates", partial(list_of, _candidate)),
        answer=field(document, "recommendation", _answer),
        findings=tuple(filter(None, field(document, "findings", partial(list_of, _finding)))),
        warnings=len(field(document, "warnings", as_list)),
        assumed_times=field(document, "expected_errors", read_errors),
        training=field(document, "training", _or_none(_training)),
    )


def _training(value: object) -> TrainingRecord:
    document = as_object(value)
    return TrainingRecord(
        candidate=field(document, "candidate", text),
        why_not=field(document, "why_not", _or_none(_prose)),
        placed_steps=field(document, "placed_steps", _count),
        own_steps=field(document, "own_steps", _count),
        trial=field(document, "trial", _or_none(_trial)),
    )


def _trial(value: object) -> TrialRecord:
    document = as_object(value)
    ends = field(document, "ci95", _or_none(_pair))
    speedup = field(document, "speedup", _ratio)
    return TrialRecord(
        placed_step_ns=field(document, "placed_step_ns", _time),
        own_step_ns=field(document, "own_step_ns", _time),
        speedup=speedup,
        interval=None if ends is None else _ordered(ends[0], speedup, ends[1]),
    )


def _captured(value: object) -> CapturedStep:
    document = as_object(value)
    return CapturedStep(
        call=field(document, "call", text),
        step=field(document, "step", text),
        is_replica=field(document, "is_replica", boolean),
        run_command=field(document, "run_command", _prose),
    )


def _model(value: object) -> ModelRecord:
    document = as_object(value)
    return ModelRecord(
        path=field(document, "path", text),
        mode=field(document, "mode", text),
        chosen=field(document, "chosen", _prose),
        captured=field(document, "captured", _or_none(_captured)),
        batch_size=field(document, "batch_size", _or_none(_count)),
        is_made_up=field(document, "batch_is_made_up", boolean),
        ops=field(document, "ops", _count),
        parameter_bytes=field(document, "parameter_bytes", _count),
        graph_fingerprint=field(document, "graph_fingerprint", text),
        left_out=field(document, "left_out", partial(list_of, _prose)),
    )


def _testbed(value: object) -> TestbedRecord:
    document = as_object(value)
    return TestbedRecord(
        kind=field(document, "kind", text),
        stand_in=field(document, "stand_in", boolean),
        description=field(document, "description", text),
        not_run=field(document, "not_run", _or_none(text)),
        devices=field(
            document, "devices", partial(list_of, lambda row: field(as_object(row), "name", text))
        ),
        links=dict(field(document, "links", partial(list_of, _link))),
    )


def _link(value: object) -> tuple[str, LinkRecord]:
    document = as_object(value)
    between = f"{field(document, 'source', text)} → {field(document, 'target', text)}"
    return between, LinkRecord(
        latency_ns=field(document, "latency_ns", _time),
        bandwidth_bytes_per_s=field(document, "bandwidth_bytes_per_s", _count),
    )


def _candidate(value: object) -> CandidateRecord:
    document = as_object(value)
    failure = field(document, "failure", _or_none(as_object))
    is_lawful = not field(document, "broken_laws", as_list)
    return CandidateRecord(
        name=field(document, "name", text),
        family=field(document, "family", text),
        placement_file=field(document, "placement_file", _or_none(text)),
        samples=field(document, "samples", _or_none(partial(list_of, _count))),
        predicted=field(document, "predicted", _or_none(partial(_predicted, is_lawful))),
        measured=field(document, "measured", _or_none(partial(_measured, is_lawful))),
        failure=None if failure is None else _failure_kind(failure),
        is_unverified=bool(field(document, "measured", _or_none(_unverified))),
        why="" if failure is None else field(failure, "message", _prose),
        in_full=None if failure is None else field(failure, "in_full", _or_none(text)),
    )


def _unverified(value: object) -> bool:
    found = field(as_object(value), "verification", _or_none(as_object))
    return found is not None and bool(field(found, "unverified", as_list))


def _predicted(is_lawful: bool, value: object) -> StepRecord:
    document = as_object(value)
    step_ns = field(document, "step_ns", _time)
    return StepRecord(
        step_ns=step_ns,
        ratio=field(document, "ratio_to_single", _or_none(_range)),
        transfer_count=field(document, "transfer_count", _count),
        parts=_parts(document, step_ns) if is_lawful else None,
    )


def _measured(is_lawful: bool, value: object) -> StepRecord:
    document = as_object(value)
    step_ns = field(document, "step_ns", _median_step)
    slowdown = field(document, "profiler_overhead", _or_none(_ratio))
    count = field(document, "transfer_count", _or_none(_count))
    return StepRecord(
        step_ns=step_ns,
        ratio=field(document, "ratio_to_single", _or_none(_interval)),
        transfer_count=count if is_lawful else None,
        parts=_parts(document, round(step_ns * slowdown)) if slowdown and is_lawful else None,
    )


def _parts(document: dict[str, object], step_ns: int) -> Parts:
    compute_ns = field(document, "compute_ns", _by_device)
    waits_ns = field(document, "exposed_by_device_ns", _by_device)
    busiest = max(compute_ns, key=compute_ns.__getitem__, default="")
    computes_ns, copies_ns = compute_ns.get(busiest, 0), waits_ns.get(busiest, 0)
    return Parts(
        device=busiest,
        compute_ns=computes_ns,
        copies_ns=copies_ns,
        idle_ns=max(step_ns - computes_ns - copies_ns, 0),
        longest_wait_ns=max(waits_ns.values(), default=0),
    )


def _interval(value: object) -> Interval:
    document = as_object(value)
    low, high = field(document, "ci95", _pair)
    return _ordered(low, field(document, "median", _ratio), high)


def _range(value: object) -> Interval:
    document = as_object(value)
    low, ratio, high = (field(document, key, _ratio) for key in ("low", "ratio", "high"))
    return _ordered(low, ratio, high)


def _ordered(low: float, median: float, high: float) -> Interval:
    if not low <= median <= high:
        raise MisfitError(f"{low:g}, {median:g}, {high:g} are not in order")
    return Interval(median=median, low=low, high=high)


def _pair(value: object) -> tuple[float, float]:
    pair = list_of(_ratio, as_list(value))
    if len(pair) != _TWO:
        raise MisfitError(f"{shown(value)} is not two numbers")
    return pair[0], pair[1]


def _ratio(value: object) -> float:
    if (type(value) is float or type(value) is int) and 1 / _MAX_RATIO < value < _MAX_RATIO:
        return float(value)
    raise MisfitError(f"{shown(value)} is not a ratio of two step times")


def _failure_kind(value: object) -> FailureKind:
    return field(as_object(value), "kind", partial(_member, FailureKind))


def _answer(value: object) -> AnswerRecord:
    document = as_object(value)
    return AnswerRecord(
        verdict=field(document, "verdict", partial(_member, AdviceVerdict)),
        candidate=field(document, "candidate", _or_none(text)),
        basis=field(document, "basis", partial(_one_of, _BASES)),
        answer=field(document, "answer", _prose),
        caveat=field(document, "caveat", _or_none(_prose)),
        how=field(document, "how", _or_none(_prose)),
        deciding=field(document, "deciding", partial(list_of, _prose)),
        next_run=field(document, "next_run", _or_none(_next_run)),
    )


def _next_run(value: object) -> NextRun:
    document = as_object(value)
    return NextRun(
        change=field(document, "change", text), takes_ns=field(document, "takes_ns", _time)
    )


def _finding(value: object) -> FindingRecord | None:
    """Return a finding; None of one about a split that the user is not told to make."""
    document = as_object(value)
    if field(document, "hypothetical", lambda is_so: is_so is True):
        return None
    return FindingRecord(
        code=field(document, "code", text),
        name=field(document, "name", text),
        action=field(document, "action", _prose),
        saving=_saving(document) if "saving_step_ns" in document else None,
        command=_or_none(_prose)(document.get("command")),
    )


def _saving(document: dict[str, object]) -> Saving:
    step_ns, low_ns, saving_ns, high_ns = (
        field(document, f"saving_{of}ns", _time) for of in ("step_", "low_", "", "high_")
    )
    basis = field(document, "saving_basis", partial(_one_of, (*_BASES, EXTRAPOLATED)))
    try:
        return Saving(
            step_ns=step_ns, saving_ns=saving_ns, low_ns=low_ns, high_ns=high_ns, basis=basis
        )
    except ValueError as error:
        raise MisfitError(str(error)) from None


def _option(value: object) -> str:
    """Return the value of an option in words."""
    if isinstance(value, list):
        return ", ".join(map(_option, value))
    if isinstance(value, bool):
        return YES if value else "no"
    if value is None:
        return "not given"
    return text(value) if isinstance(value, str) else shown(value)


def _prose(value: object) -> str:
    """Return a text that may quote what a process printed, or name every layer."""
    return text(value, most_chars=_MAX_PROSE_CHARS)


def _one_of(words: Sequence[str], value: object) -> str:
    if value not in words:
        raise MisfitError(f"{shown(value)} is not {' or '.join(words)}")
    return text(value)


def _as_is(value: object) -> int:
    return field(as_object(value), "step_ns", _median_step)


def _median_step(value: object) -> int:
    return field(as_object(value), "median", _time)


def _member(kinds: type[E], value: object) -> E:
    try:
        return kinds(text(value))
    except ValueError:
        raise MisfitError(f"{shown(value)} is not {', '.join(kinds)}") from None


def _or_none(read: Callable[[object], T]) -> Callable[[object], T | None]:
    return lambda value: None if value is None else read(value)


def _by_device(value: object) -> dict[str, int]:
    return object_of(_time, value)


def _time(value: object) -> int:
    return integer(value, "a time in whole nanoseconds", high=MAX_NS)


def _count(value: object) -> int:
    return integer(value, "a whole number")
