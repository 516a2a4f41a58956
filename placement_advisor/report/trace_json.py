"""The summary of a traced step for programs: fields are those of `GraphSummary`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

from placement_advisor import __version__
from placement_advisor.totals import Total

if TYPE_CHECKING:
    from placement_advisor.graph_summary import GraphSummary
    from placement_advisor.tf.answers import Traced

SCHEMA_VERSION = 1


def trace_as_json(
    traced: Traced, summary: GraphSummary, *, model_path: str, graph_file: str
) -> dict[str, Any]:
    """Return the content.

    A sum is an object: ``amount`` (null if nothing of it is known), and how many of its
    ``parts`` are ``unknown``, so missing from it.
    """
    return {
        "schema_version": SCHEMA_VERSION,
        "advisor_version": __version__,
        "tensorflow_version": traced.tensorflow_version,
        "model": {
            "path": model_path,
            "name": traced.name,
            "mode": traced.mode,
            "chosen": traced.chosen,
            "batch_size": traced.batch_size,
        },
        "graph_file": graph_file,
        "ops": summary.ops,
        **_plain(summary),
    }


def _plain(value: Any) -> Any:
    if isinstance(value, Total):
        return {"amount": value.amount, "parts": value.parts, "unknown": value.unknown}
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _plain(content) for key, content in value.items()}
    if isinstance(value, tuple):
        return [_plain(content) for content in value]
    return value
