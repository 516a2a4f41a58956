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
import copy
import difflib
from collections import Counter
from dataclasses import dataclass
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
        """The change as a unified diff."""
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
    starts = [0]
    for line in source.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for scope, node, new in _Changes(source).found:
        old_text = ast.unparse(node)
        new_text = ast.unparse(new)
        name = f"{module} {scope}: {_short(old_text, new_text)}"
        seen[name] += 1
        if seen[name] > 1:
            name += f" ({seen[name]})"
        if isinstance(new, ast.expr):
            new_text = f"({new_text})"
        data = source.encode()
        begin = starts[node.lineno - 1] + node.col_offset
        end = starts[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)
        changed = (data[:begin] + new_text.encode() + data[end:]).decode()
        compile(changed, module, "exec")
        found.append(Mutant(name=name, module=module, source=source, changed=changed))
    return tuple(found)


class _Changes(ast.NodeVisitor):
    """What can be changed: where (the function), what stands there, and what could."""

    def __init__(self, source):
        self.found = []
        self._scope = []
        self.visit(ast.parse(source))

    def _offer(self, node, *others):
        scope = ".".join(self._scope) or "module"
        self.found += [(scope, node, ast.fix_missing_locations(other)) for other in others]

    def _with(self, node, change):
        """Return a copy that was changed."""
        other = copy.deepcopy(node)
        change(other)
        return other

    def _visit_scope(self, node):
        self._scope.append(node.name)
        for default in getattr(node.args, "defaults", ()) if hasattr(node, "args") else ():
            self.visit(default)
        for statement in node.body:
            self.visit(statement)
        self._scope.pop()

    def visit_FunctionDef(self, node):
        self._visit_scope(node)

    def visit_ClassDef(self, node):
        self._visit_scope(node)

    def visit_Import(self, node): ...

    def visit_ImportFrom(self, node): ...

    def visit_JoinedStr(self, node): ...

    def visit_AnnAssign(self, node):
        if node.value is not None:
            self.visit(node.value)

    def visit_If(self, node):
        if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return
        self._always_and_never(node.test)
        self.generic_visit(node)

    def visit_IfExp(self, node):
        self._always_and_never(node.test)
        self.generic_visit(node)

    def visit_While(self, node):
        self._offer(node.test, ast.Constant(False))
        self.generic_visit(node)

    def _always_and_never(self, test):
        self._offer(test, ast.Constant(True), ast.Constant(False))

    def visit_Expr(self, node):
        if not isinstance(node.value, ast.Constant):
            self._offer(node, ast.Pass())
            self.generic_visit(node)

    def visit_Assign(self, node):
        # A name that is never set is an error at once; what else is set may go unnoticed.
        if not any(isinstance(target, ast.Name | ast.Tuple) for target in node.targets):
            self._offer(node, ast.Pass())
        self.generic_visit(node)

    def visit_AugAssign(self, node):
        self._offer(node, ast.Pass())
        if type(node.op) in _OPERATORS:
            op = _OPERATORS[type(node.op)]()
            self._offer(node, self._with(node, lambda other: setattr(other, "op", op)))
        self.generic_visit(node)

    def visit_Raise(self, node):
        self._offer(node, ast.Pass())

    def visit_Continue(self, node):
        self._offer(node, ast.Pass(), ast.Break())

    def visit_Break(self, node):
        self._offer(node, ast.Continue())

    def visit_Compare(self, node):
        for i, op in enumerate(node.ops):
            for kind in _COMPARISONS[type(op)]:
                self._offer(node, self._with(node, _put("ops", i, kind())))
        self.generic_visit(node)

    def visit_BoolOp(self, node):
        op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        self._offer(node, self._with(node, lambda other: setattr(other, "op", op)))
        for i in range(len(node.values)):
            rest = node.values[:i] + node.values[i + 1 :]
            self._offer(node, ast.BoolOp(node.op, rest) if len(rest) > 1 else rest[0])
        self.generic_visit(node)

    def visit_BinOp(self, node):
        if type(node.op) in _OPERATORS:
            op = _OPERATORS[type(node.op)]()
            self._offer(node, self._with(node, lambda other: setattr(other, "op", op)))
        self.generic_visit(node)

    def visit_UnaryOp(self, node):
        self._offer(node, node.operand)
        self.generic_visit(node)

    def visit_Constant(self, node):
        if isinstance(node.value, bool):
            self._offer(node, ast.Constant(not node.value))
        elif isinstance(node.value, int):
            self._offer(node, ast.Constant(node.value + 1), ast.Constant(node.value - 1))
        elif isinstance(node.value, float):
            self._offer(node, ast.Constant(node.value * 2), ast.Constant(node.value / 2))

    def visit_Call(self, node):
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name in _SWAPPED_CALLS:
            other = ast.Name(_SWAPPED_CALLS[name], ast.Load())
            self._offer(node, self._with(node, lambda call: setattr(call, "func", other)))
        if name == "range":
            for op in (ast.Add(), ast.Sub()):
                last = ast.BinOp(node.args[-1], op, ast.Constant(1))
                self._offer(node, self._with(node, _put("args", -1, last)))
        elif len(node.args) > 1 and not any(isinstance(a, ast.Starred) for a in node.args[:2]):
            first, second = node.args[:2]
            if ast.dump(first) != ast.dump(second):
                swapped = [second, first, *node.args[2:]]
                self._offer(node, self._with(node, lambda call: setattr(call, "args", swapped)))
        for i, keyword in enumerate(node.keywords):
            # Without a field a value cannot be made at all; a default or a key can be forgotten.
            if keyword.arg in ("key", "default", "strict", "reverse", "repeat", "low", "high"):
                self._offer(node, self._with(node, _drop("keywords", i)))
        self.generic_visit(node)

    def _visit_comprehension(self, node):
        for i, part in enumerate(node.generators):
            for j in range(len(part.ifs)):

                def drop(other, i=i, j=j):
                    del other.generators[i].ifs[j]

                self._offer(node, self._with(node, drop))
        empty = {ast.ListComp: "[]", ast.SetComp: "set()", ast.DictComp: "{}"}.get(type(node))
        if empty is not None:
            self._offer(node, ast.parse(empty, mode="eval").body)
        self.generic_visit(node)

    def visit_ListComp(self, node):
        self._visit_comprehension(node)

    def visit_SetComp(self, node):
        self._visit_comprehension(node)

    def visit_DictComp(self, node):
        self._visit_comprehension(node)

    def visit_GeneratorExp(self, node):
        self._visit_comprehension(node)


def _put(field, place, value):
    """Return what puts a value into a list of a node."""

    def change(node):
        getattr(node, field)[place] = value

    return change


def _drop(field, place):
    """Return what takes a value out of a list of a node."""

    def change(node):
        del getattr(node, field)[place]

    return change


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
