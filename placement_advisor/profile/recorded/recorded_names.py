"""Which recorded op is which op of a graph, although both have names of their own.

One model gets other names wherever it is built and run. What is known to differ, and is seen
through:

- `StatefulPartitionedCall/` before a name, also behind `while/`: the step was called by another
  function, or in a loop of training steps;
- `outer/while/body/_17/` before a name: where TensorFlow puts the body of a loop or a branch when
  it runs it (`body`, `cond`, `then`, `else`); the op's own path stands behind;
- numbers of scopes: Keras and TensorFlow count what a process has built before (`dense_6` here,
  `dense_1` there). Among scopes of one parent that differ in their numbers alone, the first is
  taken for the first and so on, if there are equally many; if only some of the graph's were
  recorded, with the same numbers, these are the same. Else nothing is known. Ops, and scopes that
  are named after one, are counted by the function that they stand in: their numbers are equal;
- `ArithmeticOptimizer/FoldTransposeIntoMatMul_` before the last part of a name: TensorFlow put a
  cheaper op in the place of this one;
- one scope more around a part of the step, on one side (`model/dense` and `dense`): tried for
  what is left over, also within `gradient_tape/`.

Kinds have to agree, but for versions (`AddV2`), for kernels that TensorFlow puts in for the op
(`_MklMatMul`, `_FusedConv2D`), and for the cheaper kind that its optimizer makes of it (`x ** 2`
is a `Pow` that runs as a `Square`). What could be two ops is none.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    # Name and kind of an op, of which the kind may not be known, and of a recorded op.
    Named = tuple[str, str | None]
    Ran = tuple[str, str]
    # An op of the graph and the recorded op that it may be.
    Claim = tuple[str, Ran]

_INLINED = re.compile(r".*/(?:body|cond|then|else)/_\d+/")
_CALLED = re.compile(r"^(?:while(?:_\d+)?/)?(?:(?:Stateful)?PartitionedCall(?:_\d+)?/)+")
# `SimplifyAggregation_Mul_add` is the product that replaces the op `add`.
_REPLACED = re.compile(r"\bArithmeticOptimizer/(?:SimplifyAggregation_Mul|[A-Za-z]+)_(?=[^/]*$)")
_COUNTED = re.compile(r"(.*?)((?:_\d{1,9})*)")
_VERSION = re.compile(r"V\d+$")
# What an op of each kind runs as after TensorFlow's arithmetic optimizer and constant folding, seen
# with TensorFlow 2.21 (`tests/tf/test_training.py` records them).
CHEAPER_KINDS = {
    "Add": {"Sub", "Mul"},
    "AddN": {"Mul"},
    "Log": {"LogSoftmax"},
    "Mul": {"Square"},
    "Pow": {"Square", "Sqrt", "Rsqrt", "Reciprocal"},
    "RealDiv": {"Mul", "Reciprocal"},
    "Sqrt": {"Rsqrt"},
    "Sub": {"SquaredDifference"},
}
GRADIENTS = "gradient_tape"


@dataclass(slots=True)
class _Scope:
    """Ops by the last part of their name, and the scopes within."""

    ops: defaultdict[str, list[Named]] = field(default_factory=lambda: defaultdict(list))
    scopes: defaultdict[str, _Scope] = field(default_factory=lambda: defaultdict(_Scope))


def same_ops(kinds: Mapping[str, str | None], ran: Collection[Ran]) -> dict[Ran, str]:
    """Return which op of the graph each recorded op is, where that is certain.

    ``kinds`` has the kind of each op of the graph by its name, None where it is not known.
    """
    certain = _certain(_claims(_tree(kinds.items()), _tree(ran)))
    known = set(certain.values())
    graph = _tree((name, kind) for name, kind in kinds.items() if name not in known)
    recorded = _tree(op for op in ran if op not in certain)
    return certain | _certain(_claims_within_one_more_scope(graph, recorded))


def plain(name: str) -> str:
    """Return the name without what was put into it because of how the op was run."""
    return _REPLACED.sub("", _CALLED.sub("", _INLINED.sub("", name)))


def _tree(ops: Iterable[Named]) -> _Scope:
    root = _Scope()
    for name, kind in ops:
        *path, last = plain(name).split("/")
        scope = root
        for part in path:
            scope = scope.scopes[part]
        scope.ops[last].append((name, kind))
    return root


def _certain(claims: Iterable[Claim]) -> dict[Ran, str]:
    """Return those of the claims that no other contradicts; equal names decide."""
    by_op: defaultdict[str, set[Ran]] = defaultdict(set)
    by_ran: defaultdict[Ran, set[str]] = defaultdict(set)
    for op, ran in claims:
        by_op[op].add(ran)
        by_ran[ran].add(op)
    return {
        ran: op
        for op, rans in by_op.items()
        for ran in rans
        if (len(rans) == 1 and len(by_ran[ran]) == 1)
        or (op == ran[0] and sum(name == op for name, _ in rans) == 1)
    }


def _claims(graph: _Scope, recorded: _Scope) -> Iterator[Claim]:
    pairs = [(graph, recorded)]
    while pairs:
        graph, recorded = pairs.pop()
        for last in graph.ops.keys() & recorded.ops.keys():
            for name, kind in graph.ops[last]:
                for ran, ran_kind in recorded.ops[last]:
                    if ran_kind is not None and _agree(kind, ran_kind):
                        yield name, (ran, ran_kind)
        pairs += _same_scopes(graph, recorded)


def _claims_within_one_more_scope(graph: _Scope, recorded: _Scope) -> Iterator[Claim]:
    pairs = [(graph, recorded)]
    if GRADIENTS in graph.scopes and GRADIENTS in recorded.scopes:
        pairs.append((graph.scopes[GRADIENTS], recorded.scopes[GRADIENTS]))
    for of_graph, of_recorded in pairs:
        for inner in of_recorded.scopes.values():
            yield from _claims(of_graph, inner)
        for inner in of_graph.scopes.values():
            yield from _claims(inner, of_recorded)


def _agree(kind: str | None, ran_kind: str) -> bool:
    if kind is None or ran_kind.startswith("_"):
        return True
    kind, ran_kind = _VERSION.sub("", kind), _VERSION.sub("", ran_kind)
    return kind == ran_kind or ran_kind in CHEAPER_KINDS.get(kind, ())


def _same_scopes(graph: _Scope, recorded: _Scope) -> Iterator[tuple[_Scope, _Scope]]:
    are_ops = graph.ops.keys() | recorded.ops.keys()
    of_graph = _by_stem(graph.scopes.keys() - are_ops)
    of_recorded = _by_stem(recorded.scopes.keys() - are_ops)
    same = [(name, name) for name in graph.scopes.keys() & recorded.scopes.keys() & are_ops]
    for stem in of_graph.keys() & of_recorded.keys():
        ours, theirs = of_graph[stem], of_recorded[stem]
        if len(ours) == len(theirs):
            same += zip(ours, theirs, strict=True)
        elif set(theirs) < set(ours):
            same += zip(theirs, theirs, strict=True)
    yield from ((graph.scopes[ours], recorded.scopes[theirs]) for ours, theirs in same)


def _by_stem(names: Iterable[str]) -> dict[str, list[str]]:
    """Return the scopes that differ in their numbers alone, in the order of these."""
    counted: defaultdict[str, list[tuple[list[int], str]]] = defaultdict(list)
    for name in names:
        found = _COUNTED.fullmatch(name)
        assert found is not None, "the pattern matches everything"
        counted[found[1]].append(([int(digits) for digits in found[2].split("_")[1:]], name))
    return {stem: [name for _, name in sorted(found)] for stem, found in counted.items()}
