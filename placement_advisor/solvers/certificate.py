"""A lower bound on the step time as a file that anyone can check.

It holds what the bound rests on (devices and links, the time of every op, and where these come
from), what is claimed, and the arguments. Not the graph: that is named by its fingerprint, and is a
file of its own. A digest over all of it tells a file that was changed from one that was written so.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from placement_advisor.cost.table import CostBasis, CostSource, CostTable, OpCost
from placement_advisor.errors import AdvisorError
from placement_advisor.files import foreign_toml
from placement_advisor.files.foreign_json import (
    MisfitError,
    as_list,
    as_object,
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
from placement_advisor.machine.cluster_file import cluster_as_toml, read_cluster
from placement_advisor.solvers.bounds.arguments import (
    AllArgument,
    Argument,
    CutArgument,
    LowerBound,
    PathArgument,
    WorkArgument,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from placement_advisor.machine.devices import Cluster

SCHEMA_VERSION = 1
_DIGEST = "sha256"
_HINT = "`advisor analyze` writes certificates"


class RefusedError(Exception):
    """A certificate does not show what it claims."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """A bound, and what it rests on: a graph by its fingerprint, devices, and what ops cost.

    ``source`` says whose costs those are: the proof holds for them, and for no others.
    """

    graph_fingerprint: str
    cluster: Cluster
    costs: Mapping[str, CostTable]
    source: CostSource
    bound: LowerBound


def write_certificate(path: Path, told: Certificate) -> None:
    """Write a certificate file.

    Raises:
        OSError: it cannot be written.
    """
    bound = told.bound
    document: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "graph_fingerprint": told.graph_fingerprint,
        "cluster": cluster_as_toml(told.cluster),
        "costs_from": told.source.value,
        **_costs_as_json(told.costs, told.cluster),
        "claim": {"split_ns": bound.split_ns, "alone_ns": dict(bound.alone_ns)},
        "arguments": [
            _argument_as_json(each)
            for each in bound.arguments
            # Flows are long: one that is not needed says no more than its value.
            if each is bound.arguments[0] or isinstance(each, PathArgument | WorkArgument)
        ],
    }
    document[_DIGEST] = _digest(document)
    path.write_text(json.dumps(document, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def read_certificate(path: Path) -> Certificate:
    """Read what `write_certificate` wrote. The file is not trusted.

    Raises:
        AdvisorError: it cannot be read, or is no certificate.
        RefusedError: it was changed after it had been written.
    """
    try:
        document = as_object(parse(content(path)))
        check_version(document, SCHEMA_VERSION)
        digest = field(document, _DIGEST, text)
        if digest != _digest({k: v for k, v in document.items() if k != _DIGEST}):
            raise RefusedError("it was changed after it had been written: its digest differs")
        fingerprint = field(document, "graph_fingerprint", text)
        toml = field(document, "cluster", partial(text, most_chars=foreign_toml.MAX_BYTES))
        split_ns, alone_ns = field(document, "claim", _claim)
        return Certificate(
            graph_fingerprint=fingerprint,
            cluster=read_cluster(toml.encode(), f"{path}: cluster"),
            costs=_costs(document),
            source=field(document, "costs_from", _source),
            bound=LowerBound(
                split_ns=split_ns,
                alone_ns=alone_ns,
                arguments=field(document, "arguments", partial(list_of, _argument)),
            ),
        )
    except MisfitError as misfit:
        raise AdvisorError(f"{path}: not a certificate: {misfit}", hint=_HINT) from None


def _claim(value: object) -> tuple[int, dict[str, int]]:
    claim = as_object(value)
    return field(claim, "split_ns", _ns), field(claim, "alone_ns", _amounts)


def _digest(document: Mapping[str, Any]) -> str:
    canonical = json.dumps(document, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode(errors="surrogatepass")).hexdigest()


def _costs_as_json(costs: Mapping[str, CostTable], cluster: Cluster) -> dict[str, Any]:
    """Return each table once, and which of them each device and host has."""
    tables: dict[int, int] = {}
    found: list[dict[str, int]] = []
    table_of = {}
    for place in cluster.places():
        table = costs[place.name]
        if id(table) not in tables:
            tables[id(table)] = len(found)
            found.append({name: cost.time_ns for name, cost in table.costs.items()})
        table_of[place.name] = tables[id(table)]
    return {"op_ns": found, "op_ns_of": table_of}


def _costs(document: dict[str, object]) -> dict[str, CostTable]:
    tables = [
        CostTable(
            costs={
                # A certificate tells what was assumed, and not where it came from.
                name: OpCost(time_ns=time_ns, basis=CostBasis.GUESSED)
                for name, time_ns in row.items()
            }
        )
        for row in field(document, "op_ns", partial(list_of, _amounts))
    ]
    of = field(document, "op_ns_of", _amounts)
    for place, number in of.items():
        if number >= len(tables):
            raise MisfitError(f"there is no table {number}", f"op_ns_of.{place}")
    return {place: tables[number] for place, number in of.items()}


def _source(value: object) -> CostSource:
    told = text(value)
    if told not in list(CostSource):
        raise MisfitError(f"{shown(told)} is not {', '.join(CostSource)}")
    return CostSource(told)


def _argument_as_json(argument: Argument) -> dict[str, Any]:
    value = {"value_ns": argument.value_ns}
    if isinstance(argument, PathArgument):
        return {"kind": "path", **value, "ops": list(argument.ops)}
    if isinstance(argument, WorkArgument):
        return {"kind": "work", **value, "weights": dict(argument.weights)}
    if isinstance(argument, CutArgument):
        flow = [[*ends, amount] for ends, amount in argument.flow.items()]
        return {"kind": "cut", **value, "root": argument.root, "flow": flow}
    return {"kind": "all", **value, "placements": argument.placements}


def _argument(value: object) -> Argument:
    table = as_object(value)
    kind = field(table, "kind", text)
    value_ns = field(table, "value_ns", _ns)
    if kind == "path":
        return PathArgument(value_ns=value_ns, ops=field(table, "ops", partial(list_of, text)))
    if kind == "work":
        return WorkArgument(value_ns=value_ns, weights=field(table, "weights", _amounts))
    if kind == "cut":
        root = field(table, "root", text)
        arcs = field(table, "flow", partial(list_of, _arc))
        flow = dict(arcs)
        if len(flow) < len(arcs):
            raise MisfitError("an arc is given twice", "flow")
        return CutArgument(value_ns=value_ns, root=root, flow=flow)
    if kind == "all":
        placements = field(table, "placements", _ns)
        return AllArgument(value_ns=value_ns, placements=placements)
    raise MisfitError(f"{shown(kind)} is not path, work, cut or all", "kind")


def _arc(value: object) -> tuple[tuple[str, str], int]:
    row = as_list(value)
    if len(row) != len(("from", "to", "amount")):
        raise MisfitError(f"{shown(row)} is not [from, to, ns]")
    return (text(row[0]), text(row[1])), _ns(row[2])


_ns = partial(integer, what="a whole number from 0 to 2^60", high=MAX_NS)
_amounts = partial(object_of, _ns)
