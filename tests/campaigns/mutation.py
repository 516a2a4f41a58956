"""Mutants: a module with one small mistake in it.

A mutant is made from the syntax tree: another comparison or operator, min for max, a number off by
one, a condition that always holds or never, an operand, argument or statement that is gone, two
arguments in the other's place, a collection that stays empty. Words (docstrings, messages),
annotations and imports are let be: no result rests on them. What is changed is written anew in one
place of the text, so that the rest stands as it was and the difference can be read.

Whether tests notice is for `workshop` to say. Left out: mistakes of two places, and mistakes that
are no slip but a misunderstanding.
"""

import ast
import difflib
from collections import Counter
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = "placement_advisor"
_LONGEST_SHOWN = 60

_SWAPPED_CALLS = {"min": "max", "max": "min", "any": "all", "all": "any"}
_COMPARISONS = {
    ast.Lt: (ast.LtE, ast.Gt),
    ast.LtE: (ast.Lt, ast.GtE),
    ast.Gt: (ast.GtE, ast.Lt),
    ast.GtE: (ast.Gt, ast.LtE),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
}
_OPERATORS = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One change of one module.

    ``name`` tells it from all others and does not hang on line numbers: module, function, what
    stood there and what stands there now, and a number where that happens several times.
    """

    name: str
    module: str
    source: str
    changed: str

    @property
    def difference(self):
        lines = difflib.unified_diff(
            self.source.splitlines(), self.changed.splitlines(), self.module, self.module, "", "", 2
        )
        return "\n".join(line.rstrip() for line in lines)


def mutants(module):
    """Return all mutants of a module, which is named by its path within the package."""
    return mutants_of(module, (ROOT / PACKAGE / module).read_text(encoding="utf-8"))


def mutants_of(module, source):
    """Return all mutants of a module's text, in the order in which they stand there."""
    found = []
    seen = Counter()
    data = source.encode()
    starts = [0, *accumulate(map(len, data.splitlines(keepends=True)))]
    for scope, node, new in _changes(ast.parse(source), ()):
        new_text = ast.unparse(ast.fix_missing_locations(new))
        name = f"{module} {'.'.join(scope) or 'module'}: {_short(ast.unparse(node), new_text)}"
        seen[name] += 1
        if seen[name] > 1:
            name += f" ({seen[name]})"
        if isinstance(new, ast.expr):
            new_text = f"({new_text})"
        begin = starts[node.lineno - 1] + node.col_offset
        end = starts[node.end_lineno - 1] + node.end_col_offset
        changed = (data[:begin] + new_text.encode() + data[end:]).decode()
        compile(changed, module, "exec")
        found.append(Mutant(name=name, module=module, source=source, changed=changed))
    return tuple(found)


def _changes(node, scope):
    """Yield what can be changed: where (the function), what stands there, and what could."""
    parts = ast.iter_child_nodes(node)
    match node:
        case ast.Import() | ast.ImportFrom() | ast.JoinedStr() | ast.Expr(value=ast.Constant()):
            return
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return
        case ast.FunctionDef() | ast.ClassDef():
            scope = (*scope, node.name)
            defaults = node.args.defaults if isinstance(node, ast.FunctionDef) else ()
            parts = (*defaults, *node.body)
        case ast.AnnAssign():
            parts = [node.value] if node.value is not None else ()
        case ast.Raise():
            parts = ()
    for old, new in _others(node):
        yield scope, old, new
    for part in parts:
        yield from _changes(part, scope)


def _others(node):
    """Yield what of a node can be changed, and what could stand there."""
    match node:
        case ast.If() | ast.IfExp():
            yield from ((node.test, ast.Constant(holds)) for holds in (True, False))
        case ast.While():
            yield node.test, ast.Constant(False)
        case ast.Expr() | ast.Raise():
            yield node, ast.Pass()
        case ast.Continue():
            yield from ((node, other) for other in (ast.Pass(), ast.Break()))
        case ast.Break():
            yield node, ast.Continue()
        case ast.Assign():
            # A name that is never set is an error at once; what else is set may go unnoticed.
            if not any(isinstance(target, ast.Name | ast.Tuple) for target in node.targets):
                yield node, ast.Pass()
        case ast.AugAssign() | ast.BinOp():
            if isinstance(node, ast.AugAssign):
                yield node, ast.Pass()
            if type(node.op) in _OPERATORS:
                yield node, _with(node, op=_OPERATORS[type(node.op)]())
        case ast.Compare():
            for i, op in enumerate(node.ops):
                for kind in _COMPARISONS[type(op)]:
                    yield node, _with(node, ops=_at(node.ops, i, kind()))
        case ast.BoolOp():
            yield node, _with(node, op=ast.Or() if isinstance(node.op, ast.And) else ast.And())
            for i in range(len(node.values)):
                rest = _at(node.values, i)
                yield node, ast.BoolOp(node.op, rest) if len(rest) > 1 else rest[0]
        case ast.UnaryOp():
            yield node, node.operand
        case ast.Constant(value=bool() as value):
            yield node, ast.Constant(not value)
        case ast.Constant(value=int() as value):
            yield from ((node, ast.Constant(other)) for other in (value + 1, value - 1))
        case ast.Constant(value=float() as value):
            yield from ((node, ast.Constant(other)) for other in (value * 2, value / 2))
        case ast.Call():
            yield from ((node, other) for other in _other_calls(node))
        case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
            for i, part in enumerate(node.generators):
                for j in range(len(part.ifs)):
                    fewer = _with(part, ifs=_at(part.ifs, j))
                    yield node, _with(node, generators=_at(node.generators, i, fewer))
            empty = {ast.ListComp: "[]", ast.SetComp: "set()", ast.DictComp: "{}"}.get(type(node))
            if empty is not None:
                yield node, ast.parse(empty, mode="eval").body


def _other_calls(node):
    name = node.func.id if isinstance(node.func, ast.Name) else ""
    if name in _SWAPPED_CALLS:
        yield _with(node, func=ast.Name(_SWAPPED_CALLS[name], ast.Load()))
    if name == "range":
        for op in (ast.Add(), ast.Sub()):
            yield _with(node, args=[*node.args[:-1], ast.BinOp(node.args[-1], op, ast.Constant(1))])
    elif len(node.args) > 1 and not any(isinstance(a, ast.Starred) for a in node.args[:2]):
        first, second, *rest = node.args
        if ast.dump(first) != ast.dump(second):
            yield _with(node, args=[second, first, *rest])
    for i, keyword in enumerate(node.keywords):
        # Without a field a value cannot be made at all; a default or a key can be forgotten.
        if keyword.arg in ("key", "default", "strict", "reverse", "repeat", "low", "high"):
            yield _with(node, keywords=_at(node.keywords, i))


def _with(node, **fields):
    return type(node)(**{**dict(ast.iter_fields(node)), **fields})


def _at(items, place, *others):
    """Return items with others in the place of one."""
    return [*items[:place], *others, *items[place + 1 :]]


def _short(old, new):
    """Return both texts, each about the place where they differ if it is long."""
    old, new = " ".join(old.split()), " ".join(new.split())
    if max(len(old), len(new)) <= _LONGEST_SHOWN:
        return f"{old} → {new}"
    ends = enumerate(zip(old, new, strict=False))
    same = next((i for i, (one, other) in ends if one != other), min(len(old), len(new)))
    begin = max(0, same - _LONGEST_SHOWN // 3)
    dots = "…" if begin else ""

    def cut(text):
        end = begin + _LONGEST_SHOWN
        return f"{dots}{text[begin:end]}{'…' if len(text) > end else ''}"

    return f"{cut(old)} → {cut(new)}"
