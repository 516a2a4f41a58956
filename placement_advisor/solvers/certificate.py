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
    parse,
    shown,
    text,
    within,
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
        digest = within(_DIGEST, text, field(document, _DIGEST))
        if digest != _digest({k: v for k, v in document.items() if k != _DIGEST}):
            raise RefusedError("it was changed after it had been written: its digest differs")
        fingerprint = within("graph_fingerprint", text, field(document, "graph_fingerprint"))
        toml = within(
            "cluster", partial(text, most_chars=foreign_toml.MAX_BYTES), field(document, "cluster")
        )
        claim = within("claim", as_object, field(document, "claim"))
        arguments = within("arguments", as_list, field(document, "arguments"))
        return Certificate(
            graph_fingerprint=fingerprint,
            cluster=read_cluster(toml.encode(), f"{path}: cluster"),
            costs=_costs(document),
            source=within("costs_from", _source, field(document, "costs_from")),
            bound=LowerBound(
                split_ns=within("claim.split_ns", _ns, field(claim, "split_ns")),
                alone_ns=within("claim.alone_ns", _amounts, field(claim, "alone_ns")),
                arguments=tuple(
                    within(f"arguments[{i}]", _argument, each) for i, each in enumerate(arguments)
                ),
            ),
        )
    except MisfitError as misfit:
        raise AdvisorError(f"{path}: not a certificate: {misfit}", hint=_HINT) from None


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
    rows = within("op_ns", as_list, field(document, "op_ns"))
    tables = [
        CostTable(
            costs={
                # A certificate tells what was assumed, and not where it came from.
                name: OpCost(time_ns=time_ns, basis=CostBasis.GUESSED)
                for name, time_ns in within(f"op_ns[{i}]", _amounts, row).items()
            }
        )
        for i, row in enumerate(rows)
    ]
    of = within("op_ns_of", _amounts, field(document, "op_ns_of"))
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
    kind = within("kind", text, field(table, "kind"))
    value_ns = within("value_ns", _ns, field(table, "value_ns"))
    if kind == "path":
        ops = within("ops", as_list, field(table, "ops"))
        return PathArgument(value_ns=value_ns, ops=tuple(within("ops", text, op) for op in ops))
    if kind == "work":
        weights = within("weights", _amounts, field(table, "weights"))
        return WorkArgument(value_ns=value_ns, weights=weights)
    if kind == "cut":
        root = within("root", text, field(table, "root"))
        rows = within("flow", as_list, field(table, "flow"))
        flow = dict(within(f"flow[{i}]", _arc, row) for i, row in enumerate(rows))
        if len(flow) < len(rows):
            raise MisfitError("an arc is given twice", "flow")
        return CutArgument(value_ns=value_ns, root=root, flow=flow)
    if kind == "all":
        placements = within("placements", _ns, field(table, "placements"))
        return AllArgument(value_ns=value_ns, placements=placements)
    raise MisfitError(f"{shown(kind)} is not path, work, cut or all", "kind")


def _arc(value: object) -> tuple[tuple[str, str], int]:
    row = as_list(value)
    if len(row) != len(("from", "to", "amount")):
        raise MisfitError(f"{shown(row)} is not [from, to, ns]")
    return (text(row[0]), text(row[1])), _ns(row[2])


_ns = partial(integer, what="a whole number from 0 to 2^60", high=MAX_NS)


def _amounts(value: object) -> dict[str, int]:
    return {name: within(shown(name), _ns, amount) for name, amount in as_object(value).items()}
