"""PA307: an optimizer updates whole tables, of which a step has read a few rows.

Model: one device, simulated with the ops that work on a whole table (`graph/dense_updates`) at the
share of their cost that the rows of a batch are of the table. Costs are those of the analysis,
measured where the model ran.

Left out: what finding each row once and picking rows of slots takes, a few ops on the rows of a
batch for each table.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil
from typing import TYPE_CHECKING

from placement_advisor.analysis.analysis_result import Finding
from placement_advisor.analysis.findings.evidence import MIN_SAVING_SHARE
from placement_advisor.analysis.findings.savings import by_ops
from placement_advisor.cost.table import ASSUMED_WITHIN, CostTable
from placement_advisor.graph.dense_updates import DenseUpdate, dense_updates
from placement_advisor.simulator.simulator import Simulator
from placement_advisor.units import format_bytes, format_ns, format_share

if TYPE_CHECKING:
    from placement_advisor.analysis.findings.evidence import Evidence

CODE = "PA307"
NAME = "table-updated-whole"
# Work on rows picks them from memory here and there, and has ops of its own: with a fifth of the
# table nothing was gained (`table_updates`, before 0.2). Judgement.
MAX_ROWS_SHARE = 0.1
# Of seven recommenders that nobody tuned for, none saved more than 1.73 times what was simulated,
# or less than a 1.23th of it (`table_updates`, before 0.2, the page has them).
_WITHIN = 1.75


def find(evidence: Evidence) -> tuple[Finding, ...]:
    """Return a finding if one device would gain by updating rows alone."""
    alone = evidence.alone
    updates = [u for u in dense_updates(evidence.graph) if u.rows_share <= MAX_ROWS_SHARE]
    if alone is None or alone.predicted is None or alone.placement is None or not updates:
        return ()
    costs = {name: _of_rows(table, updates) for name, table in evidence.costs.items()}
    now_ns = alone.predicted.step_ns
    rows_ns = Simulator(evidence.graph, costs, evidence.cluster).step_ns(alone.placement)
    if now_ns - rows_ns < MIN_SAVING_SHARE * now_ns:
        return ()
    within = ASSUMED_WITHIN if evidence.costs_are_assumed else _WITHIN
    largest = max(updates, key=lambda update: update.size_bytes)
    return (
        Finding(
            code=CODE,
            name=NAME,
            finding=f"{_tables(updates, largest)}: a step has gradients of at most "
            f"{format_share(_rows_share(updates))} of it and updates all of it, with "
            f"{sum(len(u.share_of) for u in updates)} ops; with those rows alone one device would "
            f"take {format_ns(rows_ns)} for a step in place of {format_ns(now_ns)} (simulated)",
            action=f"{_cure(updates)}; `advisor explain {CODE}` has the code",
            where=evidence.where(largest.table),
            saving=by_ops(now_ns, rows_ns, within),
        ),
    )


def _of_rows(table: CostTable, updates: list[DenseUpdate]) -> CostTable:
    """Return the costs with updates of rows alone."""
    costs = dict(table.costs)
    for update in updates:
        for name, share in update.share_of.items():
            if name in costs:
                costs[name] = replace(costs[name], time_ns=round(costs[name].time_ns * share))
    return CostTable(costs=costs)


def _rows_share(updates: list[DenseUpdate]) -> float:
    """Return the largest share of rows, in whole percent above it."""
    return ceil(max(update.rows_share for update in updates) * 100) / 100


def _tables(updates: list[DenseUpdate], largest: DenseUpdate) -> str:
    named = f"{largest.table} ({format_bytes(largest.size_bytes)})"
    return named if len(updates) == 1 else f"{len(updates)} tables, the largest {named}"


def _cure(updates: list[DenseUpdate]) -> str:
    if any(update.slots for update in updates):
        return (
            "update the rows of a batch alone, by an optimizer that leaves the averages of other "
            "rows as they are: that is another optimizer, so compare the loss"
        )
    return (
        "keep the gradients of the table as tf.IndexedSlices until they are applied: "
        "tf.clip_by_global_norm does, Keras' global_clipnorm does not"
    )
