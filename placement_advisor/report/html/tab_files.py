"""The files of the tab, read from the folder of an analysis that may be anybody's.

What is returned has the fields that `tab_json` writes and no others, each of its type, with numbers
that point at something that is there: a page can show it, whatever it says. Fields that are missing
are null, as those that an older advisor did not write yet.
"""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from placement_advisor.errors import AdvisorError
from placement_advisor.files.foreign_json import (
    MAX_INTEGER,
    MisfitError,
    as_list,
    as_object,
    boolean,
    check_version,
    content,
    integer,
    list_of,
    parse,
    shown,
    text,
    within,
)
from placement_advisor.report.tensorboard.tab_json import SCHEMA_VERSION

if TYPE_CHECKING:
    from collections.abc import Callable

    Read = Callable[[object], Any]
    Fields = dict[str, Any]

# Of code. Names and pages are shorter.
_MOST_CHARS = 1_000_000
_SPAN = 4
_ENDS = 2


def read_overview(path: Path) -> Fields:
    """Return what the tab shows first of an analysis.

    Raises:
        AdvisorError: the file cannot be read, or is damaged.
    """
    return _checked(path, _overview)


def read_details(path: Path, overview: Fields) -> Fields:
    """Return what the tab shows of one of the candidates of an overview.

    Raises:
        AdvisorError: the file cannot be read, or is damaged.
    """
    return _checked(path, partial(_details, overview))


def _checked(path: Path, read: Read) -> Fields:
    try:
        found: Fields = read(parse(content(path)))
    except MisfitError as misfit:
        raise AdvisorError(
            f"{path}: {misfit}",
            hint="give the folder of an analysis, as `advisor analyze MODEL` leaves it",
        ) from None
    return found


def _overview(value: object) -> Fields:
    check_version(as_object(value), SCHEMA_VERSION)
    overview: Fields = _OVERVIEW(value)
    names = [each["name"] for each in overview["candidates"]]
    if len(set(names)) < len(names):
        raise MisfitError("two of the same name", "candidates")
    count = len(overview["graph"]["layers"])
    for flow in overview["graph"]["flows"]:
        for end in ("source", "target"):
            _below(count, f"graph.flows.{end}", flow[end])
        if len(flow["route"]) < _ENDS:
            raise MisfitError("a way without two ends", "graph.flows.route")
    return overview


def _details(overview: Fields, value: object) -> Fields:
    details: Fields = _DETAILS(value)
    layers, flows = (len(overview["graph"][each]) for each in ("layers", "flows"))
    if details["layers"] is not None and len(details["layers"]) != layers:
        raise MisfitError(f"{len(details['layers'])} of {layers} layers", "layers")
    for flow, _ in details["cuts"] or ():
        _below(flows, "cuts", flow)
    for which, timeline in details["timelines"].items():
        if timeline is not None:
            names = len(timeline["names"])
            for lane, name, *_ in timeline["spans"]:
                _below(len(details["lanes"]), f"timelines.{which}.spans", lane)
                _below(names, f"timelines.{which}.spans", name)
    return details


def _below(count: int, place: str, number: int) -> None:
    if number >= count:
        raise MisfitError(f"{number} is none of {count}", place)


def _object(**fields: Read) -> Read:
    """Return what reads an object; a field that it lacks is null."""

    def read(value: object) -> Fields:
        document = as_object(value)
        return {key: within(key, each, document.get(key)) for key, each in fields.items()}

    return read


def _or_null(read: Read) -> Read:
    return lambda value: None if value is None else read(value)


def _some(read: Read) -> Read:
    return partial(list_of, read)


def _pair(first: Read, second: Read) -> Read:
    def read(value: object) -> tuple[object, object]:
        match as_list(value):
            case [one, other]:
                return within("[0]", first, one), within("[1]", second, other)
        raise MisfitError(f"{shown(value)} is not two values")

    return read


def _number(value: object) -> float:
    if isinstance(value, float) and math.isfinite(value):
        return value
    return integer(value, "a number", low=-MAX_INTEGER)


def _file_name(value: object) -> str:
    """Return a name of which a file beside the others can be called."""
    name = text(value)
    if Path(name).name != name or "\0" in name:
        raise MisfitError(f"{shown(value)} is no name of a candidate")
    return name


def _span(value: object) -> list[object]:
    span = as_list(value)
    # There are very many of them: no error with a place is prepared for each number.
    if len(span) != _SPAN or any(type(n) is not int or not 0 <= n <= MAX_INTEGER for n in span):
        raise MisfitError(f"{shown(value)} is not a lane, a name, a start and an end")
    return span


_text = partial(text, most_chars=_MOST_CHARS)
_count = partial(integer, what="a whole number from 0 to 2^63")
_FIGURES = _object(
    step_ns=_count,
    copies=_or_null(_count),
    bytes=_or_null(_count),
    bytes_are_a_floor=boolean,
    exposed_ns=_or_null(_count),
)
_OVERVIEW = _object(
    doing=_or_null(_text),
    model=_object(
        path=_text,
        name=_text,
        mode=_text,
        batch_size=_or_null(_count),
        ops=_count,
        parameter_bytes=_count,
    ),
    testbed=_or_null(_text),
    not_run=_or_null(_text),
    devices=_some(_text),
    hosts=_or_null(_some(_object(name=_text, devices=_some(_text)))),
    verdict=_or_null(
        _object(
            headline=_text,
            candidate=_or_null(_text),
            reasons=_some(_text),
            others=_some(_text),
        )
    ),
    candidates=_some(
        _object(
            name=_file_name,
            rationale=_text,
            failure=_or_null(_text),
            failure_kind=_or_null(_text),
            samples=_or_null(_some(_count)),
            predicted=_or_null(_FIGURES),
            peak_memory=_or_null(_some(_object(device=_text, bytes=_count))),
            measured=_or_null(_FIGURES),
            predicted_speedup=_or_null(_number),
            predicted_range=_or_null(_pair(_number, _number)),
            predicted_after_runs=_or_null(
                _object(runs=_count, median=_number, low=_number, high=_number)
            ),
            measured_speedup=_or_null(_object(median=_number, low=_number, high=_number)),
            details=_count,
        )
    ),
    as_is=_or_null(_object(name=_text, step_ns=_count)),
    input=_or_null(_text),
    expected_errors=_or_null(_text),
    left_out=_or_null(_text),
    graph=_object(
        box=_pair(_number, _number),
        layers=_some(
            _object(name=_text, at=_pair(_number, _number), ops=_count, flops=_or_null(_count))
        ),
        flows=_some(
            _object(
                source=_count,
                target=_count,
                bytes=_or_null(_count),
                route=_some(_pair(_number, _number)),
            )
        ),
    ),
    findings=_some(
        _object(
            code=_text,
            finding=_text,
            action=_text,
            where=_text,
            hypothetical=boolean,
            saves=_or_null(_text),
            page=text,
        )
    ),
    no_findings=_text,
    warnings=_some(_text),
    how=_or_null(
        _object(
            title=_text,
            note=_or_null(_text),
            candidate=_text,
            words=_text,
            call=_text,
            listing=_or_null(_text),
        )
    ),
    break_even=_or_null(
        _object(
            title=_text,
            lines=_some(_text),
            note=_text,
            sweeps=_some(
                _object(
                    axis=_text,
                    points=_some(
                        _object(
                            value=_text, candidate=_text, speedup=_text, wins=boolean, here=boolean
                        )
                    ),
                )
            ),
        )
    ),
    scaling=_or_null(
        _object(
            note=_text,
            rows=_some(
                _object(
                    name=_text,
                    candidate=_text,
                    devices=_count,
                    batch=_count,
                    predicted_ns=_or_null(_count),
                    measured_ns=_or_null(_count),
                    speedup=_or_null(_number),
                )
            ),
        )
    ),
)
_COPIES = _or_null(
    _some(
        _object(
            source=_text,
            target=_text,
            count=_count,
            bytes=_or_null(_count),
            bytes_are_a_floor=boolean,
            time_ns=_count,
        )
    )
)
_TIMELINE = _or_null(
    _object(
        heading=_text,
        step_ns=_or_null(_count),
        names=_some(_text),
        spans=_some(_span),
        copies=_some(_count),
    )
)
_DETAILS = _object(
    layers=_or_null(_some(_or_null(_count))),
    cuts=_or_null(_some(_pair(_count, _or_null(_count)))),
    tensors=_some(
        _object(tensor=_text, source=_text, target=_text, bytes=_or_null(_count), time_ns=_count)
    ),
    copies=_object(simulated=_COPIES, measured=_COPIES),
    activities=_or_null(
        _object(
            parts=_text,
            head=_some(_text),
            rows=_some(_object(cells=_some(_text), is_copy=boolean)),
        )
    ),
    lanes=_some(_text),
    timelines=_object(simulated=_TIMELINE, measured=_TIMELINE),
)
